//! A host of `github` or `gitlab`: its address, the account of the bot, and the repositories that
//! are watched there.

use std::collections::BTreeSet;
use std::path::PathBuf;

use reqwest::Url;

use crate::config::reader::{Field, Name, Section};
use crate::config::report::Problem;
use crate::domain::forge::labels::is_same;
use crate::domain::forge::{ForgeKind, LabelNames};
use crate::domain::printable::is_unprintable;
use crate::domain::{AgentId, ProjectId, Secret};

/// A forge at one address, with one token. Several hosts may have the same address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForgeHost {
    pub kind: ForgeKind,
    /// The URL of the API at GitHub, or of the whole site at GitLab; without a slash at the end.
    pub base_url: String,
    /// The URL without its scheme. It identifies the host.
    pub host: String,
    pub token: ForgeToken,
    /// The login of the account that people assign.
    pub bot_name: String,
    pub labels: LabelNames,
    pub repositories: Vec<WatchedRepository>,
}

/// The place of a host's token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ForgeToken {
    Given(Secret),
    /// The token is read from the file when it is needed.
    File(PathBuf),
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
}

/// Returns the key in the file, the default of `base_url`, the key of the repositories, and the
/// form of a repository's name.
const fn words(kind: ForgeKind) -> (&'static str, &'static str, &'static str, &'static str) {
    match kind {
        ForgeKind::GitHub => ("github", "https://api.github.com", "repositories", "`owner/name`"),
        ForgeKind::GitLab => (
            "gitlab",
            "https://gitlab.com",
            "projects",
            "the path of a project, such as `group/name`, or its number",
        ),
    }
}

/// Returns the key of the hosts of this kind.
pub const fn file_key(kind: ForgeKind) -> &'static str {
    words(kind).0
}

/// Returns the key of a host's repositories.
pub const fn repositories_key(kind: ForgeKind) -> &'static str {
    words(kind).2
}

/// Returns the path of the repositories in the file: `github.repositories`.
pub fn repositories_path(kind: ForgeKind) -> String {
    format!("{}.{}", file_key(kind), repositories_key(kind))
}

/// Returns the address of a host without `base_url`.
pub const fn default_base_url(kind: ForgeKind) -> &'static str {
    words(kind).1
}

/// The keys of the labels, in the order of [`LabelNames::all`].
pub const LABEL_KEYS: [&str; 7] = [
    "bot_label",
    "processing_label",
    "done_label",
    "paused_label",
    "stopped_label",
    "failed_label",
    "blocked_label",
];

/// The repositories of all hosts so far.
type Watched = BTreeSet<(ForgeKind, String, String)>;

pub fn read_all(top: &mut Section<'_, '_>) -> Vec<ForgeHost> {
    let mut watched = Watched::new();
    let mut hosts = Vec::new();
    for kind in [ForgeKind::GitHub, ForgeKind::GitLab] {
        for section in top.sections(file_key(kind)) {
            hosts.extend(read(kind, section, &mut watched));
        }
    }
    hosts
}

fn read(kind: ForgeKind, mut section: Section<'_, '_>, watched: &mut Watched) -> Option<ForgeHost> {
    if !section.is_mapping() {
        return None;
    }
    let base_url = match section.field("base_url") {
        Some(field) => read_base_url(kind, section.path(), &field),
        None => Some(default_base_url(kind).to_owned()),
    };
    let token = read_token(&mut section);
    let bot_name = section.required("bot_name").and_then(|field| read_login(&field));
    let labels = read_labels(kind, &mut section);
    let host =
        base_url.as_deref().and_then(|url| url.split_once("://")).map(|(_, host)| host.to_owned());
    let repositories = section.named_sections(repositories_key(kind)).into_iter();
    // The repositories are read for their own mistakes even if the address of the host is wrong.
    let place = host.as_deref();
    let repositories: Vec<_> = repositories
        .map(|(name, section)| read_repository(kind, place, &name, section, watched))
        .collect();
    Some(ForgeHost {
        kind,
        host: host?,
        base_url: base_url?,
        token: token?,
        bot_name: bot_name?,
        labels,
        repositories: repositories.into_iter().flatten().collect(),
    })
}

