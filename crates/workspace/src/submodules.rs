//! Submodules of new workspaces (`workspace.submodules`).
//!
//! The commits of submodules come into the keep repository before a workspace is made. The
//! workspace borrows them, like its own. So no command of git for submodules is used, and none of
//! the repository of an agent.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::inside::Inside;
use super::keep_repository::{FETCH, SOURCE};
use super::lending::alternates;
use super::nested::path_in;
use super::objects::{is_folder, open, short_hash};
use super::repository::Repository;
use super::rights::{Owner, blocking_as, run_as};
use super::source::{Source, entries};
use super::{CheckoutError, Place, Remotes, Result};
use domain::workspace::{Cone, Remote, SubmoduleSource, check_address, is_name, resolve_address};
use machine::locks::lock;

/// The refs that follow the repositories of submodules.
const SUBMODULES: &str = "refs/agent-coordinator/submodule";
/// The most submodules of a workspace, with those in them.
const MAX_SUBMODULES: usize = 200;
/// The deepest submodule in submodules.
const MAX_DEPTH: usize = 10;

/// A submodule of a commit.
#[derive(Debug, Clone)]
struct Submodule {
    name: String,
    path: PathBuf,
    /// The address as the commit has it.
    address: String,
    commit: String,
}

/// The repository of a project, from which submodules are found.
pub(super) struct Origin<'a> {
    /// The address that it was cloned from, or that it has at a forge.
    upstream: Option<String>,
    /// The repository of a person on this machine.
    source: Option<&'a Source>,
    /// The repository at a forge, with the token for its host.
    remote: Option<&'a Remote>,
    /// The user who gets the files, if that is another one than the daemon's.
    reader: Option<Owner>,
    /// A branch of the person's repository has the commit whose submodules are wanted. An agent did
    /// not choose them.
    is_of_person: bool,
}

/// The treatment of a submodule that cannot be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unknown {
    Refuse,
    LeaveEmpty,
}

/// The submodules that a workspace gets, which no agent has used yet.
struct NewSubmodules<'a> {
    /// The commit of the workspace.
    commit: &'a str,
    cone: &'a Cone,
    /// The address that the source was cloned from. Others are relative to it.
    upstream: Option<&'a str>,
    unknown: Unknown,
    /// The top of the workspace.
    tree: &'a Path,
    owner: Option<Owner>,
}

/// The folders of one submodule, relative to the top of the workspace.
struct SubmoduleFolders<'a> {
    path: &'a Path,
    /// Its repository.
    modules: &'a Path,
    /// The repository around it.
    own: &'a Path,
}

/// A repository whose submodules are to be fetched.
struct Around {
    commit: String,
    /// Its address, or its path.
    address: String,
    /// Its folder with the repositories of submodules that a person has on this machine.
    modules: Option<PathBuf>,
    depth: usize,
}

impl<'a> Origin<'a> {
    pub(super) const fn of_source(
        source: &'a Source,
        upstream: Option<String>,
        reader: Option<Owner>,
        is_of_person: bool,
    ) -> Self {
        Self { upstream, source: Some(source), remote: None, reader, is_of_person }
    }

    pub(super) fn of_remote(remote: &'a Remote) -> Self {
        Self {
            upstream: Some(remote.url.clone()),
            source: None,
            remote: Some(remote),
            reader: None,
            is_of_person: false,
        }
    }
}

impl Remotes {
    /// Brings the submodules of a commit into the keep repository, with those in them.
    ///
    /// # Errors
    /// `Submodule`, with the reason.
    pub(super) async fn fetch_submodules(
        &self,
        place: &Place,
        commit: &str,
        origin: &Origin<'_>,
    ) -> Result<()> {
        let top = origin.source.map(|source| source.top.as_path());
        let source = origin.source.filter(|source| !source.is_bare);
        let path = || top.map(|top| top.display().to_string()).unwrap_or_default();
        let mut around = vec![Around {
            commit: commit.to_owned(),
            address: origin.upstream.clone().unwrap_or_else(path),
            modules: source.map(|source| source.common.join("modules")),
            depth: 0,
        }];
        let mut n = 0;
        while let Some(outer) = around.pop() {
            for submodule in self.submodules_of(place, &outer.commit).await? {
                n += 1;
                let named = |error| name_submodule(&submodule.name, error);
                if n > MAX_SUBMODULES || outer.depth >= MAX_DEPTH {
                    return Err(named(CheckoutError::Refused(format!(
                        "a workspace has at most {MAX_SUBMODULES} submodules, {MAX_DEPTH} deep"
                    ))));
                }
                let modules = outer.modules.as_ref().map(|folder| folder.join(&submodule.name));
                let modules = modules.filter(|folder| is_folder(folder));
                let address = resolve_address(&submodule.address, &outer.address);
                if !self.has_history(place, &submodule.commit).await? {
                    let address = address.clone();
                    let fetched = self.fetch_submodule(
                        place,
                        &submodule,
                        modules.as_deref(),
                        address,
                        origin,
                    );
                    fetched.await.map_err(named)?;
                }
                around.push(Around {
                    commit: submodule.commit.clone(),
                    address: address.unwrap_or_default(),
                    modules: modules.map(|folder| folder.join("modules")),
                    depth: outer.depth + 1,
                });
            }
        }
        Ok(())
    }

