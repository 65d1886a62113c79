//! Reads the refs of an agent's repository as text, without running git there.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use super::objects::{is_folder, names_in};
use super::rights::blocking_as;
use super::text::{id_of_ref, is_id, only_line, packed_refs, read_text, ref_of_head};
use super::{Place, Result};
use domain::workspace::{CheckedOut, Tip};

/// The longest name of a branch that is used, in bytes.
const MAX_NAME: usize = 255;
/// The files of `.git` that name commits beside `refs` and `logs`.
const HEADS: [&str; 8] = [
    "HEAD",
    "ORIG_HEAD",
    "FETCH_HEAD",
    "MERGE_HEAD",
    "MERGE_AUTOSTASH",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "REBASE_HEAD",
];

/// The refs of an agent's repository, read as text.
#[derive(Debug, Default)]
pub(super) struct Refs {
    /// The text of HEAD; `None` if there is no repository.
    pub(super) head: Option<String>,
    /// Full names of refs, with the ids that they name.
    refs: BTreeMap<String, String>,
    /// All ids that HEAD, refs and logs name.
    pub(super) named: BTreeSet<String>,
    /// The texts of the HEADs of linked work trees, and whether the folder of each is there.
    linked: Vec<(String, bool)>,
    /// The text that is kept.
    pub(super) text: String,
}

impl Refs {
    /// Returns the commit that a branch names.
    pub(super) fn branch(&self, branch: &str) -> Option<&String> {
        self.refs.get(&format!("refs/heads/{branch}"))
    }

    /// Returns the branches and HEADs, those that are checked out first.
    pub(super) fn tips(&self) -> Vec<Tip> {
        let here = self.head.iter().map(|head| (head, Some(CheckedOut::Workspace)));
        let linked = self.linked.iter();
        let linked = linked.map(|(head, is_there)| (head, is_there.then_some(CheckedOut::Linked)));
        let mut seen = BTreeSet::new();
        let mut tips: Vec<Tip> = Vec::new();
        for (head, place) in here.chain(linked) {
            let name = ref_of_head(head);
            let at = name.map_or(Some(head.trim()), |name| self.refs.get(name).map(String::as_str));
            seen.extend(name);
            if let Some(commit) = at.filter(|id| is_id(id)) {
                let branch = name.and_then(branch_in);
                tips.push(Tip { branch, commit: commit.to_owned(), place });
            }
        }
        let others = self
            .refs
            .iter()
            .filter(|(name, _)| name.starts_with("refs/heads/") && !seen.contains(name.as_str()));
        tips.extend(others.map(|(name, commit)| Tip {
            branch: branch_in(name),
            commit: commit.clone(),
            place: None,
        }));
        tips
    }

    /// Reads the text that was kept of the refs of a workspace.
    pub(super) fn from_kept(text: &str) -> Self {
        let mut found = Self::default();
        for section in text.split("\n== ").map(|part| part.strip_prefix("== ").unwrap_or(part)) {
            let Some((name, text)) = section.split_once('\n') else {
                continue;
            };
            match name {
                "HEAD" => {
                    found.head = Some(text.trim().to_owned());
                    found.note(name, Some(text.to_owned()));
                }
                "packed-refs" => found.note_packed(Some(text.to_owned())),
                _ => found.note(name, Some(text.to_owned())),
            }
        }
        found
    }

    /// Returns the full names of the refs, each with its id.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&String, &String)> {
        self.refs.iter()
    }

    pub(super) fn head_commit(&self) -> Option<&String> {
        let head = self.head.as_deref()?;
        match ref_of_head(head) {
            Some(name) => self.refs.get(name),
            None => self.named.get(head.trim()),
        }
    }
}

/// Reads HEAD, refs and logs of the repository of a workspace as text. Without a repository there
/// are none.
pub(super) async fn read_refs(place: &Place) -> Result<Refs> {
    let own = place.tree().join(".git");
    blocking_as(place.owner, move || Ok(refs_in(&own, &own))).await
}

/// Reads HEAD, refs and logs as text. `own` has those of one work tree, and `common` those that all
/// work trees of the repository share.
pub(super) fn refs_in(own: &Path, common: &Path) -> Refs {
    let mut refs = Refs::default();
    if !is_folder(own) {
        return refs;
    }
    for name in HEADS {
        let text = read_text(&own.join(name));
        if name == "HEAD" {
            refs.head.clone_from(&text);
        }
        refs.note(name, text);
    }
    refs.note_packed(read_text(&common.join("packed-refs")));
    for folder in ["refs", "logs"] {
        refs.note_below(common, Path::new(folder));
    }
    let mut worktrees = names_in(&common.join("worktrees"));
    worktrees.sort();
    for worktree in worktrees {
        let head = format!("worktrees/{worktree}/HEAD");
        let text = read_text(&common.join(&head));
        // Git notes a work tree also after its folder was removed.
        let own = common.join("worktrees").join(&worktree);
        let place = read_text(&own.join("gitdir")).map(|place| own.join(only_line(&place)));
        let is_there = place.is_some_and(|place| place.exists());
        refs.linked.extend(text.clone().map(|head| (head, is_there)));
        refs.note(&head, text);
    }
    for folder in ["rebase-merge", "rebase-apply", "sequencer"] {
        refs.note_below(own, Path::new(folder));
    }
    if own != common {
        refs.note_below(own, Path::new("logs"));
        refs.note_below(own, Path::new("refs"));
    }
    refs
}

impl Refs {
    /// Forgets ids, as if nothing named them.
    pub(super) fn forget(&mut self, ids: &BTreeSet<String>) {
        let named: BTreeSet<String> = self.named.intersection(ids).cloned().collect();
        self.named.retain(|id| !named.contains(id));
        self.refs.retain(|_, id| !named.contains(id));
        for id in &named {
            let nothing = "0".repeat(id.len());
            self.text = self.text.replace(id, &nothing);
            for head in self.head.iter_mut().chain(self.linked.iter_mut().map(|(head, _)| head)) {
                *head = head.replace(id, &nothing);
            }
        }
    }

    fn note(&mut self, name: &str, text: Option<String>) {
        let Some(text) = text else {
            return;
        };
        for word in text.split(|c: char| c.is_whitespace() || c == '^').filter(|word| is_id(word)) {
            self.named.insert(word.to_owned());
        }
        if name.starts_with("refs/")
            && let Some(id) = id_of_ref(&text)
        {
            self.refs.insert(name.to_owned(), id.to_owned());
        }
        let _ = writeln!(self.text, "== {name}\n{text}");
    }

    fn note_packed(&mut self, text: Option<String>) {
        let packed = text.iter().flat_map(|text| packed_refs(text));
        self.refs.extend(packed.map(|(name, id)| (name.to_owned(), id.to_owned())));
        self.note("packed-refs", text);
    }

    fn note_below(&mut self, own: &Path, folder: &Path) {
        let full = own.join(folder);
        if full.is_symlink() {
            return;
        }
        let mut names = names_in(&full);
        names.sort();
        for name in names {
            let path = folder.join(name);
            if own.join(&path).is_dir() {
                self.note_below(own, &path);
            } else {
                self.note(&path.to_string_lossy(), read_text(&own.join(&path)));
            }
        }
    }
}

/// Returns the branch that a ref is, unless its name is one that git would refuse: an agent can write
/// any.
fn branch_in(name: &str) -> Option<String> {
    let branch = name.strip_prefix("refs/heads/")?;
    let is_plain =
        branch.len() <= MAX_NAME && !branch.contains(|c: char| c.is_whitespace() || c.is_control());
    is_plain.then(|| branch.to_owned())
}