/// The valid logins, as messages name them.
pub(super) const LOGIN: &str = "the login of an account, without `@`";

pub(super) fn read_login(field: &Field<'_, '_>) -> Option<String> {
    let is_login =
        |text: &str| !text.is_empty() && !text.starts_with('@') && !text.contains(is_space);
    field.parsed(LOGIN, |text| is_login(text).then(|| text.to_owned()))
}

fn read_base_url(kind: ForgeKind, section: &str, field: &Field<'_, '_>) -> Option<String> {
    let what = "the URL of a host such as `https://code.example`, also with a path; nothing behind that, and no user";
    let url = field.parsed(what, |text| {
        let url = Url::parse(text).ok()?;
        let is_plain = url.query().is_none() && url.fragment().is_none();
        let has_user = !url.username().is_empty() || url.password().is_some();
        let is_http = matches!(url.scheme(), "http" | "https") && url.has_host();
        (is_http && is_plain && !has_user).then_some(url)
    })?;
    let text = url.as_str().trim_end_matches('/').to_owned();
    let is_page = matches!(url.host_str(), Some("github.com" | "www.github.com"));
    let help = match kind {
        ForgeKind::GitHub if is_page => {
            "leave it out for github.com: the API is at https://api.github.com"
        }
        // The client adds the `/api/v4`.
        ForgeKind::GitLab => {
            let root = text.strip_suffix("/api/v4").unwrap_or(&text);
            return Some(root.trim_end_matches('/').to_owned());
        }
        ForgeKind::GitHub => return Some(text),
    };
    let message = format!("`{section}.base_url` is not the one that is meant");
    field.note(Problem::new(message, field.span()).label("here").help(help));
    None
}

fn read_token(section: &mut Section<'_, '_>) -> Option<ForgeToken> {
    let (given, file) = (section.optional("token"), section.optional("token_file"));
    match (given, file) {
        (Some(given), None) => {
            given.note_secret_variables();
            let is_token =
                |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
            // A variable that was filled from a file often ends with a line feed.
            let token = given.parsed("letters, digits and signs without spaces", |text| {
                Some(text.trim()).filter(|text| is_token(text)).map(Secret::new)
            });
            token.map(ForgeToken::Given)
        }
        (None, Some(file)) => file.path().map(ForgeToken::File),
        (None, None) => {
            let problem =
                Problem::new(format!("`{}` has no token", section.path()), section.span());
            let problem = problem.label("expected `token` or `token_file` in here");
            section.reader().note(
                problem.help("better from a variable, `token: ${GITHUB_TOKEN}`, than written here"),
            );
            None
        }
        (Some(given), Some(_)) => {
            let message = format!("`{}` has both `token` and `token_file`", section.path());
            given.note(Problem::new(message, given.span()).label("one of them too many"));
            None
        }
    }
}

