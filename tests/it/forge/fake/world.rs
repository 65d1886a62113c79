//! The state of the fake, and the common parts of both APIs.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use domain::forge::{ForgeKind, ItemKind};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::faults::Faults;
use super::{Call, OWNER, Request, TOKEN};

/// The time of the beginning: 2026-01-01.
const BEGINNING: i64 = 1_767_225_600;

pub struct World {
    pub address: SocketAddr,
    pub token: String,
    pub owner: u64,
    /// Further tokens, with their accounts.
    pub accounts: BTreeMap<String, u64>,
    /// The account whose token the present request has.
    pub asking: u64,
    pub users: BTreeMap<u64, String>,
    pub repositories: BTreeMap<u64, RepositoryState>,
    pub faults: Faults,
    pub requests: Vec<Request>,
    /// The requests that are carried out late.
    pub late: Vec<(Request, Call)>,
    /// The folder of the repositories of git.
    pub git: tempfile::TempDir,
    n_ids: u64,
    n_changes: i64,
}

#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct RepositoryState {
    pub forge: ForgeKind,
    pub name: String,
    /// The names that it had before. Requests for them are redirected.
    pub former_names: Vec<String>,
    pub labels: BTreeSet<String>,
    /// The accounts that can be assigned.
    pub members: BTreeSet<u64>,
    pub is_archived: bool,
    pub may_triage: bool,
    pub may_push: bool,
    /// It refuses drafts, like private repositories of some plans.
    pub has_no_drafts: bool,
    pub protected_branches: BTreeSet<String>,
    pub items: Vec<ItemState>,
}

pub struct ItemState {
    pub id: u64,
    pub kind: ItemKind,
    pub number: u64,
    pub title: String,
    pub body: String,
    pub author: Option<u64>,
    pub labels: Vec<String>,
    pub assignees: Vec<u64>,
    pub state: State,
    pub created: i64,
    pub updated: i64,
    pub comments: Vec<CommentState>,
    pub is_locked: bool,
    pub away: Option<Away>,
    /// Fields with other values than the real ones, and omitted fields.
    pub said: Map<String, Value>,
    pub unsaid: BTreeSet<String>,
    /// The branches of a pull or merge request that has any.
    pub branches: Option<Branches>,
    /// The other issues that the forge links with it: their relation and their number.
    pub links: Vec<(&'static str, u64)>,
    /// The comments on the seventh lines of files.
    pub reviews: Vec<(String, CommentState)>,
}

/// The branches of a pull or merge request.
#[derive(Clone, Debug)]
pub struct Branches {
    pub branch: String,
    pub target: String,
    pub is_draft: bool,
    /// The number of the repository that has the branch.
    pub of: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum State {
    Open,
    Closed,
    Merged,
}

#[derive(Clone)]
pub enum Away {
    Gone(u16),
    Moved { id: u64, url: String },
}

#[derive(Clone)]
pub struct CommentState {
    pub id: u64,
    pub author: Option<u64>,
    pub body: String,
    pub created: i64,
    pub is_system: bool,
}

/// An answer before it is sent. A null body is none.
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Value,
}

impl Reply {
    pub fn new(status: u16, body: Value) -> Self {
        Self { status, headers: Vec::new(), body }
    }

    pub fn ok(body: Value) -> Self {
        Self::new(200, body)
    }

    pub fn error(status: u16, message: &str) -> Self {
        Self::new(status, json!({ "message": message }))
    }

    pub fn header(mut self, name: &str, value: &impl ToString) -> Self {
        self.headers.push((name.to_owned(), value.to_string()));
        self
    }
}

impl World {
    pub fn new(address: SocketAddr) -> Self {
        let mut world = Self {
            address,
            token: TOKEN.to_owned(),
            owner: 0,
            accounts: BTreeMap::new(),
            asking: 0,
            users: BTreeMap::new(),
            repositories: BTreeMap::new(),
            faults: Faults::default(),
            requests: Vec::new(),
            late: Vec::new(),
            git: tempfile::tempdir().unwrap(),
            n_ids: 1_000,
            n_changes: 0,
        };
        world.owner = world.user(OWNER);
        world
    }

