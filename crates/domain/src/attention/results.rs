//! The entries about results of finished tasks that wait for a person.

use std::collections::BTreeMap;

use super::{Attention, AttentionKind, Cause, TaskInNeed};
use crate::id::ProjectId;
use crate::language::Language;
use crate::printable::counted;
use crate::task::Task;
use crate::workspace::{Conflict, Content, LeftMerge, MergeStep, UnmergedResult, Workspace};

/// The number of results of a project that have an entry each. More have one entry together.
const MAX_OF_PROJECT: usize = 5;
/// The number of files or branches that a text names.
const MAX_NAMES: usize = 3;
/// The number of digits of a commit in a text.
const SHORT_COMMIT: usize = 10;

/// A result, or the results of a project, about which a person has to decide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitingResult {
    ToMerge {
        task: TaskInNeed,
        n_additions: u32,
        n_deletions: u32,
        /// The branches and commits beside it.
        tips: Vec<String>,
    },
    /// All that its agent left are files in no commit.
    Files {
        task: TaskInNeed,
        n_files: u32,
        /// The branches and commits beside it.
        tips: Vec<String>,
    },
    /// It is decided, and its agent left more beside it.
    Beside {
        task: TaskInNeed,
        /// The branches and commits.
        tips: Vec<String>,
    },
    /// Its agent left several results.
    Undecided {
        task: TaskInNeed,
        /// The branches or commits.
        tips: Vec<String>,
    },
    Conflict {
        task: TaskInNeed,
        conflict: Conflict,
    },
    /// The files of its merge could not be put back.
    Left {
        /// Its task, unless that was deleted.
        task: Option<TaskInNeed>,
        merge: LeftMerge,
    },
    /// Its repository has commits that could not be kept, such as those beyond a limit.
    NotKept {
        task: TaskInNeed,
        /// The entries, each with the reason.
        entries: Vec<String>,
    },
    /// Too many of a project for an entry each.
    Many {
        project: ProjectId,
        name: String,
        n: usize,
    },
}

/// Returns the entries of results. `names` are the names of their projects. Results that an earlier
/// version kept have none, so that an upgrade does not fill the inbox.
pub fn of_results(
    results: Vec<UnmergedResult>,
    names: &BTreeMap<ProjectId, String>,
) -> Vec<Attention> {
    let mut by_project: BTreeMap<ProjectId, Vec<Attention>> = BTreeMap::new();
    let mut entries = Vec::new();
    for result in results {
        let UnmergedResult { workspace, task, step } = result;
        let Some(content) = workspace.content.as_ref() else { continue };
        let since = Some(task.status_since);
        let project = task.project.clone();
        let task = TaskInNeed::from(task);
        if let (MergeStep::Resolve, Some(conflict)) = (step, workspace.conflict()) {
            let since = Some(conflict.at);
            let result = WaitingResult::Conflict { task, conflict: conflict.clone() };
            entries.push(Attention { since, cause: Cause::Result(result) });
            continue;
        }
        let is_only_files = content.is_only_files();
        if content.is_of_earlier_version() && !is_only_files {
            continue;
        }
        let tips = content.open_others().map(|other| other.name().to_owned()).collect();
        let result = match step {
            MergeStep::Compare => WaitingResult::Beside { task, tips },
            MergeStep::Choose => WaitingResult::Undecided { task, tips },
            MergeStep::Merge if is_only_files => {
                WaitingResult::Files { task, n_files: content.n_uncommitted, tips }
            }
            MergeStep::Merge | MergeStep::Resolve => {
                let Content { n_additions, n_deletions, .. } = *content;
                WaitingResult::ToMerge { task, n_additions, n_deletions, tips }
            }
        };
        let entry = Attention { since, cause: Cause::Result(result) };
        // A choice is no merge, and tasks that depend on the result wait for it.
        if step == MergeStep::Choose || step == MergeStep::Compare {
            entries.push(entry);
        } else {
            by_project.entry(project).or_default().push(entry);
        }
    }
    for (project, of_project) in by_project {
        if of_project.len() <= MAX_OF_PROJECT {
            entries.extend(of_project);
            continue;
        }
        // It comes again with each new result.
        let since = of_project.iter().filter_map(|entry| entry.since).max();
        let name = names.get(&project).cloned().unwrap_or_else(|| project.to_string());
        let many = WaitingResult::Many { project, name, n: of_project.len() };
        entries.push(Attention { since, cause: Cause::Result(many) });
    }
    entries
}