fn read_labels(kind: ForgeKind, section: &mut Section<'_, '_>) -> LabelNames {
    let defaults = LabelNames::default();
    let path = section.path().to_owned();
    let what = match kind {
        ForgeKind::GitHub => {
            "the name of a label, of at most 50 characters, without line breaks and without spaces around it"
        }
        ForgeKind::GitLab => {
            "the name of a label, of at most 255 characters, without commas, line breaks, and spaces around it"
        }
    };
    let most = if kind == ForgeKind::GitHub { 50 } else { 255 };
    let is_label = |text: &str| {
        let is_clean = !text.contains(is_unprintable) && text.trim() == text && !text.is_empty();
        let is_clean = is_clean && text.chars().count() <= most;
        is_clean && (kind == ForgeKind::GitHub || !text.contains(','))
    };
    let mut read: Vec<(String, Option<Field<'_, '_>>)> = Vec::new();
    for (key, default) in LABEL_KEYS.into_iter().zip(defaults.all()) {
        let field = section.field(key);
        let label = field
            .as_ref()
            .map(|field| field.parsed(what, |text| is_label(text).then(|| text.to_owned())));
        read.push((label.flatten().unwrap_or_else(|| default.to_owned()), field));
    }
    for (i, (label, field)) in read.iter().enumerate() {
        let twin = read[..i].iter().position(|(other, _)| is_same(other, label));
        // The problem is noted at the later one of the two labels that the file contains, because a
        // default can't be the mistake.
        let place = field.as_ref().or_else(|| read[twin?].1.as_ref());
        if let (Some(twin), Some(place)) = (twin, place) {
            let message = format!(
                "`{path}` has the same label for `{}` and `{}`",
                LABEL_KEYS[twin], LABEL_KEYS[i]
            );
            place.note(
                Problem::new(message, place.span())
                    .label("here")
                    .help("each says something else of an item"),
            );
        }
    }
    let [bot, processing, done, paused, stopped, failed, blocked] =
        std::array::from_fn(|i| std::mem::take(&mut read[i].0));
    LabelNames { bot, processing, done, paused, stopped, failed, blocked }
}

fn read_repository(
    kind: ForgeKind,
    host: Option<&str>,
    name: &Name,
    mut section: Section<'_, '_>,
    watched: &mut Watched,
) -> Option<WatchedRepository> {
    let project = section.required("project_id").and_then(|field| field.id());
    let agents = read_agents(&mut section);
    let problem = |message: String| {
        section.reader().note(Problem::new(message, name.span.clone()).label("here"));
        None
    };
    if !is_repository(kind, &name.text) {
        return problem(format!("`{}` is not valid: expected {}", section.path(), words(kind).3));
    }
    let is_new =
        host.is_none_or(|host| watched.insert((kind, host.to_owned(), name.text.to_lowercase())));
    if !is_new {
        return problem(format!(
            "`{}` is watched twice: name it once, with all its agents in `agents`",
            section.path()
        ));
    }
    Some(WatchedRepository { name: name.text.clone(), project: project?, agents: agents? })
}

/// Returns the agents of a repository: `agents`, or `agent` if there is only one.
fn read_agents(section: &mut Section<'_, '_>) -> Option<Vec<AgentId>> {
    let path = section.path().to_owned();
    let list = match (section.optional("agent"), section.optional("agents")) {
        (Some(agent), None) => return agent.id().map(|agent| vec![agent]),
        (None, Some(list)) => list,
        (None, None) => {
            if section.is_mapping() {
                let problem = Problem::new(format!("`{path}` has no agent"), section.span());
                section.reader().note(problem.label("expected `agent` or `agents` in here"));
            }
            return None;
        }
        (Some(agent), Some(_)) => {
            let message = format!("`{path}` has both `agent` and `agents`");
            let help = "write all agents of the repository into `agents`, and remove `agent`";
            let problem = Problem::new(message, agent.span()).label("one of them too many");
            agent.note(problem.help(help));
            return None;
        }
    };
    let span = list.span();
    let is_list = list.is_list();
    let fields = list.list();
    if fields.is_empty() && is_list {
        let problem = Problem::new(format!("`{path}.agents` is empty"), span);
        let help = "name at least one agent of the project, such as `agents: [agt_developer]`";
        section.reader().note(problem.label("expected an agent in here").help(help));
        return None;
    }
    let mut agents: Vec<AgentId> = Vec::with_capacity(fields.len());
    let mut is_good = !fields.is_empty();
    for field in fields {
        match field.id::<AgentId>() {
            Some(agent) if agents.contains(&agent) => {
                let message = format!("`{path}.agents` names `{agent}` twice");
                let help = "an agent works on one item at a time: name each agent once";
                field.note(Problem::new(message, field.span()).label("again here").help(help));
                is_good = false;
            }
            Some(agent) => agents.push(agent),
            None => is_good = false,
        }
    }
    is_good.then_some(agents)
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

fn is_space(c: char) -> bool {
    c.is_whitespace() || is_unprintable(c)
}