    /// Notes whose token a request has. Returns `false` for an unknown token.
    pub fn admit(&mut self, token: Option<&str>) -> bool {
        let account = match token {
            Some(token) if token == self.token => Some(self.owner),
            Some(token) => self.accounts.get(token).copied(),
            None => None,
        };
        self.asking = account.unwrap_or_default();
        account.is_some()
    }

    pub fn next_id(&mut self) -> u64 {
        self.n_ids += 1;
        self.n_ids
    }

    /// Returns a time one second after the last change.
    pub fn tick(&mut self) -> i64 {
        self.n_changes += 1;
        BEGINNING + self.n_changes
    }

    pub fn user(&mut self, login: &str) -> u64 {
        if let Some(id) = self.find_user(login) {
            return id;
        }
        let id = self.next_id();
        self.users.insert(id, login.to_owned());
        id
    }

    pub fn find_user(&self, login: &str) -> Option<u64> {
        let is_it = |other: &str| other.eq_ignore_ascii_case(login);
        self.users.iter().find(|(_, other)| is_it(other)).map(|(id, _)| *id)
    }

    pub fn repository(&mut self, forge: ForgeKind, name: &str) -> u64 {
        if let Some(id) = self.find_repository(forge, name) {
            return id;
        }
        let id = self.next_id();
        let state = RepositoryState {
            forge,
            name: name.to_owned(),
            former_names: Vec::new(),
            labels: BTreeSet::new(),
            members: BTreeSet::from([self.owner]),
            is_archived: false,
            may_triage: true,
            may_push: true,
            has_no_drafts: false,
            protected_branches: BTreeSet::new(),
            items: Vec::new(),
        };
        self.repositories.insert(id, state);
        id
    }

    /// Returns a repository by its name or number.
    pub fn find_repository(&self, forge: ForgeKind, name: &str) -> Option<u64> {
        let is_it =
            |id: u64, other: &str| other.eq_ignore_ascii_case(name) || id.to_string() == name;
        let mut all = self.repositories.iter().filter(|(_, state)| state.forge == forge);
        all.find(|(id, state)| is_it(**id, &state.name)).map(|(id, _)| *id)
    }

    /// Returns the repository that had this name before.
    pub fn find_renamed(&self, forge: ForgeKind, name: &str) -> Option<u64> {
        let is_it = |state: &RepositoryState| {
            state.forge == forge
                && state.former_names.iter().any(|former| former.eq_ignore_ascii_case(name))
        };
        self.repositories.iter().find(|(_, state)| is_it(state)).map(|(id, _)| *id)
    }

    pub fn state(&mut self, repository: u64) -> &mut RepositoryState {
        self.repositories.get_mut(&repository).unwrap()
    }

    /// Adds an item and returns its number. GitHub has one sequence for all kinds.
    pub fn add_item(&mut self, repository: u64, kind: ItemKind, title: &str) -> u64 {
        let (id, now) = (self.next_id(), self.tick());
        let author = self.user("ann");
        let state = self.state(repository);
        let is_github = state.forge == ForgeKind::GitHub;
        let number =
            state.items.iter().filter(|item| is_github || item.kind == kind).count() as u64 + 1;
        state.items.push(ItemState {
            id,
            kind,
            number,
            title: title.to_owned(),
            body: String::new(),
            author: Some(author),
            labels: Vec::new(),
            assignees: Vec::new(),
            state: State::Open,
            created: now,
            updated: now,
            comments: Vec::new(),
            is_locked: false,
            away: None,
            said: Map::new(),
            unsaid: BTreeSet::new(),
            branches: None,
            links: Vec::new(),
            reviews: Vec::new(),
        });
        number
    }

