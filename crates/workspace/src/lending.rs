//! Makes workspaces usable for agents that run as another user (`run_as`).
//!
//! Such a user owns the tree, and the folder `scratch` beside it, which has git's files for
//! reading the tree. The folders above these belong to root. The user can enter them, but not list
//! them. It cannot enter the keep repository, which has the uncommitted and ignored files of all
//! agents. Its workspaces borrow from a folder that has only commits: the branches of the source,
//! and the results of the tasks of the project. That folder belongs to the owner of the keep
//! repository.
//!
//! ```text
//! <root>/<project>/lent-<uid>           only its owner and the group of the user can enter it
//! <root>/<project>/lent-<uid>/objects   packs. Nothing is removed from them, either
//! <root>/<project>/lent-<uid>/tips      commits that are in these packs, with all they reach
//! ```

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::{MetadataExt as _, lchown};
use std::path::{Path, PathBuf};

use super::keep_repository::{SOURCE, make_new};
use super::keeping::uncommitted_ref;
use super::objects::{lines, names_in};
use super::remote::FORGE;
use super::rights::{Owner, give, open_passage, run_as, set_mode};
use super::text::{borrowed_folders, read_text};
use super::transfer::revisions;
use super::{
    CheckoutError, Clones, Git, KeepRepositories, LENT, Place, Result, SCRATCH, WorkFiles,
    blocking, make_folder, remove_folder, rename, write,
};
use domain::workspace::Order;
use domain::{ProjectId, RunAs, WorkspaceId};
use machine::sys;

/// The list of lent commits.
const TIPS: &str = "tips";

/// Returns the line by which a workspace borrows, seen from its folder `objects`: from what is lent
/// to its owner, or from the keep repository if that is the daemon's own user. It is relative, so
/// that the root can be moved.
pub(super) fn alternates(owner: Option<Owner>) -> String {
    let folder = owner.map(|owner| format!("{LENT}{}", owner.uid));
    format!("../../../../{}/objects\n", folder.as_deref().unwrap_or("keep.git"))
}

/// Returns whether the clone with these files borrows from the keep repository.
pub(super) fn borrows_from_keep(tree: &Path) -> bool {
    let borrowed = read_text(&tree.join(".git/objects/info/alternates"));
    borrowed.is_some_and(|text| borrowed_folders(&text).any(|folder| folder.contains("/keep.git/")))
}

impl Clones {
    /// Opens the way to the workspaces of a project for a user, and lends what a new one needs.
    /// `start` is the commit that it begins at.
    ///
    /// # Errors
    /// `Refused` if the user cannot get there.
    pub(super) async fn open_for(
        &self,
        owner: Owner,
        order: &Order,
        start: Option<&str>,
        place: &Place,
    ) -> Result<()> {
        let _locked = self.keep.lock_keep(&order.project, place).await?;
        if place.keeper().is_some_and(|keeper| keeper.uid == owner.uid) {
            return Err(CheckoutError::Refused(format!(
                "the user with id {} owns `{}`, so no agent may run as that user; name another one \
                 in `run_as`",
                owner.uid,
                place.keep().display()
            )));
        }
        blocking({
            let root = self.places.root.clone();
            let place = place.clone();
            let user = order.run_as.clone();
            move || {
                let name = user.as_ref().map_or("", |user| user.name.as_str());
                open_way(&root, &place, owner, name)?;
                user.as_ref().map_or(Ok(()), |user| check_group(&place, user))?;
                make_lent(&place, owner)
            }
        })
        .await?;
        let mut also: BTreeSet<String> = start.map(str::to_owned).into_iter().collect();
        if let Some(kept) = &order.restores {
            let (refs, kinds) = self.files.kept_refs(kept, place).await?;
            let named = refs.iter().map(|(_, id)| id).chain(refs.head_commit());
            also.extend(named.filter(|id| kinds.contains_key(*id)).cloned());
            also.extend(self.files.borrowed_by_parts(&kept.kept_commit, place).await?);
        } else if let Some(start) = start.filter(|_| order.submodules) {
            also.extend(self.remotes.commits_of_submodules(place, start).await?);
        }
        self.keep.lend(place, &place.lent(owner), also).await
    }