/// Returns the entry of a merge that could not be undone.
pub fn of_left(merge: LeftMerge, task: Option<Task>) -> Attention {
    let since = Some(merge.since);
    let result = WaitingResult::Left { task: task.map(TaskInNeed::from), merge };
    Attention { since, cause: Cause::Result(result) }
}

/// Returns the entry of a clone whose commits could not all be kept. It stays until the clone is
/// kept again with another outcome, or a person discards the work.
pub fn of_not_kept(workspace: &Workspace, task: Task) -> Option<Attention> {
    let content = workspace.content.as_ref()?;
    let entries: Vec<String> = content.unkept_commits().cloned().collect();
    if entries.is_empty() {
        return None;
    }
    let result = WaitingResult::NotKept { task: task.into(), entries };
    Some(Attention { since: Some(workspace.created_at), cause: Cause::Result(result) })
}

impl WaitingResult {
    pub(super) const fn kind(&self) -> AttentionKind {
        match self {
            Self::Conflict { .. } => AttentionKind::Conflict,
            Self::Left { .. } => AttentionKind::InterruptedMerge,
            Self::NotKept { .. } => AttentionKind::Workspace,
            Self::ToMerge { .. }
            | Self::Files { .. }
            | Self::Undecided { .. }
            | Self::Beside { .. }
            | Self::Many { .. } => AttentionKind::Unmerged,
        }
    }

    /// Returns the name of the object, which differs from that of all others of this kind.
    pub(super) fn subject(&self) -> String {
        match self {
            Self::ToMerge { task, .. } | Self::Conflict { task, .. } => task.id.to_string(),
            Self::Files { task, .. } => format!("{} files", task.id),
            Self::Undecided { task, .. } => format!("{} undecided", task.id),
            Self::Beside { task, .. } => format!("{} beside", task.id),
            Self::Left { merge, .. } => merge.workspace.to_string(),
            Self::NotKept { task, entries } => format!("{} {}", task.id, entries.join("\n")),
            Self::Many { project, .. } => format!("all of {project}"),
        }
    }

    pub(super) const fn task(&self) -> Option<&TaskInNeed> {
        match self {
            Self::ToMerge { task, .. }
            | Self::Files { task, .. }
            | Self::Undecided { task, .. }
            | Self::Beside { task, .. }
            | Self::NotKept { task, .. }
            | Self::Conflict { task, .. } => Some(task),
            Self::Left { task, .. } => task.as_ref(),
            Self::Many { .. } => None,
        }
    }

    pub(super) fn title(&self, language: Language) -> String {
        match (self, language) {
            (Self::Many { name, n, .. }, Language::English) => {
                format!("{name}: {n} results to merge")
            }
            (Self::Many { name, n, .. }, Language::Japanese) => {
                format!("{name}: マージ待ちの結果 {n} 件")
            }
            (Self::Left { task: None, .. }, _) => {
                language.either("Interrupted merge", "中断されたマージ").to_owned()
            }
            _ => self.task().map(|task| task.title.clone()).unwrap_or_default(),
        }
    }