    /// Adds a pull or merge request between branches.
    pub fn add_request(
        &mut self,
        repository: u64,
        title: &str,
        body: &str,
        branches: Branches,
    ) -> u64 {
        let kind = match self.state(repository).forge {
            ForgeKind::GitHub => ItemKind::PullRequest,
            ForgeKind::GitLab => ItemKind::MergeRequest,
        };
        let number = self.add_item(repository, kind, title);
        self.change(repository, kind, number, |item, _| {
            body.clone_into(&mut item.body);
            item.branches = Some(branches);
        });
        number
    }

    /// Changes an item, a second later than the last change.
    pub fn change<T>(
        &mut self,
        repository: u64,
        kind: ItemKind,
        number: u64,
        change: impl FnOnce(&mut ItemState, i64) -> T,
    ) -> Option<T> {
        let now = self.tick();
        let item = self.find_item(repository, kind, number)?;
        item.updated = now;
        Some(change(item, now))
    }

    pub fn find_item(
        &mut self,
        repository: u64,
        kind: ItemKind,
        number: u64,
    ) -> Option<&mut ItemState> {
        let state = self.state(repository);
        let is_github = state.forge == ForgeKind::GitHub;
        state
            .items
            .iter_mut()
            .find(|item| item.number == number && (is_github || item.kind == kind))
    }

    pub fn add_comment(
        &mut self,
        repository: u64,
        kind: ItemKind,
        number: u64,
        author: Option<u64>,
        body: &str,
        is_system: bool,
    ) -> Option<CommentState> {
        let id = self.next_id();
        self.change(repository, kind, number, |item, created| {
            let comment = CommentState { id, author, body: body.to_owned(), created, is_system };
            item.comments.push(comment.clone());
            comment
        })
    }
}

impl ItemState {
    pub fn has_label(&self, label: &str) -> bool {
        self.labels.iter().any(|other| other.to_lowercase() == label.to_lowercase())
    }

    pub fn add_label(&mut self, label: &str) {
        if !self.has_label(label) {
            self.labels.push(label.to_owned());
        }
    }

    /// Removes a label. Returns whether it was there.
    pub fn remove_label(&mut self, label: &str) -> bool {
        let n_before = self.labels.len();
        self.labels.retain(|other| other.to_lowercase() != label.to_lowercase());
        self.labels.len() != n_before
    }

    /// Returns the item's JSON with the changes of the test.
    pub fn as_said(&self, mut json: Value) -> Value {
        let fields = json.as_object_mut().unwrap();
        fields.extend(self.said.clone());
        fields.retain(|name, _| !self.unsaid.contains(name));
        json
    }
}

pub fn time(secs: i64) -> String {
    Timestamp::from_second(secs).unwrap().to_string()
}

/// Returns a page of the requested list: its elements, its number, and the number of the last page.
pub fn page<T>(request: &Request, all: Vec<T>, per_page: usize) -> (Vec<T>, usize, usize) {
    let number = |name: &str| request.query(name).and_then(|value| value.parse::<usize>().ok());
    let per_page = number("per_page").unwrap_or(per_page).clamp(1, 100);
    let page = number("page").unwrap_or(1).max(1);
    let last = all.len().div_ceil(per_page).max(1);
    (all.into_iter().skip((page - 1) * per_page).take(per_page).collect(), page, last)
}

/// Returns a `Link` header for a page.
pub fn links(world: &World, request: &Request, page: usize, last: usize) -> Option<String> {
    let url = |page: usize| {
        let others = request.query.iter().filter(|(name, _)| name != "page");
        let page = [("page".to_owned(), page.to_string())];
        let base = format!("http://{}{}", world.address, request.path);
        reqwest::Url::parse_with_params(&base, others.chain(&page)).unwrap()
    };
    let next = (page < last)
        .then(|| format!("<{}>; rel=\"next\", <{}>; rel=\"last\"", url(page + 1), url(last)));
    let previous = (page > 1)
        .then(|| format!("<{}>; rel=\"prev\", <{}>; rel=\"first\"", url(page - 1), url(1)));
    let links: Vec<String> = previous.into_iter().chain(next).collect();
    (!links.is_empty()).then(|| links.join(", "))
}
