//! The tests' handles of the fake's world: repositories and items. Tests change them like people
//! and read them.

use domain::forge::{ForgeKind, ItemKind};
use serde_json::Value;

use super::Shared;
use super::world::{Away, Branches, CommentState, ItemState, RepositoryState, State};

/// A repository or project.
#[derive(Clone)]
pub struct Repository {
    world: Shared,
    id: u64,
}

/// An issue, pull request or merge request.
#[derive(Clone)]
pub struct Item {
    world: Shared,
    repository: u64,
    pub kind: ItemKind,
    pub number: u64,
}

impl Repository {
    pub(super) fn new(world: Shared, id: u64) -> Self {
        Self { world, id }
    }

    pub(super) fn with_state<T>(
        &self,
        read: impl FnOnce(&std::path::Path, &RepositoryState) -> T,
    ) -> T {
        let world = self.world.lock();
        read(world.git.path(), &world.repositories[&self.id])
    }

    pub(super) fn change_state(&self, change: impl FnOnce(&mut RepositoryState)) {
        change(self.world.lock().state(self.id));
    }

    /// Refuses drafts from now on.
    pub fn forbid_drafts(&self) {
        self.change_state(|state| state.has_no_drafts = true);
    }

    /// Returns the pull or merge requests between branches, the oldest first.
    pub fn requests(&self) -> Vec<(Item, Branches)> {
        self.with_state(|_, state| {
            let of = |item: &ItemState| {
                let (world, kind) = (self.world.clone(), item.kind);
                let handle = Item { world, repository: self.id, kind, number: item.number };
                Some((handle, item.branches.clone()?))
            };
            state.items.iter().filter_map(of).collect()
        })
    }

    pub fn id(&self) -> u64 {
        self.id
    }

    pub fn issue(&self, title: &str) -> Item {
        self.add(ItemKind::Issue, title)
    }

    /// Adds a pull request at GitHub, or a merge request at GitLab.
    pub fn pull(&self, title: &str) -> Item {
        let forge = self.world.lock().state(self.id).forge;
        self.add(
            if forge == ForgeKind::GitHub { ItemKind::PullRequest } else { ItemKind::MergeRequest },
            title,
        )
    }

    /// Opens a pull or merge request between branches. `of` is the fork that has the first one.
    pub fn open_request(&self, title: &str, branch: &str, target: &str, of: Option<u64>) -> Item {
        let branches = Branches {
            branch: branch.to_owned(),
            target: target.to_owned(),
            is_draft: false,
            of: of.unwrap_or(self.id),
        };
        let mut world = self.world.lock();
        let number = world.add_request(self.id, title, "", branches);
        let kind = match world.state(self.id).forge {
            ForgeKind::GitHub => ItemKind::PullRequest,
            ForgeKind::GitLab => ItemKind::MergeRequest,
        };
        drop(world);
        Item { world: self.world.clone(), repository: self.id, kind, number }
    }

    fn add(&self, kind: ItemKind, title: &str) -> Item {
        let number = self.world.lock().add_item(self.id, kind, title);
        Item { world: self.world.clone(), repository: self.id, kind, number }
    }

    /// Returns the labels that exist.
    pub fn labels(&self) -> Vec<String> {
        self.world.lock().state(self.id).labels.iter().cloned().collect()
    }

    pub fn create_label(&self, name: &str) {
        self.world.lock().state(self.id).labels.insert(name.to_owned());
    }

    pub fn add_member(&self, login: &str) {
        let mut world = self.world.lock();
        let user = world.user(login);
        world.state(self.id).members.insert(user);
    }

    pub fn archive(&self) {
        self.world.lock().state(self.id).is_archived = true;
    }

    /// Leaves the token's owner only the right to read from now on.
    pub fn forbid_triage(&self) {
        self.world.lock().state(self.id).may_triage = false;
    }

    /// Renames or transfers it. Requests for its old name are redirected.
    pub fn rename(&self, name: &str) {
        let mut world = self.world.lock();
        let state = world.state(self.id);
        let former = std::mem::replace(&mut state.name, name.to_owned());
        state.former_names.push(former);
    }

    /// Removes it as if it was deleted, or hidden from the token's owner.
    pub fn remove(&self) {
        self.world.lock().repositories.remove(&self.id);
    }
}

impl Item {
    fn change(&self, change: impl FnOnce(&mut ItemState)) -> &Self {
        self.world
            .lock()
            .change(self.repository, self.kind, self.number, |item, _| change(item))
            .unwrap();
        self
    }

