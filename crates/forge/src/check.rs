//! Checks a host: the questions, and the findings from the answers.
//!
//! It asks like the daemon, with its token, and writes nothing except labels, if that is wanted.
//! `cli` calls it, without a daemon.

use futures::{StreamExt as _, stream};
use serde::Serialize;

use super::{Forge, ForgeError, Identity, RepositoryFacts};
use config::{ForgeHost, WatchedRepository, repositories_path};
use domain::forge::labels::is_same;
use domain::forge::{ForgeKind, ForgeUser, LabelNames, Publish, is_bot};

/// The number of repositories of a host that are checked together.
const N_AT_ONCE: usize = 4;

/// The treatment of labels that a repository does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingLabels {
    Report,
    Create,
}

/// The findings at a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HostReport {
    pub forge: ForgeKind,
    pub host: String,
    pub bot_name: String,
    /// The owner of the token; `None` if it is not accepted.
    pub token_of: Option<String>,
    /// The scopes, as far as the forge tells them.
    pub scopes: Option<Vec<String>>,
    pub findings: Vec<Finding>,
    /// The repositories. Empty if the host does not answer.
    pub repositories: Vec<RepositoryReport>,
}

/// The findings at a repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RepositoryReport {
    pub name: String,
    pub labels_created: Vec<String>,
    pub findings: Vec<Finding>,
}

/// A finding for a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// The finding keeps the daemon from its work. Otherwise it is only information.
    pub is_problem: bool,
    pub found: String,
    /// The advice. Empty if there is nothing to do.
    pub advice: String,
}

impl Finding {
    pub fn problem(found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { is_problem: true, found: found.into(), advice: advice.into() }
    }

    pub fn note(found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { is_problem: false, found: found.into(), advice: advice.into() }
    }
}

impl HostReport {
    /// Creates a report that has only findings.
    pub fn of(host: &ForgeHost, findings: Vec<Finding>) -> Self {
        Self {
            forge: host.kind,
            host: host.host().to_owned(),
            bot_name: host.account.bot_name.clone(),
            token_of: None,
            scopes: None,
            findings,
            repositories: Vec::new(),
        }
    }

    pub fn is_good(&self) -> bool {
        let of_repositories = self.repositories.iter().flat_map(|repository| &repository.findings);
        !self.findings.iter().chain(of_repositories).any(|finding| finding.is_problem)
    }
}

/// Looks at a host and its repositories. Takes as long as its slowest answers; dropping it leaves
/// labels created or not.
pub async fn check(host: &ForgeHost, forge: &Forge, missing: MissingLabels) -> HostReport {
    let identity = match forge.identity().await {
        Ok(identity) => identity,
        // The repositories would only report the same, each after its own wait.
        Err(error) => {
            return HostReport::of(host, vec![of_error("the token was not checked", &error)]);
        }
    };
    let bot = match forge.user(&host.account.bot_name).await {
        Ok(bot) => Ok(bot),
        Err(error) => Err(of_error("the bot's account was not found", &error)),
    };
    let mut findings = of_identity(host, &identity, bot.as_ref().ok().and_then(Option::as_ref));
    let bot = match bot {
        Ok(Some(bot)) => Some(bot),
        Ok(None) => {
            let found = format!("there is no account `{}`", host.account.bot_name);
            findings.push(Finding::problem(
                found,
                "set `bot_name` to the login of the account that people assign",
            ));
            None
        }
        Err(finding) => {
            findings.push(finding);
            None
        }
    };
    if host.repositories.is_empty() {
        let key = if host.kind == ForgeKind::GitHub { "repositories" } else { "projects" };
        findings.push(Finding::note("nothing is watched", format!("list something in `{key}`")));
    }
    let looked_at = host
        .repositories
        .iter()
        .map(|watched| check_repository(host, forge, watched, bot.as_ref(), missing));
    let repositories = stream::iter(looked_at).buffered(N_AT_ONCE).collect().await;
    HostReport {
        token_of: Some(identity.user.login),
        scopes: identity.scopes,
        repositories,
        ..HostReport::of(host, findings)
    }
}

