//! `github` and `gitlab`: a host with its address, the account of the bot, the labels, and the
//! repositories that are watched there. Both have the same keys, except for the name of the
//! repositories.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use reqwest::Url;

use crate::declaration::{Changes, Keys, keys};
use crate::kinds::{Kind, id, list, path, truth, words};
use crate::reader::{Field, Name, Section};
use crate::report::Problem;
use domain::forge::labels::is_same;
use domain::forge::{ForgeKind, LabelNames, Publish};
use domain::printable::is_unprintable;
use domain::{AgentId, ProjectId, Secret};

/// A forge at one address, with one token. Several hosts may have the same address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForgeHost {
    pub kind: ForgeKind,
    pub account: ForgeAccount,
    pub labels: LabelNames,
    pub repositories: Vec<WatchedRepository>,
}

keys! {
    /// A host, or a list of hosts with these keys each. Without this section, no host of this kind
    /// is watched.
    pub struct ForgeAccount in "github" {
        /// The URL of a host of your own. For GitHub Enterprise Server it is that of the API:
        /// `https://HOST/api/v3`. For GitLab it is that of the site, which may have a path:
        /// `https://code.example/gitlab`.
        pub base_url: String = String::new(), base_url(), Now;

        /// The token. Either this key or `token_file` is required. Take it from a variable rather
        /// than writing it here. Agents do not get the variables that contain it.
        pub token: Secret = Secret::new(""), token(), Now;

        /// A file with the token.
        pub token_file: Option<PathBuf> = None, path().or_none(), Now;

        /// Required. The login of the account that people assign, without `@`. It is usually the
        /// token's own.
        pub bot_name: String = String::new(), login().required().for_example("acme-coder"), Now;
    }
}

keys! {
    /// The labels at a host. No two may be the same.
    impl LabelNames in "github" {
        /// The label with which people give an item to the bot.
        bot_label: label(), Now;

        /// Shows that an agent works on the item.
        processing_label: label(), Now;

        /// Shows that the work is done.
        done_label: label(), Now;

        /// Shows that the work is paused and goes on by itself.
        paused_label: label(), Now;

        /// Shows that the work was stopped.
        stopped_label: label(), Now;

        /// Shows that the agent reported failure.
        failed_label: label(), Now;

        /// Shows that the agent can't go on by itself.
        blocked_label: label(), Now;
    }
}

keys! {
    /// The watched repositories, by their names: `owner/name` at GitHub, the path of a project or
    /// its number at GitLab.
    pub struct RepositoryKeys in "github.repositories.*" {
        /// Required. The project that gets the tasks.
        pub project_id: Option<ProjectId> = None, id().if_set().required().for_example("prj_shop"), Now;

        /// The agent of this project that gets the tasks. Either this key or `agents` is required.
        /// One agent works on one item at a time; the others wait.
        pub agent: Option<AgentId> = None, id().or_none().for_example("agt_developer"), Now;

        /// Several agents in place of one. The next free one takes the next item. An example:
        /// `[agt_developer, agt_reviewer]`.
        pub agents: Vec<AgentId> = Vec::new(), agents(), Now;

        /// The destination of results. `none`: agents work in the project's directory, and results
        /// stay there. `push`: each item gets a clone of the repository, and its branch is pushed
        /// when the task is done. `pull_request`: a draft pull or merge request is opened, too. It
        /// needs a token that may push, and the coordinator of `run`.
        pub publish: Publish = Publish::Nothing, publish(), Now;

        /// Whether the result of a pull or merge request is pushed to its own branch, if that is in
        /// this repository, neither protected nor the default branch, and has got no commit
        /// meanwhile. Otherwise, and with `false`, it gets a branch of its own. It counts only with
        /// `publish`.
        pub push_to_pr: bool = false, truth(), Now;

        /// `true` writes `Closes #12` in place of `Refs #12` into the draft for an issue, so that
        /// the forge closes the issue with the merge into the default branch. It counts only with a
        /// draft.
        pub publish_closes: bool = false, truth(), Now;
    }
}