    fn read<T>(&self, read: impl FnOnce(&ItemState) -> T) -> T {
        read(self.world.lock().find_item(self.repository, self.kind, self.number).unwrap())
    }

    pub fn label(&self, label: &str) -> &Self {
        self.change(|item| item.add_label(label))
    }

    pub fn unlabel(&self, label: &str) -> &Self {
        self.change(|item| {
            item.remove_label(label);
        })
    }

    pub fn assign(&self, login: &str) -> &Self {
        let user = self.world.lock().user(login);
        self.change(|item| item.assignees.push(user))
    }

    pub fn unassign(&self, login: &str) -> &Self {
        let user = self.world.lock().user(login);
        self.change(|item| item.assignees.retain(|other| *other != user))
    }

    pub fn set_body(&self, body: &str) -> &Self {
        self.change(|item| body.clone_into(&mut item.body))
    }

    /// Sets the author. `None` is a deleted account.
    pub fn set_author(&self, login: Option<&str>) -> &Self {
        let author = login.map(|login| self.world.lock().user(login));
        self.change(|item| item.author = author)
    }

    pub fn comment(&self, login: &str, body: &str) -> u64 {
        let mut world = self.world.lock();
        let author = world.user(login);
        world
            .add_comment(self.repository, self.kind, self.number, Some(author), body, false)
            .unwrap()
            .id
    }

    /// Comments on the seventh line of a file of a pull request.
    pub fn review(&self, login: &str, path: &str, body: &str) {
        let mut world = self.world.lock();
        let (author, id) = (world.user(login), world.next_id());
        let (path, body) = (path.to_owned(), body.to_owned());
        world.change(self.repository, self.kind, self.number, |item, created| {
            let author = Some(author);
            let comment = CommentState { id, author, body, created, is_system: false };
            item.reviews.push((path, comment));
        });
    }

    /// Locks the conversation.
    pub fn lock(&self) -> &Self {
        self.change(|item| item.is_locked = true)
    }

    pub fn close(&self) -> &Self {
        self.change(|item| item.state = State::Closed)
    }

    pub fn merge(&self) -> &Self {
        self.change(|item| item.state = State::Merged)
    }

    pub fn reopen(&self) -> &Self {
        self.change(|item| item.state = State::Open)
    }

    /// Deletes it. Requests for it get this status from now on: 404 or 410.
    pub fn delete(&self, status: u16) -> &Self {
        self.change(|item| item.away = Some(Away::Gone(status)))
    }

    /// Moves it to another repository, where it is a new item.
    pub fn transfer(&self, to: &Repository) -> Item {
        let title = self.read(|item| item.title.clone());
        let moved = to.add(self.kind, &title);
        let address = self.world.lock().address;
        let id = moved.read(|item| item.id);
        let url = format!("http://{address}/repositories/{}/issues/{}", to.id, moved.number);
        self.change(|item| {
            item.state = State::Closed;
            item.away = Some(Away::Moved { id, url });
        });
        moved
    }

    /// Links it with another issue: it `is_blocked_by` it, or (at GitLab) `relates_to` it.
    pub fn link(&self, relation: &'static str, other: &Self) -> &Self {
        let number = other.number;
        self.change(|item| item.links.push((relation, number)))
    }

    /// Makes the API return this value of a field from now on.
    pub fn say(&self, field: &str, value: Value) -> &Self {
        self.change(|item| {
            item.said.insert(field.to_owned(), value);
        })
    }

    /// Makes the API omit a field from now on.
    pub fn omit(&self, field: &str) -> &Self {
        self.change(|item| {
            item.unsaid.insert(field.to_owned());
        })
    }

    pub fn labels(&self) -> Vec<String> {
        self.read(|item| item.labels.clone())
    }

    pub fn assignees(&self) -> Vec<String> {
        let ids = self.read(|item| item.assignees.clone());
        let world = self.world.lock();
        ids.iter().map(|id| world.users[id].clone()).collect()
    }

    /// Returns the texts of people's comments, the oldest first.
    pub fn comments(&self) -> Vec<String> {
        self.read(|item| {
            item.comments.iter().filter(|one| !one.is_system).map(|one| one.body.clone()).collect()
        })
    }

    pub fn title(&self) -> String {
        self.read(|item| item.title.clone())
    }

    pub fn body(&self) -> String {
        self.read(|item| item.body.clone())
    }

    pub fn is_open(&self) -> bool {
        self.read(|item| item.state == State::Open)
    }
}