async fn check_repository(
    host: &ForgeHost,
    forge: &Forge,
    watched: &WatchedRepository,
    bot: Option<&ForgeUser>,
    missing: MissingLabels,
) -> RepositoryReport {
    let name = watched.name.as_str();
    let mut report = RepositoryReport {
        name: name.to_owned(),
        labels_created: Vec::new(),
        findings: Vec::new(),
    };
    let facts = match forge.repository(name).await {
        Ok(facts) => facts,
        Err(error) => {
            report.findings.push(of_repository_error(&error));
            return report;
        }
    };
    report.findings.extend(of_repository(host.kind, watched, &facts));
    // The daemon uses the present name, too.
    let name = if is_number(name) { name } else { facts.full_name.as_str() };
    if let Some(bot) = bot {
        match forge.is_assignable(name, bot).await {
            Ok(true) => {}
            Ok(false) => {
                let found = format!("`{}` can't be assigned here", bot.login);
                report.findings.push(Finding::problem(
                    found,
                    "make it a member with the right to triage (GitLab: Reporter)",
                ));
            }
            Err(error) => report
                .findings
                .push(of_error("could not find out whether the bot can be assigned", &error)),
        }
    }
    let absent = match forge.labels(name).await {
        Ok(labels) => absent(&host.labels, &labels),
        Err(error) => {
            report.findings.push(of_error("could not list the labels", &error));
            return report;
        }
    };
    match missing {
        MissingLabels::Report if !absent.is_empty() => {
            let names: Vec<String> = absent.iter().map(|(label, _)| format!("`{label}`")).collect();
            let found = format!("labels are missing: {}", names.join(", "));
            report.findings.push(Finding::problem(
                found,
                "create them by `agent-coordinator forge check --create-labels`",
            ));
        }
        MissingLabels::Report => {}
        MissingLabels::Create => {
            for (label, description) in absent {
                match forge.create_label(name, label, description).await {
                    Ok(()) => report.labels_created.push(label.to_owned()),
                    Err(error) => report
                        .findings
                        .push(of_error(&format!("`{label}` was not created"), &error)),
                }
            }
        }
    }
    report
}

/// Returns our labels that a repository does not have, each with its description.
fn absent<'a>(ours: &'a LabelNames, theirs: &[String]) -> Vec<(&'a str, &'static str)> {
    const DESCRIPTIONS: [&str; 7] = [
        "The coding agent is to work on this",
        "The coding agent works on this",
        "The coding agent has done this",
        "The coding agent is paused and goes on by itself",
        "The coding agent was stopped",
        "The coding agent reported failure",
        "The coding agent can't go on by itself",
    ];
    let is_absent = |label: &str| !theirs.iter().any(|other| is_same(other, label));
    ours.all().into_iter().zip(DESCRIPTIONS).filter(|(label, _)| is_absent(label)).collect()
}

fn of_identity(host: &ForgeHost, identity: &Identity, bot: Option<&ForgeUser>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let wanted: &[&str] = match host.kind {
        ForgeKind::GitHub => &["repo", "public_repo"],
        ForgeKind::GitLab => &["api"],
    };
    if let Some(scopes) = &identity.scopes
        && !scopes.iter().any(|scope| wanted.contains(&scope.as_str()))
    {
        let has = if scopes.is_empty() {
            "no scope".to_owned()
        } else {
            format!("the scopes {}", scopes.join(", "))
        };
        let advice = match host.kind {
            ForgeKind::GitHub => "give it `repo`, or `public_repo` if all repositories are public",
            ForgeKind::GitLab => "give it `api`",
        };
        findings.push(Finding::problem(format!("the token has {has}"), advice));
    }
    if host.kind == ForgeKind::GitHub
        && identity.scopes.as_ref().is_some_and(|scopes| !scopes.iter().any(|s| s == "repo"))
    {
        findings.push(Finding::note("private repositories can't be seen", ""));
    }
    if bot.is_some_and(|bot| !is_bot(&identity.user, bot)) {
        let found =
            format!("the token is of `{}`: comments will be by that account", identity.user.login);
        findings.push(Finding::note(
            found,
            format!("use a token of `{}` if that is not meant", host.account.bot_name),
        ));
    }
    findings
}