    /// Lends a commit to the user who owns a workspace, with those of its submodules.
    ///
    /// # Errors
    /// Each error of git.
    pub(super) async fn lend_commit(
        &self,
        project: &ProjectId,
        place: &Place,
        owner: Owner,
        commit: &str,
    ) -> Result<()> {
        let _locked = self.keep.lock_keep(project, place).await?;
        make_lent(place, owner)?;
        let mut also = self.remotes.commits_of_submodules(place, commit).await?;
        also.insert(commit.to_owned());
        self.keep.lend(place, &place.lent(owner), also).await
    }
}

impl KeepRepositories {
    /// Lends the newest results of the project to the user who owns a workspace. Does nothing if
    /// that is the daemon's own user.
    ///
    /// # Errors
    /// Each error of git.
    pub async fn lend_results(&self, project: &ProjectId, workspace: &WorkspaceId) -> Result<()> {
        let place = self.places.place(project, workspace);
        let Some(owner) = place.owner else {
            return Ok(());
        };
        self.git.check().await?;
        let _locked = self.lock_keep(project, &place).await?;
        make_lent(&place, owner)?;
        self.lend(&place, &place.lent(owner), BTreeSet::new()).await
    }

    /// Lends the newest results to all users who have workspaces of the project. The caller has the
    /// lock of the project.
    pub(super) async fn lend_to_all(&self, place: &Place) -> Result<()> {
        for name in names_in(&place.project).into_iter().filter(|name| name.starts_with(LENT)) {
            self.lend(place, &place.project.join(name), BTreeSet::new()).await?;
        }
        Ok(())
    }

    /// Adds the commits that the folder `lent` lacks: those of the source, the results, and `also`.
    async fn lend(&self, place: &Place, lent: &Path, also: BTreeSet<String>) -> Result<()> {
        let base = "refs/agent-coordinator/base/";
        let format = "--format=%(objectname) %(refname)";
        let list = ["for-each-ref", format, "refs/heads/", SOURCE, FORGE, base];
        let listed = self.git.on(&place.keep(), list).text().await?;
        let uncommitted = uncommitted_ref("");
        let uncommitted = uncommitted.trim_start_matches("refs/heads/");
        let named = listed.lines().filter_map(|line| line.split_once(' '));
        let named = named.filter(|(_, name)| !name.ends_with(uncommitted));
        let mut wanted = also;
        wanted.extend(named.map(|(id, _)| id.to_owned()));
        let tips = tips_in(place, lent)?;
        if wanted.is_subset(&tips) {
            return Ok(());
        }
        // A person may have removed content that was given up.
        let known = self.git.kinds(place, tips.iter()).await?;
        let input = revisions(wanted.difference(&tips), known.keys());
        let name = lent.file_name().unwrap_or_default().to_string_lossy();
        let quarantine = place.project.join(format!(".q-{name}"));
        make_new(&quarantine, place.keeper())?;
        let new = quarantine.join("pack");
        let pack = ["pack-objects", "--quiet", "--revs", "--non-empty", "--delta-base-offset"];
        let pack = pack.map(OsStr::new).into_iter().chain([new.as_os_str()]);
        let made = self.git.on(&place.keep(), pack).input(input).long().text().await?;
        run_as(place.keeper(), || {
            if !made.is_empty() {
                // Git looks for the index, so the pack comes first.
                for ending in ["pack", "idx"] {
                    let file = quarantine.join(format!("pack-{made}.{ending}"));
                    set_mode(&file, 0o444)?;
                    rename(&file, &lent.join(format!("objects/pack/pack-{made}.{ending}")))?;
                }
            }
            let list = quarantine.join(TIPS);
            write(&list, lines(wanted.iter().chain(known.keys())))?;
            set_mode(&list, 0o600)?;
            rename(&list, &lent.join(TIPS))
        })?;
        remove_folder(&quarantine)
    }
}

impl Git {
    /// Returns the commits that are lent to the owner of a workspace, with all that they reach.
    pub(super) async fn lent_commits(
        &self,
        place: &Place,
        owner: Owner,
    ) -> Result<BTreeSet<String>> {
        // A person may have removed content that was given up.
        let tips = tips_in(place, &place.lent(owner))?;
        let known = self.kinds(place, tips.iter()).await?;
        Ok(known.into_keys().collect())
    }
}