/// A repository whose items become tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchedRepository {
    /// The name as `owner/name`; at GitLab the path of a project, or its number.
    pub name: String,
    /// The project that gets the tasks.
    pub project: ProjectId,
    /// The agents. A free agent takes the next item, and works on one item at a time. There is at
    /// least one, and none twice.
    pub agents: Vec<AgentId>,
    /// The destination of the results of its items.
    pub publish: Publish,
    /// The results of pull and merge requests are pushed to their own branches.
    pub push_to_pr: bool,
    /// The merge of a draft closes its issue.
    pub publish_closes: bool,
}

/// Returns the key of a host's repositories.
pub(crate) const fn repositories_key(kind: ForgeKind) -> &'static str {
    match kind {
        ForgeKind::GitHub => "repositories",
        ForgeKind::GitLab => "projects",
    }
}

/// Returns the path of the repositories in the file: `github.repositories`.
pub fn repositories_path(kind: ForgeKind) -> String {
    format!("{}.{}", kind.as_str(), repositories_key(kind))
}

/// Returns the address of a host without `base_url`.
pub(crate) const fn default_base_url(kind: ForgeKind) -> &'static str {
    match kind {
        ForgeKind::GitHub => "https://api.github.com",
        ForgeKind::GitLab => "https://gitlab.com",
    }
}

/// Returns the path of the section of a host in a file with `n_hosts` hosts of its kind.
pub(super) fn section_of(kind: ForgeKind, i: usize, n_hosts: usize) -> String {
    if n_hosts == 1 { kind.as_str().to_owned() } else { format!("{}[{i}]", kind.as_str()) }
}

pub(super) fn of_kind(hosts: &[ForgeHost], kind: ForgeKind) -> Vec<&ForgeHost> {
    hosts.iter().filter(|host| host.kind == kind).collect()
}

/// Compares the hosts of two configurations. A host that only one of them contains is compared with
/// one that has all defaults.
pub(super) fn compare(old: &[ForgeHost], new: &[ForgeHost], changes: &mut Changes) {
    for kind in ForgeKind::ALL {
        let [old, new] = [old, new].map(|hosts| of_kind(hosts, *kind));
        let blank = ForgeHost::blank(*kind);
        let n_hosts = old.len().max(new.len());
        for i in 0..n_hosts {
            let [old, new] = [&old, &new].map(|hosts| hosts.get(i).copied().unwrap_or(&blank));
            old.compare(&section_of(*kind, i, n_hosts), new, changes);
        }
    }
}

/// The repositories of all hosts so far.
type Watched = BTreeSet<(ForgeKind, String, String)>;

pub(super) fn read_all(top: &mut Section<'_, '_>) -> Vec<ForgeHost> {
    let mut watched = Watched::new();
    let mut hosts = Vec::new();
    for (kind, key) in [(ForgeKind::GitHub, "github"), (ForgeKind::GitLab, "gitlab")] {
        let sections = top.sections(key).into_iter();
        hosts.extend(sections.map(|section| ForgeHost::read(kind, section, &mut watched)));
    }
    hosts
}

impl ForgeHost {
    fn blank(kind: ForgeKind) -> Self {
        Self {
            kind,
            account: ForgeAccount::default().completed(kind),
            labels: LabelNames::default(),
            repositories: Vec::new(),
        }
    }

    /// Returns the URL without its scheme. It identifies the host.
    pub fn host(&self) -> &str {
        let url = &self.account.base_url;
        url.split_once("://").map_or(url, |(_, host)| host)
    }

    fn read(kind: ForgeKind, mut section: Section<'_, '_>, watched: &mut Watched) -> Self {
        let account = ForgeAccount::read(&mut section);
        section.check_exactly_one(["token", "token_file"]);
        let labels = LabelNames::read(&mut section);
        check_labels(kind, &section, &labels);
        // The repositories are read for their own mistakes even if the address is wrong.
        let is_wrong = account.base_url.is_empty() && section.span_of("base_url").is_some();
        let mut host = Self { account: account.completed(kind), labels, ..Self::blank(kind) };
        for (name, section) in section.named_sections(repositories_key(kind)) {
            let place = (!is_wrong).then(|| host.host());
            let repository = WatchedRepository::read(kind, place, &name, section, watched);
            host.repositories.extend(repository);
        }
        host
    }