fn of_repository(
    kind: ForgeKind,
    watched: &WatchedRepository,
    facts: &RepositoryFacts,
) -> Vec<Finding> {
    let name = watched.name.as_str();
    let mut findings = Vec::new();
    if !is_number(name) && facts.full_name.to_lowercase() != name.to_lowercase() {
        let found = format!("it is called `{}` now", facts.full_name);
        let advice = format!(
            "write `{}` in place of `{name}` under `{}`; until then the daemon follows it",
            facts.full_name,
            repositories_path(kind)
        );
        // Work on its items goes on.
        findings.push(Finding::note(found, advice));
    }
    if facts.is_archived {
        findings.push(Finding::problem(
            "it is archived: nothing can be written there",
            "unarchive it, or take it out",
        ));
    }
    if facts.may_triage == Some(false) {
        let advice = match kind {
            ForgeKind::GitHub => {
                "give the token's account the role Triage or a higher one, and the token write access to issues and pull requests"
            }
            ForgeKind::GitLab => {
                "give the token's account the role Reporter (Developer for merge requests) or a higher one"
            }
        };
        findings.push(Finding::problem("the token may not set labels here", advice));
    }
    if watched.publish != Publish::Nothing && facts.may_push == Some(false) {
        let found = format!("the token may not push here (`publish: {}`)", watched.publish);
        let advice = match kind {
            ForgeKind::GitHub => {
                "give the token's account the role Write, and a fine-grained token write access to \
                 contents and pull requests"
            }
            ForgeKind::GitLab => "give the token's account the role Developer or a higher one",
        };
        findings.push(Finding::problem(found, advice));
    }
    if !facts.has_issues {
        findings.push(Finding::note("issues are turned off here", ""));
    }
    findings
}

/// Returns whether a GitLab project is named by its number, which stays.
fn is_number(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_digit())
}

fn of_repository_error(error: &ForgeError) -> Finding {
    match error {
        ForgeError::NotFound { .. } => Finding::problem(
            "not found: it doesn't exist, or the token may not see it",
            "check the name, and whether the token's account is a member",
        ),
        ForgeError::Moved { .. } => {
            Finding::problem(error.to_string(), "write the new name into the configuration")
        }
        _ => of_error("it was not checked", error),
    }
}

/// Returns the finding of a question without an answer.
fn of_error(what: &str, error: &ForgeError) -> Finding {
    let advice = match error {
        ForgeError::Unauthorized { .. } => {
            "make a new token: this one is wrong, expired or revoked"
        }
        ForgeError::Limited { .. }
        | ForgeError::Withheld { .. }
        | ForgeError::OverBudget { .. } => "try again later",
        ForgeError::Forbidden { .. } => {
            "the token lacks a right, or an organisation has to approve it"
        }
        ForgeError::NotFound { .. }
        | ForgeError::Moved { .. }
        | ForgeError::NotUnderstood { .. } => {
            "check `base_url`: it must be the URL of an API (docs/forges.md)"
        }
        ForgeError::Refused { .. } => "read the answer of the forge",
        ForgeError::Unavailable { .. } => {
            "check `base_url`, the network, and whether the forge is up"
        }
    };
    Finding::problem(format!("{what}: {error}"), advice)
}

#[cfg(test)]
mod tests {
    use ForgeKind::{GitHub, GitLab};

    use super::*;
    use config::ForgeAccount;
    use domain::Secret;

    fn host(kind: ForgeKind) -> ForgeHost {
        ForgeHost {
            kind,
            account: ForgeAccount {
                base_url: "https://code.example".to_owned(),
                token: Secret::new("x"),
                token_file: None,
                bot_name: "coder".to_owned(),
            },
            labels: LabelNames::default(),
            repositories: Vec::new(),
        }
    }

    fn user(id: u64, login: &str) -> ForgeUser {
        ForgeUser { id: Some(id), login: login.to_owned() }
    }

    /// Returns the findings as text, problems with `!`.
    fn shown(findings: &[Finding]) -> Vec<String> {
        let mark = |finding: &Finding| if finding.is_problem { "!" } else { "" };
        findings.iter().map(|finding| format!("{}{}", mark(finding), finding.found)).collect()
    }