impl WorkFiles {
    /// Makes the settings readable with which another owner's files are read, and the folder in
    /// which git writes then. Objects of an attempt that was given up stay there.
    pub(super) async fn prepare_reading(&self, place: &Place) -> Result<()> {
        let place = place.clone();
        blocking(move || {
            place.make_files(place.format())?;
            let Some(owner) = place.owner else {
                return Ok(());
            };
            let scratch = place.scratch();
            make_readable(&place.files())?;
            make_folder(&scratch)?;
            give(&scratch, owner)?;
            run_as(Some(owner), || make_folder(&scratch.join("objects")))
        })
        .await
    }
}

/// Makes the folders of a new workspace: one for the files, and one for git's files of it if
/// another user owns them. Git and the daemon write there as that user from the beginning, so that
/// no link leads them to more than that user has.
pub(super) fn make_tree(new: &Path, owner: Option<Owner>) -> Result<()> {
    let tree = new.join("tree");
    make_folder(&tree)?;
    let Some(owner) = owner else {
        return Ok(());
    };
    let scratch = new.join(SCRATCH);
    make_folder(&scratch)?;
    for folder in [&tree, &scratch] {
        set_mode(folder, 0o700)?;
        give(folder, owner)?;
    }
    open_passage(new)
}

/// Returns whether there is a folder with packs that the workspaces of a user borrow from. The
/// packs are opened with the rights of the keeper, so the folder must be the keeper's.
///
/// # Errors
/// `Refused` for a folder of another user.
fn has_lent(lent: &Path, keeper: Option<Owner>) -> Result<bool> {
    let is_there = |path: &Path| match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        found => found.map(Some).map_err(CheckoutError::io("read", path)),
    };
    let Some(found) = is_there(lent)? else {
        return Ok(false);
    };
    let uid = keeper.map_or_else(|| rustix::process::geteuid().as_raw(), |keeper| keeper.uid);
    if !found.is_dir() || found.uid() != uid {
        let lent = lent.display();
        return Err(CheckoutError::Refused(format!(
            "`{lent}` must be a folder of the user with id {uid}, who owns `keep.git` beside it, \
             but it is an entry of the user with id {}; stop the daemon, and run `chown -R {uid} \
             {lent}`",
            found.uid()
        )));
    }
    run_as(keeper, || Ok(is_there(&lent.join("objects/pack"))?.is_some()))
}

/// Reads the list of lent commits.
///
/// # Errors
/// `Refused` if the list is another user's.
fn tips_in(place: &Place, lent: &Path) -> Result<BTreeSet<String>> {
    if !has_lent(lent, place.keeper())? {
        return Ok(BTreeSet::new());
    }
    let read = || std::fs::read_to_string(lent.join(TIPS)).unwrap_or_default();
    let tips = place.as_keeper(|_| Ok(read()))?;
    Ok(tips.lines().map(str::to_owned).collect())
}

/// Closes the keep repository of a project to other users. As long as clones of root that are older
/// than the keeper borrow from it, the group of root can enter it. In a namespace of users, root
/// has no more rights than its group.
pub(super) fn close(place: &Place) -> Result<()> {
    let keep = place.keep();
    let is_folder_of_root = || keep.metadata().is_ok_and(|it| it.is_dir() && it.uid() == 0);
    match keep.symlink_metadata() {
        Ok(found) if found.is_dir() => {
            let is_lent_to_root = found.uid() != 0 && found.gid() == 0 && has_old_clone(place);
            set_mode(&keep, if is_lent_to_root { 0o710 } else { 0o700 })
        }
        // A person moved the folder to another disk.
        Ok(link) if link.uid() == 0 && is_folder_of_root() => set_mode(&keep, 0o700),
        _ => Ok(()),
    }
}

/// Returns whether a clone of the daemon's user borrows from the keep repository.
fn has_old_clone(place: &Place) -> bool {
    names_in(&place.project)
        .iter()
        .map(|name| place.project.join(name).join("tree"))
        .any(|tree| Owner::of(&tree).is_none() && borrows_from_keep(&tree))
}