    pub(super) fn text(&self, language: Language) -> String {
        let (english, japanese) = match self {
            Self::ToMerge { task, n_additions, n_deletions, tips } => {
                let short_id = &task.short_id;
                (
                    format!(
                        "{short_id} is done: +{n_additions} −{n_deletions}, not merged{}",
                        more_on(tips, Language::English)
                    ),
                    format!(
                        "{short_id} は完了: +{n_additions} −{n_deletions}、未マージ{}",
                        more_on(tips, Language::Japanese)
                    ),
                )
            }
            Self::Files { task: TaskInNeed { short_id, .. }, n_files, tips } => (
                format!(
                    "{short_id} is done: {} in no commit, not merged{}",
                    counted(*n_files, "file"),
                    more_on(tips, Language::English)
                ),
                format!(
                    "{short_id} は完了: 未コミットのファイル {n_files} 件、未マージ{}",
                    more_on(tips, Language::Japanese)
                ),
            ),
            Self::Beside { task: TaskInNeed { short_id, .. }, tips } => (
                format!(
                    "The agent of {short_id} left more beside the result: {}. Take it or drop it",
                    named(tips, Language::English)
                ),
                format!(
                    "{short_id} には結果のほかにも変更があります。結果にするか不要にするかを選択してください: {}",
                    named(tips, Language::Japanese)
                ),
            ),
            Self::Undecided { task: TaskInNeed { short_id, .. }, tips } => (
                format!(
                    "{short_id} is done, and its agent left several results: {}. Choose one",
                    named(tips, Language::English)
                ),
                format!(
                    "{short_id} は完了。結果が複数あるため選択が必要です: {}",
                    named(tips, Language::Japanese)
                ),
            ),
            Self::Conflict { task: TaskInNeed { short_id, .. }, conflict } => {
                let Conflict { branch, commit, files, .. } = conflict;
                let commit = commit.get(..SHORT_COMMIT).unwrap_or(commit);
                (
                    format!(
                        "{short_id} was not merged: it and {branch} (as of {commit}) change the \
                         same lines of {}",
                        named(files, Language::English)
                    ),
                    format!(
                        "{short_id} は未マージ: {branch}（{commit} の時点）と同じ行を変更: {}",
                        named(files, Language::Japanese)
                    ),
                )
            }
            Self::Left { task, merge: LeftMerge { folder, branch, files, .. } } => {
                let folder = folder.display();
                let of = task.as_ref().map(|task| task.short_id.to_string());
                let files = |language: Language| {
                    let named = format!(": {}", named(files, language));
                    if files.is_empty() { String::new() } else { named }
                };
                (
                    format!(
                        "{} was not merged into {branch}, and its changes are still in \
                         {folder}{}. Look at git status there, and commit or undo them",
                        of.as_deref().unwrap_or("A result"),
                        files(Language::English)
                    ),
                    format!(
                        "{} は {branch} に未マージで、変更が {folder} に残っています{}。\
                         git status で確認し、コミットするか元に戻してください",
                        of.as_deref().unwrap_or("結果"),
                        files(Language::Japanese)
                    ),
                )
            }
            Self::NotKept { task: TaskInNeed { short_id, .. }, entries } => (
                format!(
                    "Not all commits of {short_id} could be kept, so its clone stays: {}",
                    named(entries, Language::English)
                ),
                format!("{short_id} のコミットの一部を保存できないため、クローンを残しています"),
            ),
            Self::Many { .. } => (
                "Their tasks are done, and no person has decided about the results".to_owned(),
                "タスクは完了していますが、結果の扱いが決まっていません".to_owned(),
            ),
        };
        language.choose(english, japanese)
    }

    /// Returns the errors behind it, which only the English text contains.
    pub(super) fn detail_in_english(&self) -> Option<String> {
        match self {
            Self::NotKept { entries, .. } => Some(named(entries, Language::English)),
            _ => None,
        }
    }

    /// Returns the command that ends it or shows all of it, which is the same in each language.
    /// None of this program ends what a merge left.
    pub(super) fn remedy(&self) -> Option<String> {
        Some(match self {
            Self::ToMerge { task, .. } => format!("`task merge {}`", task.short_id),
            Self::Files { task, .. } => {
                format!("`task merge {} --with-uncommitted`", task.short_id)
            }
            Self::Undecided { task, .. } => {
                format!("`task result {} --take BRANCH`", task.short_id)
            }
            Self::Beside { task, .. } => format!("`task result {}`", task.short_id),
            Self::Conflict { task, .. } => format!("`task merge {} --ask-agent`", task.short_id),
            Self::Left { .. } => return None,
            Self::NotKept { task, .. } => format!("`workspace show {}`", task.short_id),
            Self::Many { project, .. } => format!("`task list --project {project}`"),
        })
    }
}