    #[test]
    fn a_token_is_judged_by_its_scopes_and_its_owner() {
        let check = |kind, scopes: Option<&[&str]>, owner: ForgeUser, expected: &[&str]| {
            let scopes =
                scopes.map(|scopes| scopes.iter().map(|&scope| scope.to_owned()).collect());
            let identity = Identity { user: owner, scopes };
            assert_eq!(
                shown(&of_identity(&host(kind), &identity, Some(&user(1, "coder")))),
                expected
            );
        };
        check(GitHub, None, user(1, "coder"), &[]);
        check(GitHub, Some(&["repo", "gist"]), user(1, "renamed"), &[]);
        check(
            GitHub,
            Some(&["public_repo"]),
            user(1, "coder"),
            &["private repositories can't be seen"],
        );
        check(
            GitHub,
            Some(&[]),
            user(1, "coder"),
            &["!the token has no scope", "private repositories can't be seen"],
        );
        check(
            GitLab,
            Some(&["read_api", "ai"]),
            user(1, "coder"),
            &["!the token has the scopes read_api, ai"],
        );
        check(
            GitLab,
            Some(&["api"]),
            user(2, "ann"),
            &["the token is of `ann`: comments will be by that account"],
        );
    }

    #[test]
    fn a_repository_is_judged_by_what_keeps_items_from_being_worked_on() {
        let good = RepositoryFacts {
            full_name: "Acme/Shop".to_owned(),
            is_archived: false,
            has_issues: true,
            may_triage: None,
            may_push: Some(false),
            clone_url: None,
        };
        let of_repository = |kind, name: &str, facts: &RepositoryFacts| {
            of_repository(kind, &watched(name, Publish::Nothing), facts)
        };
        assert_eq!(shown(&of_repository(ForgeKind::GitHub, "acme/shop", &good)), [""; 0]);
        assert_eq!(shown(&of_repository(ForgeKind::GitLab, "42", &good)), [""; 0]);
        let bad = RepositoryFacts {
            is_archived: true,
            has_issues: false,
            may_triage: Some(false),
            ..good
        };
        assert_eq!(
            shown(&of_repository(ForgeKind::GitHub, "acme/old", &bad)),
            [
                "it is called `Acme/Shop` now",
                "!it is archived: nothing can be written there",
                "!the token may not set labels here",
                "issues are turned off here"
            ]
        );
    }

    fn watched(name: &str, publish: Publish) -> WatchedRepository {
        let project = "prj".parse().expect("an id");
        WatchedRepository {
            name: name.to_owned(),
            project,
            agents: Vec::new(),
            publish,
            push_to_pr: false,
            publish_closes: false,
        }
    }

    #[test]
    fn a_token_that_may_not_push_is_a_problem_only_if_results_are_published() {
        let facts = |may_push| RepositoryFacts {
            full_name: "acme/shop".to_owned(),
            is_archived: false,
            has_issues: true,
            may_triage: None,
            may_push,
            clone_url: Some("https://github.com/acme/shop.git".to_owned()),
        };
        let check = |publish, may_push, expected: &[&str]| {
            let watched = watched("acme/shop", publish);
            let found = shown(&of_repository(ForgeKind::GitHub, &watched, &facts(may_push)));
            assert_eq!(found, expected);
        };
        check(Publish::Nothing, Some(false), &[]);
        check(Publish::PullRequest, Some(true), &[]);
        check(Publish::PullRequest, None, &[]);
        check(Publish::Push, Some(false), &["!the token may not push here (`publish: push`)"]);
    }

    #[test]
    fn labels_are_there_whatever_their_case() {
        let theirs = ["Coding Agent", "coding agent done", "bug"].map(str::to_owned);
        let labels = LabelNames::default();
        let absent: Vec<_> = absent(&labels, &theirs).into_iter().map(|(label, _)| label).collect();
        let expected = ["processing", "paused", "stopped", "failed", "blocked"];
        assert_eq!(absent, expected.map(|rest| format!("coding agent {rest}")));
    }
}