    /// Fetches the commit of one submodule: from the repository that a person has of it, or else
    /// from its address.
    async fn fetch_submodule(
        &self,
        place: &Place,
        submodule: &Submodule,
        modules: Option<&Path>,
        address: Result<String, String>,
        origin: &Origin<'_>,
    ) -> Result<()> {
        if let Some((modules, source)) = modules.zip(origin.source)
            && let Some(modules) = folder_in(modules, source)
            && (origin.is_of_person || may_read(&modules, origin.reader)?)
        {
            // One that a person has half is no fault.
            let _ = self.bring_submodule(place, submodule, &modules, source.owner).await;
            if self.has_history(place, &submodule.commit).await? {
                return Ok(());
            }
        }
        let refused = CheckoutError::Refused;
        let address = address.map_err(refused)?;
        let found = check_address(&address, origin.upstream.as_deref(), origin.source.is_some());
        let shown = match found.map_err(refused)? {
            SubmoduleSource::Folder(folder) => {
                let (folder, owner) = check_folder(&folder, &self.places.root, origin)?;
                self.bring_submodule(place, submodule, &folder, owner).await?;
                folder.display().to_string()
            }
            SubmoduleSource::Url(url) => {
                self.fetch_submodule_from(place, submodule, &url, origin.remote).await?;
                url
            }
        };
        if self.has_history(place, &submodule.commit).await? {
            return Ok(());
        }
        Err(CheckoutError::Refused(format!(
            "`{shown}` does not have its commit {}",
            submodule.commit
        )))
    }

    /// Brings the commit of a submodule from a repository on this machine into the keep repository,
    /// as the owner of that repository. Nothing else of it comes along.
    async fn bring_submodule(
        &self,
        place: &Place,
        submodule: &Submodule,
        folder: &Path,
        owner: Option<Owner>,
    ) -> Result<()> {
        let source = Source::of_folder(folder).await?;
        if source.owner != owner {
            let shown = folder.display();
            let reason = format!("`{shown}` has another owner than a moment ago");
            return Err(CheckoutError::Refused(reason));
        }
        let exists = ["cat-file", "-e", &format!("{}^{{commit}}", submodule.commit)];
        if source.git(&self.git, exists).end().await?.code != Some(0) {
            return Ok(());
        }
        let wanted = BTreeSet::from([submodule.commit.clone()]);
        self.git.bring(&source, place, &wanted, &BTreeSet::new()).await?;
        let pin = format!("{}/commits/{}", name_of(folder.as_os_str()), submodule.commit);
        self.git.on(&place.keep(), ["update-ref", &pin, &submodule.commit]).run().await?;
        Ok(())
    }