/// Checks that a user is not in the group of root while that group can enter the keep repository.
///
/// # Errors
/// `Refused`.
fn check_group(place: &Place, user: &RunAs) -> Result<()> {
    let is_in_group = user.uid != 0 && (user.gid == 0 || user.groups.contains(&0));
    let keep = place.keep();
    let can_enter = |found: Metadata| found.gid() == 0 && found.mode() & 0o010 != 0;
    if !is_in_group || !keep.symlink_metadata().is_ok_and(can_enter) {
        return Ok(());
    }
    Err(CheckoutError::Refused(format!(
        "user `{}` is in the group of root, which can enter `{}` as long as clones of root from \
         before borrow from it; take the user out of that group, or settle the tasks of these \
         clones",
        user.name,
        keep.display()
    )))
}

/// Lets other users enter the folders of the daemon around those of a project, but not list them.
/// Closes the keep repository before that.
pub(super) fn let_others_enter(root: &Path, place: &Place) -> Result<()> {
    close(place)?;
    for folder in [root, place.project.as_path()] {
        let found = folder.metadata().map_err(CheckoutError::io("read", folder))?;
        if found.mode() & 0o001 == 0 {
            set_mode(folder, (found.mode() & 0o7777) | 0o011)?;
        }
    }
    Ok(())
}

/// Lets other users enter the folders of the daemon on the way to a workspace, and checks that
/// `user` can, whose name is `name`, and that others cannot put something in the way.
fn open_way(root: &Path, place: &Place, user: Owner, name: &str) -> Result<()> {
    make_folder(&place.project)?;
    let_others_enter(root, place)?;
    let advice = "set `workspace.root` to a folder of root that the users of agents may enter, \
                  such as /srv/agent-coordinator";
    let root = root.canonicalize().map_err(CheckoutError::io("read", root))?;
    if sys::ownership::is_changed_by_others(&root) {
        return Err(CheckoutError::Refused(format!(
            "the clones in `{}` are not safe for agents that run as another user: others than root \
             can change that folder or one above it; {advice}",
            root.display()
        )));
    }
    let mut folders: Vec<PathBuf> = root.ancestors().map(Path::to_owned).collect();
    folders.reverse();
    run_as(Some(user), || {
        for folder in folders {
            // The last component needs the right to enter the folder.
            let entered = folder.join(".").symlink_metadata();
            let is_closed = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
            if entered.as_ref().is_err_and(is_closed) {
                return Err(CheckoutError::Refused(format!(
                    "user `{name}` may not enter `{}` on the way to its clone; {advice}",
                    folder.display()
                )));
            }
        }
        Ok(())
    })
}

/// Makes the folder that the workspaces of a user borrow from.
fn make_lent(place: &Place, owner: Owner) -> Result<()> {
    let lent = place.lent(owner);
    let keeper = place.keeper();
    if !has_lent(&lent, keeper)? {
        let new = place.project.join(format!(".new-{LENT}{}", owner.uid));
        make_new(&new, keeper)?;
        remove_folder(&lent)?;
        run_as(keeper, || {
            make_folder(&new.join("objects/pack"))?;
            make_folder(&new.join("objects/info"))?;
            for folder in ["objects", "objects/pack", "objects/info"] {
                set_mode(&new.join(folder), 0o755)?;
            }
            set_mode(&new, 0o710)
        })?;
        rename(&new, &lent)?;
    }
    // The user may have another group than before.
    let uid = keeper.map_or(0, |keeper| keeper.uid);
    lchown(&lent, Some(uid), Some(owner.gid)).map_err(CheckoutError::io("give to a group", &lent))
}

/// Makes the settings for reading files readable for others, but not the list of ignored files,
/// which may be a person's.
fn make_readable(path: &Path) -> Result<()> {
    let found = path.symlink_metadata().map_err(CheckoutError::io("read", path))?;
    if !found.is_dir() {
        let is_list = path.file_name() == Some(OsStr::new("exclude"));
        return set_mode(path, if is_list { 0o600 } else { 0o644 });
    }
    set_mode(path, 0o755)?;
    names_in(path).into_iter().try_for_each(|name| make_readable(&path.join(name)))
}