    fn compare(&self, section: &str, new: &Self, changes: &mut Changes) {
        self.account.compare_at(section, &new.account, changes);
        self.labels.compare_at(section, &new.labels, changes);
        let keys = |host: &Self| -> BTreeMap<_, _> {
            host.repositories.iter().map(|watched| (watched.name.clone(), watched.keys())).collect()
        };
        let old = keys(self);
        let new = keys(new);
        for name in old.keys().chain(new.keys()).collect::<BTreeSet<_>>() {
            let section = format!("{section}.{}.{name}", repositories_key(self.kind));
            let of = |keys: &BTreeMap<_, _>| keys.get(name).cloned().unwrap_or_default();
            RepositoryKeys::compare_at(&of(&old), &section, &of(&new), changes);
        }
    }
}

impl ForgeAccount {
    /// Returns the account with the default address of `kind`.
    fn completed(mut self, kind: ForgeKind) -> Self {
        if self.base_url.is_empty() {
            default_base_url(kind).clone_into(&mut self.base_url);
        }
        self
    }
}

impl WatchedRepository {
    /// Reads a repository of a host. The address of the host is `None` if it is not valid.
    fn read(
        kind: ForgeKind,
        host: Option<&str>,
        name: &Name,
        mut section: Section<'_, '_>,
        watched: &mut Watched,
    ) -> Option<Self> {
        let keys = RepositoryKeys::read(&mut section);
        section.check_exactly_one(["agent", "agents"]);
        let note = |problem: &str| {
            let message = format!("`{}` is {problem}", section.path());
            section.reader().note(Problem::new(message, name.span.clone()).label("here"));
        };
        let key = |host: &str| (kind, host.to_owned(), name.text.to_lowercase());
        match kind {
            ForgeKind::GitHub if !is_repository(kind, &name.text) => {
                note("not valid: expected `owner/name`");
            }
            ForgeKind::GitLab if !is_repository(kind, &name.text) => {
                note(
                    "not valid: expected the path of a project, such as `group/name`, or its number",
                );
            }
            _ if host.is_some_and(|host| !watched.insert(key(host))) => {
                note("watched twice: name it once, with all its agents in `agents`");
            }
            _ => {}
        }
        let RepositoryKeys { project_id, agent, agents, publish, push_to_pr, publish_closes } =
            keys;
        let agents = agent.map_or(agents, |agent| vec![agent]);
        let project = project_id?;
        let name = name.text.clone();
        Some(Self { name, project, agents, publish, push_to_pr, publish_closes })
    }

    /// Returns the keys that say the same, for a comparison.
    fn keys(&self) -> RepositoryKeys {
        let (agent, agents) = match &self.agents[..] {
            [agent] => (Some(agent.clone()), Vec::new()),
            agents => (None, agents.to_vec()),
        };
        RepositoryKeys {
            project_id: Some(self.project.clone()),
            agent,
            agents,
            publish: self.publish,
            push_to_pr: self.push_to_pr,
            publish_closes: self.publish_closes,
        }
    }
}

/// Notes labels that the forge does not take, and two that are the same.
fn check_labels(kind: ForgeKind, section: &Section<'_, '_>, labels: &LabelNames) {
    let labels: Vec<(&str, String)> =
        labels.values().into_iter().map(|(key, label)| (key, label.unwrap_or_default())).collect();
    let path = section.path();
    for (i, (key, label)) in labels.iter().enumerate() {
        if section.span_of(key).is_some() {
            if kind == ForgeKind::GitHub && label.chars().count() > 50 {
                let message = format!("`{path}.{key}` is too long for GitHub");
                section.refuse(key, message, "use at most 50 characters");
            } else if kind == ForgeKind::GitLab && label.contains(',') {
                let message = format!("`{path}.{key}` contains a comma");
                section.refuse(key, message, "GitLab separates labels by commas");
            }
        }
        let Some((twin, _)) = labels[..i].iter().find(|(_, other)| is_same(other, label)) else {
            continue;
        };
        // A default can't be the mistake. Therefore the place is one that the file contains.
        let place = if section.span_of(key).is_some() { key } else { twin };
        let message = format!("`{path}` has the same label for `{twin}` and `{key}`");
        section.refuse(place, message, "each label shows another state of an item");
    }
}