/// Returns the end of a sentence about a result, with the branches beside it.
fn more_on(tips: &[String], language: Language) -> String {
    match (tips.is_empty(), language) {
        (true, _) => String::new(),
        (_, Language::English) => format!("; more is on {}", named(tips, language)),
        (_, Language::Japanese) => format!("、他のブランチ: {}", named(tips, language)),
    }
}

/// Returns the first names, and the number of the others.
fn named(names: &[String], language: Language) -> String {
    let shown = names.iter().take(MAX_NAMES).map(String::as_str);
    let shown = shown.collect::<Vec<_>>().join(language.either(", ", "、"));
    let n_more = names.len().saturating_sub(MAX_NAMES);
    match (n_more, language) {
        (0, _) => shown,
        (_, Language::English) => format!("{shown} and {n_more} more"),
        (_, Language::Japanese) => format!("{shown} ほか {n_more} 件"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attention::AttentionKind::{Conflict as InConflict, Unmerged};
    use crate::task::{NewTask, TaskStatus};
    use crate::time::Timestamp;
    use crate::workspace::OtherTip;

    fn result(n: u32, step: MergeStep) -> UnmergedResult {
        let new = NewTask {
            status: TaskStatus::Done,
            ..NewTask::new("shop".parse().unwrap(), "Sell tea")
        };
        let at = Timestamp::from_millis(i64::from(n));
        let id = format!("tsk_{n}").parse().unwrap();
        let task = new.to_task(id, format!("SHOP-{n}").parse().unwrap(), at).unwrap();
        let branch = format!("agents/shop-{n}");
        let id = "wsp_1".parse().unwrap();
        let mut workspace =
            Workspace::wanted(id, task.project.clone(), task.id.clone(), branch, at);
        let tip = |name: &str| OtherTip {
            branch: Some(name.to_owned()),
            commit: name.to_owned(),
            n_commits: 1,
        };
        let conflict = (step == MergeStep::Resolve).then(|| Conflict {
            result: None,
            branch: "main".to_owned(),
            commit: "0123456789abcdef".to_owned(),
            files: ["a", "b", "c", "d"].map(str::to_owned).to_vec(),
            at: Timestamp::from_millis(9_000),
            squash: false,
            rebase: false,
            with_uncommitted: false,
            is_asked: false,
        });
        workspace.content = Some(Content {
            n_commits: 1,
            n_additions: 2,
            n_deletions: 1,
            tips: ["a".to_owned()].into(),
            others: vec![tip("x"), tip("y")],
            is_undecided: step == MergeStep::Choose,
            conflict,
            ..Content::default()
        });
        UnmergedResult { workspace, task, step }
    }

    /// Returns the kinds, titles and texts of the entries.
    fn told(results: Vec<UnmergedResult>) -> Vec<(AttentionKind, String, String)> {
        let names = BTreeMap::from([("shop".parse().unwrap(), "Tea shop".to_owned())]);
        let entries = of_results(results, &names);
        let language = Language::English;
        let told = |entry: Attention| (entry.kind(), entry.title(language), entry.text(language));
        entries.into_iter().map(told).collect()
    }

    #[test]
    fn a_result_says_what_a_person_is_to_do_with_it() {
        let results = [
            (1, MergeStep::Merge),
            (2, MergeStep::Choose),
            (3, MergeStep::Resolve),
            (4, MergeStep::Compare),
        ];
        let entries = told(results.map(|(n, step)| result(n, step)).to_vec());
        let expected = [
            (Unmerged, "SHOP-2 is done, and its agent left several results: x, y. Choose one"),
            (
                InConflict,
                "SHOP-3 was not merged: it and main (as of 0123456789) change the same lines of \
                 a, b, c and 1 more",
            ),
            (Unmerged, "The agent of SHOP-4 left more beside the result: x, y. Take it or drop it"),
            (Unmerged, "SHOP-1 is done: +2 −1, not merged; more is on x, y"),
        ];
        for ((kind, title, text), expected) in entries.iter().zip(expected) {
            assert_eq!(
                (*kind, title.as_str(), text.as_str()),
                (expected.0, "Sell tea", expected.1)
            );
        }
        assert_eq!(entries.len(), 4);
    }

    #[test]
    fn a_result_that_is_in_no_commit_says_so() {
        let mut files = result(1, MergeStep::Merge);
        let left = Content { n_uncommitted: 3, ..Content::default() };
        files.workspace.content = Some(left);
        let expected = "SHOP-1 is done: 3 files in no commit, not merged".to_owned();
        assert_eq!(told(vec![files.clone()]), [(Unmerged, "Sell tea".to_owned(), expected)]);
        let mut more = files.clone();
        let others = result(1, MergeStep::Merge).workspace.content.unwrap().others;
        more.workspace.content.as_mut().unwrap().others = others;
        let text = told(vec![more]).remove(0).2;
        assert_eq!(text, "SHOP-1 is done: 3 files in no commit, not merged; more is on x, y");
        let entry = of_results(vec![files], &BTreeMap::new()).pop().unwrap();
        let Cause::Result(found) = entry.cause else { panic!("{entry:?}") };
        assert_eq!(found.remedy().unwrap(), "`task merge SHOP-1 --with-uncommitted`");
    }

    #[test]
    fn commits_beyond_a_limit_have_an_entry_until_they_change() {
        let UnmergedResult { workspace, task, .. } = result(1, MergeStep::Merge);
        let of = |left_out: &[&str]| {
            let left_out = left_out.iter().map(|entry| (*entry).to_owned()).collect();
            let content = Some(Content { left_out, ..Content::default() });
            of_not_kept(&Workspace { content, ..workspace.clone() }, task.clone())
        };
        for file in ["a.sock: it is a socket", "a/.gitignore: it is a special file"] {
            assert_eq!(of(&[file]), None, "that is no commit");
        }
        for path in [".git/objects", "inner/.git", "a: b/.git", "a: b/.git/modules/c"] {
            assert!(of(&[&format!("{path}: there are more than 8 objects")]).is_some(), "{path}");
        }
        let beyond = ".git/objects: there are more than 8 objects";
        let entry = of(&["a.sock: it is a socket", beyond]).unwrap();
        assert_eq!(entry.kind(), AttentionKind::Workspace);
        let text = entry.text(Language::English);
        assert!(text.ends_with(beyond) && text.contains("SHOP-1"), "{text}");
        assert_eq!(entry.detail_in_english().as_deref(), Some(beyond));
        assert_eq!(entry.id(), of(&[beyond]).unwrap().id());
        assert_ne!(entry.id(), of(&[".git/objects: it is too slow"]).unwrap().id());
    }

    #[test]
    fn more_than_five_of_a_project_are_one_entry_and_each_conflict_or_choice_has_its_own() {
        let of = |n_results: u32| {
            let mut results: Vec<_> =
                (1..=n_results).map(|n| result(n, MergeStep::Merge)).collect();
            results.push(result(20, MergeStep::Resolve));
            results.push(result(21, MergeStep::Choose));
            results
        };
        assert_eq!(told(of(5)).len(), 7);
        let entries = told(of(6));
        assert_eq!((entries.len(), entries[0].0), (3, InConflict));
        assert!(entries[1].2.contains("SHOP-21 is done, and its agent left several results"));
        assert_eq!(
            (entries[2].0, entries[2].1.as_str()),
            (Unmerged, "Tea shop: 6 results to merge")
        );
        // A new result makes it new for a person who has marked it as done.
        let many = |n| of_results(of(n), &BTreeMap::new()).pop().unwrap();
        assert_ne!(many(6).id(), many(7).id());
        assert_eq!(many(6).project().unwrap().as_str(), "shop");
    }

    #[test]
    fn a_result_of_an_earlier_version_has_an_entry_only_after_a_conflict() {
        let earlier = |step| {
            let mut result = result(1, step);
            result.workspace.content.as_mut().unwrap().tips.clear();
            result
        };
        assert!(told(vec![earlier(MergeStep::Merge)]).is_empty());
        assert_eq!(told(vec![earlier(MergeStep::Resolve)])[0].0, InConflict);
    }
}