    /// Fetches the branches of a submodule from its address, and its commit if no branch has it.
    async fn fetch_submodule_from(
        &self,
        place: &Place,
        submodule: &Submodule,
        url: &str,
        remote: Option<&Remote>,
    ) -> Result<()> {
        let below = name_of(OsStr::new(url));
        let heads = format!("+refs/heads/*:{below}/heads/*");
        let exact = format!("+{}:{below}/commits/{}", submodule.commit, submodule.commit);
        // Not every server gives a commit by its id.
        for (specs, must_succeed) in [(heads, true), (exact, false)] {
            let arguments = FETCH.into_iter().chain(["--force", "--end-of-options", url, &specs]);
            let call = self.git.on(&place.keep(), arguments).long();
            let call = match remote {
                Some(remote) => call.with_remote(&Remote { url: url.to_owned(), ..remote.clone() }),
                None => call.over_network(url),
            };
            let ended = call.run().await;
            if must_succeed {
                ended?;
            }
            if self.has_history(place, &submodule.commit).await? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Makes the submodules of a new workspace, which no agent has used yet. The keep repository
    /// has their commits, and lends them to `owner`. `tree` is the top of the workspace, which is
    /// at `commit`.
    pub(super) async fn add_submodules(
        &self,
        place: &Place,
        commit: &str,
        cone: &Cone,
        upstream: Option<&str>,
        tree: &Path,
        owner: Option<Owner>,
    ) -> Result<()> {
        let unknown = Unknown::Refuse;
        let new = NewSubmodules { commit, cone, upstream, unknown, tree, owner };
        self.make_submodules(place, &new).await
    }

    async fn make_submodules(&self, place: &Place, new: &NewSubmodules<'_>) -> Result<()> {
        let NewSubmodules { commit: top, cone, upstream, unknown, .. } = *new;
        let address = upstream.map(str::to_owned);
        let mut around = vec![(top.to_owned(), PathBuf::new(), PathBuf::from(".git"), address)];
        while let Some((commit, path, own, address)) = around.pop() {
            for submodule in self.submodules_of(place, &commit).await? {
                let named = |error| name_submodule(&submodule.name, error);
                if !self.has_history(place, &submodule.commit).await? {
                    if unknown == Unknown::LeaveEmpty {
                        continue;
                    }
                    let failures = lock(&self.submodule_failures);
                    let why = failures.get(top).map(|why| format!(": {why}")).unwrap_or_default();
                    let what = format!("its commit {} was not fetched{why}", submodule.commit);
                    return Err(named(CheckoutError::Refused(what)));
                }
                let path = path.join(&submodule.path);
                if !cone.is_all() && !cone.contains(path.as_os_str().as_bytes()) {
                    continue;
                }
                let modules = own.join("modules").join(&submodule.name);
                let of = address.as_deref().unwrap_or_default();
                let address = resolve_address(&submodule.address, of).ok();
                let folders = SubmoduleFolders { path: &path, modules: &modules, own: &own };
                let made =
                    self.make_submodule(place, &submodule, &folders, address.as_deref(), new);
                match made.await {
                    Err(CheckoutError::Refused(_)) if unknown == Unknown::LeaveEmpty => continue,
                    made => made.map_err(named)?,
                }
                around.push((submodule.commit.clone(), path, modules, address));
            }
        }
        Ok(())
    }

    /// Returns the commits of the submodules of a commit, with those in them, as far as they come
    /// from a repository that was fetched for submodules, or from this workspace. An agent can name
    /// any commit, also one of another agent that is not for it.
    pub(super) async fn commits_of_submodules(
        &self,
        place: &Place,
        commit: &str,
    ) -> Result<BTreeSet<String>> {
        let mut seen = BTreeSet::new();
        let mut found = BTreeSet::new();
        let mut around = vec![commit.to_owned()];
        while let Some(commit) = around.pop() {
            for Submodule { commit, .. } in self.submodules_of(place, &commit).await? {
                if seen.len() == MAX_SUBMODULES || !seen.insert(commit.clone()) {
                    continue;
                }
                if self.is_of_submodules(place, &commit).await? {
                    found.insert(commit.clone());
                    around.push(commit);
                }
            }
        }
        Ok(found)
    }

    /// Returns whether a branch of the source has a commit.
    pub(super) async fn is_of_source(&self, place: &Place, commit: &str) -> Result<bool> {
        let followed = format!("--glob={SOURCE}/*");
        let list = ["rev-list", "--max-count=1", commit, "--not", &followed];
        let ended = self.git.on(&place.keep(), list).long().end().await?;
        Ok(ended.code == Some(0) && ended.stdout.is_empty())
    }

    async fn is_of_submodules(&self, place: &Place, commit: &str) -> Result<bool> {
        let name = place.folder.file_name().unwrap_or_default().to_string_lossy();
        let followed = format!("--glob={SUBMODULES}/*");
        let own = format!("--glob=refs/agent-coordinator/kept/{name}/*");
        let list = ["rev-list", "--max-count=1", commit, "--not", &followed, &own];
        let ended = self.git.on(&place.keep(), list).long().end().await?;
        Ok(ended.code == Some(0) && ended.stdout.is_empty())
    }

    /// Makes the submodules of a fresh clone whose commits the keep repository has. The folders of
    /// the others are empty, as in work without submodules.
    pub(super) async fn add_known_submodules(
        &self,
        place: &Place,
        commit: &str,
        cone: &Cone,
        tree: &Path,
    ) -> Result<()> {
        let unknown = Unknown::LeaveEmpty;
        let owner = place.owner;
        let new = NewSubmodules { commit, cone, upstream: None, unknown, tree, owner };
        self.make_submodules(place, &new).await
    }

    /// Makes one submodule, which comes from `address`, in its folders.
    async fn make_submodule(
        &self,
        place: &Place,
        submodule: &Submodule,
        folders: &SubmoduleFolders<'_>,
        address: Option<&str>,
        new: &NewSubmodules<'_>,
    ) -> Result<()> {
        let SubmoduleFolders { path, modules, own } = *folders;
        let NewSubmodules { tree, owner, .. } = *new;
        let Submodule { name, commit, .. } = submodule;
        let is_in_other = |folder: &Path| tree.join(folder).join("HEAD").exists();
        let mut folders = modules.ancestors().take_while(|folder| *folder != own);
        if folders.any(is_in_other) {
            return Err(CheckoutError::Refused(
                "its name is the same as, or below, that of another submodule".to_owned(),
            ));
        }
        self.git.check_commit(place, commit).await?;
        let repository = tree.join(modules);
        let init = ["init", "--quiet", "--bare", "--template="].map(OsStr::new);
        let init = self.git.call(init.into_iter().chain([repository.as_os_str()]));
        init.run_as(owner).run().await?;
        // One step less than from the folder `.git` of a workspace, because that has none.
        let up = "../".repeat(modules.components().count() - 1);
        let borrowed = format!("{up}{}", alternates(owner));
        let to_tree = "../".repeat(modules.components().count());
        let to_path = "../".repeat(path.components().count());
        let named = format!("gitdir: {to_path}{}\n", modules.display());
        blocking_as(owner, {
            let top = tree.to_owned();
            let modules = modules.to_owned();
            let path = path.to_owned();
            move || {
                let inside = Inside::open(&top)?;
                let alternates = modules.join("objects/info/alternates");
                inside.write(&alternates, borrowed.as_bytes(), 0o644)?;
                inside.write(&path.join(".git"), named.as_bytes(), 0o644)
            }
        })
        .await?;
        let mut settings = vec![
            (repository.clone(), "core.bare".to_owned(), "false".to_owned()),
            (
                repository.clone(),
                "core.worktree".to_owned(),
                format!("{to_tree}{}", path.display()),
            ),
            (repository.clone(), "push.default".to_owned(), "nothing".to_owned()),
            (tree.join(own), format!("submodule.{name}.active"), "true".to_owned()),
        ];
        if let Some(address) = address {
            let url = super::source::without_user(address);
            settings.push((repository.clone(), "remote.origin.url".to_owned(), url.clone()));
            settings.push((tree.join(own), format!("submodule.{name}.url"), url));
        }
        let on = |repository: &Path, arguments: &[&str]| {
            self.git.on(repository, arguments.iter().copied()).run_as(owner)
        };
        for (repository, name, value) in settings {
            on(&repository, &["config", &name, &value]).run().await?;
        }
        for key in ["user.name", "user.email"] {
            let value = on(&tree.join(".git"), &["config", "--get", key]).text().await?;
            on(&repository, &["config", key, &value]).run().await?;
        }
        on(&repository, &["update-ref", "--no-deref", "HEAD", commit]).run().await?;
        let read = ["-c", "checkout.workers=0", "read-tree", "--reset", "-u", "HEAD"];
        let read = self.git.on_tree(&repository, &tree.join(path), read);
        read.run_as(owner).long().run().await?;
        Ok(())
    }

    /// Returns the submodules of a commit that its file `.gitmodules` names.
    async fn submodules_of(&self, place: &Place, commit: &str) -> Result<Vec<Submodule>> {
        let file = format!("--blob={commit}:.gitmodules");
        let listed = self.git.on(&place.keep(), ["config", &file, "--list", "-z"]).end().await?;
        if listed.code != Some(0) {
            return Ok(Vec::new());
        }
        let mut named: BTreeMap<String, [Option<String>; 2]> = BTreeMap::new();
        let text = String::from_utf8_lossy(&listed.stdout).into_owned();
        for (key, value) in text.split('\0').filter_map(|entry| entry.split_once('\n')) {
            let Some(key) = key.strip_prefix("submodule.") else {
                continue;
            };
            if let Some((name, key)) = key.rsplit_once('.') {
                let [path, address] = named.entry(name.to_owned()).or_default();
                match key {
                    "path" => *path = Some(value.to_owned()),
                    "url" => *address = Some(value.to_owned()),
                    _ => {}
                }
            }
        }
        let list = ["ls-tree", "-r", "-z", "--full-tree", commit];
        let listed = self.git.on(&place.keep(), list).long().run().await?;
        let mut found = Vec::new();
        for entry in entries(&listed).map(|entry| entry.as_os_str().as_bytes()) {
            let Some(id) = entry.strip_prefix(b"160000 commit ") else {
                continue;
            };
            let Some(path) = path_in(entry) else {
                continue;
            };
            let is_it = |(_, [other, _]): &(&String, &[Option<String>; 2])| {
                other.as_deref().map(Path::new) == Some(&path)
            };
            // Git knows nothing of others, either.
            let Some((name, [_, Some(address)])) = named.iter().find(is_it) else {
                continue;
            };
            if !is_name(name) {
                let refused =
                    CheckoutError::Refused("it has a name that leads elsewhere".to_owned());
                return Err(name_submodule(name, refused));
            }
            let id = id.split(|byte| *byte == b'\t').next().unwrap_or_default();
            found.push(Submodule {
                name: name.clone(),
                address: address.clone(),
                commit: String::from_utf8_lossy(id).into_owned(),
                path,
            });
        }
        Ok(found)
    }

    /// Returns whether the keep repository has a commit with all of its history. It may have the
    /// commit alone, from a repository with a history that is cut.
    async fn has_history(&self, place: &Place, commit: &str) -> Result<bool> {
        let list = ["rev-list", "--quiet", "--end-of-options", commit];
        Ok(self.git.on(&place.keep(), list).long().end().await?.code == Some(0))
    }
}

/// Checks that a folder is beside the project's repository or the one that it was cloned from, and
/// belongs to the same user. `root` is the folder of all workspaces.
///
/// Returns the folder without links in its path, and its owner.
fn check_folder(
    folder: &Path,
    root: &Path,
    origin: &Origin<'_>,
) -> Result<(PathBuf, Option<Owner>)> {
    let shown = folder.display();
    let refused = |why: String| {
        Err(CheckoutError::Refused(format!("its address `{shown}` is not used: {why}")))
    };
    let Ok(found) = folder.canonicalize() else {
        return refused("there is no such folder".to_owned());
    };
    if root.canonicalize().is_ok_and(|root| found.starts_with(root)) {
        return refused("the coordinator keeps its work there".to_owned());
    }
    let upstream = origin.upstream.as_deref().unwrap_or_default();
    let upstream = Path::new(upstream.strip_prefix("file://").unwrap_or(upstream));
    let own = origin.source.map(|source| source.top.as_path());
    let own = own.into_iter().chain(Some(upstream).filter(|path| path.is_absolute()));
    let own: Vec<PathBuf> = own.filter_map(|path| path.canonicalize().ok()).collect();
    let is_beside = |path: &PathBuf| path.parent().is_some_and(|parent| found.starts_with(parent));
    if !own.iter().any(is_beside) {
        let folders = own.iter().filter_map(|path| path.parent());
        let folders: Vec<String> = folders.map(|path| format!("`{}`", path.display())).collect();
        return refused(format!("it is not in {}", folders.join(" or ")));
    }
    let owner = |path: &Path| path.metadata().map(|found| found.uid()).ok();
    if own.first().and_then(|top| owner(top)) != owner(&found) {
        return refused("it belongs to another user than the project's repository".to_owned());
    }
    if !may_read(&found, origin.reader)? {
        return refused("the user of the agent may not read it".to_owned());
    }
    let owner = Owner::of(&found);
    Ok((found, owner))
}

/// Returns the folder of a submodule in the source without links in its path, if it is in the
/// source and has its owner. Blocks shortly.
fn folder_in(modules: &Path, source: &Source) -> Option<PathBuf> {
    let found = modules.canonicalize().ok()?;
    let common = source.common.canonicalize().ok()?;
    (found.starts_with(common) && Owner::of(&found) == source.owner).then_some(found)
}

/// Returns whether the user who gets the files of a repository may read them there. Otherwise an
/// agent that knows the id of a commit would get a private repository. Blocks shortly.
fn may_read(folder: &Path, reader: Option<Owner>) -> Result<bool> {
    run_as(reader, || {
        let common = Repository::of(folder).map_or_else(|| folder.to_owned(), |found| found.common);
        let objects = common.join("objects");
        let is_open = |folder: &Path| std::fs::read_dir(folder).is_ok();
        Ok(is_open(folder) && is_open(&objects) && open(&common.join("HEAD")).is_ok())
    })
}

fn name_submodule(name: &str, error: CheckoutError) -> CheckoutError {
    CheckoutError::Submodule { name: name.to_owned(), source: Box::new(error) }
}

/// Returns the beginning of the refs that follow a repository.
fn name_of(address: &OsStr) -> String {
    format!("{SUBMODULES}/{}", short_hash(address.as_bytes()))
}