fn base_url() -> Kind<String> {
    let expected = "the URL of a host such as `https://code.example`, also with a path; nothing behind that, and no user";
    let parse = |text: &str| {
        let url = Url::parse(text).ok()?;
        let is_plain = url.query().is_none() && url.fragment().is_none();
        let has_user = !url.username().is_empty() || url.password().is_some();
        let is_http = matches!(url.scheme(), "http" | "https") && url.has_host();
        if !is_http || !is_plain || has_user {
            return None;
        }
        // GitLab's client adds the `/api/v4`.
        let root = url.as_str().trim_end_matches('/');
        let root = root.strip_suffix("/api/v4").unwrap_or(root);
        Some(root.trim_end_matches('/').to_owned())
    };
    Kind::parsed(expected, parse, Clone::clone).checked(|url| {
        let host = url.split_once("://").map_or("", |(_, host)| host);
        let is_page = matches!(host.split('/').next(), Some("github.com" | "www.github.com"));
        if is_page {
            Err("it is the address of GitHub's pages; leave the key out for github.com".to_owned())
        } else {
            Ok(())
        }
    })
}

fn token() -> Kind<Secret> {
    let read = |field: Field<'_, '_>, what: &str| {
        field.note_secret_variables();
        let is_token =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        // A variable that was filled from a file often ends with a line feed.
        field.parsed(what, |text| Some(text.trim()).filter(|text| is_token(text)).map(Secret::new))
    };
    let kind = Kind::new("letters, digits and signs without spaces", read, |_| String::new());
    kind.hidden().or_empty().written_as("null").for_example("${GITHUB_TOKEN}")
}

pub(super) fn login() -> Kind<String> {
    let is_space = |c: char| c.is_whitespace() || is_unprintable(c);
    let is_login =
        move |text: &str| !text.is_empty() && !text.starts_with('@') && !text.contains(is_space);
    let show = |login: &String| if login.is_empty() { "none" } else { login }.to_owned();
    Kind::parsed(
        "the login of an account, without `@`",
        move |text| is_login(text).then(|| text.to_owned()),
        show,
    )
}

fn label() -> Kind<String> {
    let is_label = |text: &str| {
        let is_clean = !text.contains(is_unprintable) && text.trim() == text;
        is_clean && !text.is_empty() && text.chars().count() <= 255
    };
    Kind::parsed(
        "a label without spaces around it (GitHub: at most 50 characters; GitLab: 255, no commas)",
        move |text| is_label(text).then(|| text.to_owned()),
        Clone::clone,
    )
}

fn agents() -> Kind<Vec<AgentId>> {
    list(id()).or_empty().written_as("null").checked(|agents: &Vec<AgentId>| {
        let mut seen = BTreeSet::new();
        match agents.iter().find(|agent| !seen.insert(*agent)) {
            Some(agent) => {
                Err(format!("it names `{agent}` twice, and an agent works on one item at a time"))
            }
            None if agents.is_empty() => Err("it names no agent".to_owned()),
            None => Ok(()),
        }
    })
}

fn publish() -> Kind<Publish> {
    words(Publish::ALL.iter().map(|word| (word.as_str(), *word)).collect::<Vec<_>>())
}

fn is_repository(kind: ForgeKind, name: &str) -> bool {
    let is_sign = |c: char| {
        if c.is_ascii() {
            c.is_ascii_alphanumeric() || "._-".contains(c)
        } else {
            c.is_alphanumeric()
        }
    };
    let is_part = |part: &str| !matches!(part, "" | "." | "..") && part.chars().all(is_sign);
    let n_parts = name.split('/').count();
    match kind {
        ForgeKind::GitHub => n_parts == 2 && name.split('/').all(is_part),
        ForgeKind::GitLab if name.bytes().all(|byte| byte.is_ascii_digit()) => {
            name.parse().is_ok_and(|id: u64| id > 0)
        }
        ForgeKind::GitLab => n_parts >= 2 && name.split('/').all(is_part),
    }
}
