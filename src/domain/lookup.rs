//! Finds the agent, the project or the task that a text of a person names: by its id, by a shorter
//! form, or by the beginning of its id.

use super::words::words;

words! {
    /// The kinds of things that people name.
    pub enum LookupKind as "kind" {
        Agent = "agent",
        Project = "project",
        Task = "task",
    }
}

/// A thing that a text may name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    pub id: String,
    /// The short id of a task, or the key of a project.
    pub short_id: Option<String>,
    /// The name of an agent or a project, or the title of a task.
    pub name: String,
}

/// Returns the candidates that `text` names: the one with this id, or else the one with this short
/// id, or else those with this name, or else those whose ids begin with it. Case matters only in
/// ids. A title is not a name.
pub fn named(kind: LookupKind, text: &str, candidates: Vec<Candidate>) -> Vec<Candidate> {
    let has_id = |candidate: &Candidate| candidate.id == text;
    let has_short_id = |candidate: &Candidate| {
        candidate.short_id.as_ref().is_some_and(|short_id| short_id.eq_ignore_ascii_case(text))
    };
    let has_name = |candidate: &Candidate| {
        kind != LookupKind::Task && candidate.name.to_lowercase() == text.to_lowercase()
    };
    let begins = |candidate: &Candidate| !text.is_empty() && candidate.id.starts_with(text);
    let tiers: [&dyn Fn(&Candidate) -> bool; 4] = [&has_id, &has_short_id, &has_name, &begins];
    let Some(names) = tiers.into_iter().find(|names| candidates.iter().any(names)) else {
        return Vec::new();
    };
    candidates.into_iter().filter(names).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(id: &str, short_id: Option<&str>, name: &str) -> Candidate {
        Candidate {
            id: id.to_owned(),
            short_id: short_id.map(str::to_owned),
            name: name.to_owned(),
        }
    }

    #[track_caller]
    fn check(kind: LookupKind, text: &str, ids: &[&str]) {
        let candidates = vec![
            candidate("ada", Some("ADA"), "Ada"),
            candidate("adam", Some("SHOP-1"), "Bob"),
            candidate("SHOP-1", None, "Ada Lovelace"),
            candidate("prj_1", Some("BOB"), "BOB"),
            candidate("prj_2", None, "二つ"),
        ];
        let found = named(kind, text, candidates);
        let found: Vec<&str> = found.iter().map(|candidate| candidate.id.as_str()).collect();
        assert_eq!(found, ids, "{text}");
    }

    #[test]
    fn an_id_is_before_a_short_id_a_name_and_a_prefix() {
        check(LookupKind::Agent, "ada", &["ada"]);
        check(LookupKind::Agent, "SHOP-1", &["SHOP-1"]);
        check(LookupKind::Agent, "shop-1", &["adam"]);
        check(LookupKind::Agent, "ada lovelace", &["SHOP-1"]);
        check(LookupKind::Agent, "bob", &["prj_1"]);
        check(LookupKind::Agent, "二つ", &["prj_2"]);
        check(LookupKind::Agent, "adam", &["adam"]);
        check(LookupKind::Agent, "SHOP", &["SHOP-1"]);
    }

    #[test]
    fn a_prefix_of_several_ids_names_all_of_them() {
        check(LookupKind::Project, "ad", &["ada", "adam"]);
        check(LookupKind::Project, "prj_", &["prj_1", "prj_2"]);
        check(LookupKind::Project, "", &[]);
        check(LookupKind::Project, "x", &[]);
    }

    #[test]
    fn a_title_does_not_name_a_task() {
        check(LookupKind::Task, "Ada Lovelace", &[]);
        check(LookupKind::Task, "Bob", &["prj_1"]);
    }
}
