//! Makes a workspace: a clone that borrows the objects of the keep repository.

use std::ffi::OsStr;
use std::path::Path;

use super::base::pin_of;
use super::inside::{InTheWay, Inside};
use super::keep_repository::SOURCE;
use super::keeping::copy_as;
use super::lending::{alternates, make_tree};
use super::lfs::LfsFill;
use super::rights::{Owner, blocking_as, set_mode};
use super::source::Source;
use super::sparse::{Made, make_beginning, note_cone};
use super::submodules::Origin;
use super::temporary::setting;
use super::{
    CheckoutError, Clones, Git, Place, Result, WorkspacePlaces, remove_folder, rename, write,
};
use domain::workspace::{Cone, Order, Prepared, Restored};
use machine::crash_point::{self, CrashPoint};
use machine::sys::regular_file;

/// A push of the agent goes nowhere: what it made is taken from its clone.
const PUSH_ADDRESS: &str = "agent-coordinator:the-coordinator-publishes-the-work";
/// The file with what is known of a workspace since it was made.
pub(super) const MADE: &str = "made.json";
/// The file that says that a hook is to run in a new workspace. No agent has used it.
pub(super) const HOOK_FOLLOWS: &str = "hook-follows";

/// The use that is made of a new workspace first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Use,
    Hook,
}

/// The origin of the files of a new workspace.
pub(super) struct Beginning<'a> {
    /// The commit; `None` if the source has none yet.
    pub(super) start: Option<&'a str>,
    /// The repository of a person that has files of LFS.
    pub(super) source: Option<&'a Source>,
    /// The address that the source was cloned from.
    pub(super) upstream: Option<String>,
}

impl Clones {
    /// Makes a workspace. One that exists already is left as it is.
    ///
    /// # Errors
    /// `Refused` if the project's directory is in no repository. The other errors are perhaps over
    /// by the next attempt.
    pub async fn prepare(&self, order: &Order) -> Result<Prepared> {
        self.make(order, Next::Use).await
    }

    /// Makes a workspace in which a hook is to run before it is used. Unless
    /// [`Self::note_hook_passed`] follows, the next call makes it anew.
    ///
    /// # Errors
    /// The errors of [`Self::prepare`].
    pub async fn prepare_for_hook(&self, order: &Order) -> Result<Prepared> {
        self.make(order, Next::Hook).await
    }

    /// Notes that the hook has run, so that an agent may use the workspace from then on. The hook
    /// may have made it a sparse checkout.
    ///
    /// # Errors
    /// The note cannot be written. `Refused` for a sparse checkout that does not name folders.
    pub async fn note_hook_passed(&self, order: &Order) -> Result<()> {
        let place = self.places.place(&order.project, &order.id);
        note_cone(&place).await?;
        let path = place.folder.join(HOOK_FOLLOWS);
        std::fs::remove_file(&path).map_err(CheckoutError::io("remove", &path))
    }

    async fn make(&self, order: &Order, next: Next) -> Result<Prepared> {
        self.git.check().await?;
        let place = self.places.place(&order.project, &order.id);
        self.places.take_back(&order.project, &order.id)?;
        let new = place.project.join(format!(".new-{}", order.id));
        if self.places.awaits_hook(order) && !place.folder.is_symlink() {
            // The hook failed, or the daemon died. Files of that run may make the next run fail.
            remove_folder(&new)?;
            rename(&place.folder, &new)?;
        }
        if place.tree().join(".git/HEAD").is_file() {
            return Ok(read_made(&place)?.prepared);
        }
        let source = match &order.forge {
            None => Some(Source::find(&self.git, &order.source).await?),
            Some(_) => None,
        };
        if let Some(source) = &source {
            self.check_apart(source)?;
        }
        let begins_at = match &order.begins_at {
            Some(parent) => self.take(&order.project, parent).await?,
            None => None,
        };
        let (prepared, start) = {
            let _locked = self.keep.lock_keep(&order.project, &place).await?;
            let head = match (&source, &order.forge) {
                (Some(source), _) => self.keep.follow(source, &place).await?,
                (None, base) => self.fetched_head(base.as_ref(), &place).await?,
            };
            crash_point::reach(CrashPoint::SourceFollowed);
            self.check_kept(order, &place).await?;
            let chosen = self.choose_base(order, source.as_ref(), &place, head, begins_at).await?;
            let is_new = order.restores.is_none();
            if let (Some(source), Some(start), true) =
                (&source, &chosen.1, order.submodules && is_new)
            {
                let upstream = source.upstream(&self.git).await;
                let is_of_person = self.remotes.is_of_source(&place, start).await?;
                let owner = Owner::of_order(order);
                let origin = Origin::of_source(source, upstream, owner, is_of_person);
                let fetched = self.remotes.fetch_submodules(&place, start, &origin).await;
                self.unpin_without_submodule(fetched, order, &place).await?;
            }
            if let Some(start) = &chosen.1 {
                self.git.check_commit(&place, start).await?;
            }
            chosen
        };
        crash_point::reach(CrashPoint::BasePinned);
        place.clear_gone()?;
        if let Some(owner) = place.user_of_order(order) {
            self.open_for(owner, order, start.as_deref(), &place).await?;
        }
        remove_folder(&new)?;
        let upstream = match (&source, &order.forge) {
            (Some(source), _) => source.upstream(&self.git).await,
            (None, base) => base.as_ref().map(|base| base.upstream.clone()),
        };
        let from = Beginning { start: start.as_deref(), source: source.as_ref(), upstream };
        let made = self.make_in(order, &prepared, &from, next, &place, &new).await;
        let made = made.map_err(|error| self.disk.name_full_disk(error));
        if made.is_err() {
            // It may be the full disk that made this fail. No agent has used the files.
            remove_folder(&new)?;
        }
        self.unpin_without_submodule(made, order, &place).await?;
        crash_point::reach(CrashPoint::WorkspaceNamed);
        Ok(prepared)
    }

    /// Forgets the commit that a new workspace was to begin at if a submodule of it cannot be had:
    /// the next attempt begins at the commit that a person has made by then.
    async fn unpin_without_submodule(
        &self,
        attempt: Result<()>,
        order: &Order,
        place: &Place,
    ) -> Result<()> {
        if let Err(CheckoutError::Submodule { .. }) = &attempt {
            let pin = pin_of(&order.id);
            self.git.on(&place.keep(), ["update-ref", "-d", &pin]).run().await?;
        }
        attempt
    }

    /// Makes the workspace in the folder `new`, and gives it its name at the end.
    async fn make_in(
        &self,
        order: &Order,
        prepared: &Prepared,
        from: &Beginning<'_>,
        next: Next,
        place: &Place,
        new: &Path,
    ) -> Result<()> {
        let owner = place.user_of_order(order);
        {
            let _locked = self.keep.lock_keep(&order.project, place).await?;
            make_tree(new, owner)?;
            self.keep.guard_objects(place).await?;
        }
        let kept = order.restores.as_ref().map(|kept| kept.kept_commit.as_str());
        let cone = self.files.kept_cone(kept, place).await?;
        self.check_out(order, prepared, from, &cone, place, new).await?;
        self.add_named_files(order, from, &cone, place, &new.join("tree")).await?;
        if next == Next::Hook {
            write(&new.join(HOOK_FOLLOWS), [])?;
        }
        let made = Made {
            prepared: prepared.clone(),
            paths: cone.folders().to_vec(),
            has_no_gitlinks: true,
            begun: self.begun_for(order, place).await?,
        };
        write(&new.join(MADE), serde_json::to_vec(&made).unwrap_or_default())?;
        set_mode(&new.join(MADE), 0o600)?;
        crash_point::reach(CrashPoint::WorkspaceMade);
        rename(new, &place.folder)
    }

    /// Checks that the state that is to come back was not removed by hand.
    async fn check_kept(&self, order: &Order, place: &Place) -> Result<()> {
        let Some(Restored { kept_commit, .. }) = &order.restores else {
            return Ok(());
        };
        if self.git.resolve(place, kept_commit).await?.is_some() {
            return Ok(());
        }
        Err(CheckoutError::Refused(format!(
            "`{}` does not have the kept commit {kept_commit}; bring it back from a copy",
            place.keep().display()
        )))
    }

    /// Returns the name of the branch, with a number if a person has a branch of this name in the
    /// source, whose commits are not those of a task.
    pub(super) async fn free_branch(&self, wanted: &str, place: &Place) -> Result<String> {
        let mut name = wanted.to_owned();
        for n in 2.. {
            let theirs = self.git.resolve(place, &format!("{SOURCE}/heads/{name}")).await?;
            let ours = self.git.resolve(place, &format!("refs/heads/{name}")).await?;
            let is_ours = match (&theirs, &ours) {
                (None, _) => true,
                (Some(theirs), Some(ours)) => self.git.contains(place, ours, theirs).await?,
                (Some(_), None) => false,
            };
            if is_ours {
                break;
            }
            name = format!("{wanted}-{n}");
        }
        Ok(name)
    }

    /// Makes the repository and the files in `new`. No agent has used it yet, so its `.git` is the
    /// daemon's.
    pub(super) async fn check_out(
        &self,
        order: &Order,
        prepared: &Prepared,
        from: &Beginning<'_>,
        cone: &Cone,
        place: &Place,
        new: &Path,
    ) -> Result<()> {
        let owner = place.user_of_order(order);
        let tree = new.join("tree");
        let initial = format!("--initial-branch={}", prepared.branch);
        let init = ["init", "--quiet", "--template=", &initial].map(OsStr::new);
        let init = self.git.call(init.into_iter().chain([tree.as_os_str()]));
        init.run_as(owner).run().await?;
        let own = tree.join(".git");
        let email = format!("{}@agent-coordinator.invalid", order.agent);
        let mut settings = vec![
            ("user.name", order.agent.to_string()),
            ("user.email", email),
            ("remote.origin.pushurl", PUSH_ADDRESS.to_owned()),
            ("push.default", "nothing".to_owned()),
        ];
        settings.extend(from.upstream.clone().map(|url| ("remote.origin.url", url)));
        blocking_as(owner, {
            let own = own.clone();
            move || {
                let inside = Inside::open(&own)?;
                let borrowed = alternates(owner);
                inside.write(Path::new("objects/info/alternates"), borrowed.as_bytes(), 0o644)?;
                inside.make_folder(Path::new("info"), InTheWay::Refuse)?;
                let config = Path::new("config");
                // The owner may have put another file there.
                let read = inside.open_file(config).and_then(regular_file::read_small_text_of);
                let mut text = read.map_err(CheckoutError::io("read", &own.join(config)))?;
                text.extend(settings.iter().map(|(name, value)| setting(name, value)));
                inside.write(config, text.as_bytes(), 0o644)
            }
        })
        .await?;
        crash_point::reach(CrashPoint::WorkspaceBegun);
        let branch = format!("refs/heads/{}", prepared.branch);
        if let Some(start) = from.start {
            self.git.on(&own, ["update-ref", &branch, start]).run_as(owner).run().await?;
        }
        if let Some(kept) = &order.restores {
            let branches = [&order.branch, &prepared.branch];
            self.files.restore_refs(kept, branches, place, &own, owner).await?;
        }
        self.make_sparse(cone, &own, owner).await?;
        if from.start.is_none() {
            // There is no commit yet, but there may be files.
            return self.files.bring_back(order, place, &tree).await;
        }
        let on_tree = |arguments: &[&str]| {
            self.git.on_tree(&own, &tree, arguments.iter().copied()).run_as(owner).long()
        };
        on_tree(&["-c", "checkout.workers=0", "read-tree", "--reset", "-u", "HEAD"]).run().await?;
        crash_point::reach(CrashPoint::WorkspaceCheckedOut);
        let made =
            Place { owner, ..Place::new(place.project.clone(), new.to_owned(), tree.clone()) };
        self.files.prepare_reading(&made).await?;
        // From here on the daemon has an index of its own. Only the owner can change its times.
        let index = made.index();
        copy_as(owner, &own.join("index"), &index).await?;
        if !cone.is_all() {
            // The agent's index says of files that are not there that git is to overlook them.
            on_tree(&["read-tree", "HEAD"]).variable("GIT_INDEX_FILE", &index).run().await?;
            make_beginning(&prepared.subdirectory, &made).await?;
        }
        // Only git reads this one, so it may have the shorter form.
        let shorten = ["update-index", "--index-version", "4"];
        on_tree(&shorten).variable("GIT_INDEX_FILE", &index).run().await?;
        self.files.forget_gitlinks(&made).await?;
        self.files.bring_back(order, place, &tree).await
    }

    /// Gives a new workspace the files that its commit only names: those of submodules and of LFS.
    /// Work that comes back has those that it had.
    async fn add_named_files(
        &self,
        order: &Order,
        from: &Beginning<'_>,
        cone: &Cone,
        place: &Place,
        tree: &Path,
    ) -> Result<()> {
        let Some(start) = from.start else {
            return Ok(());
        };
        let is_new = order.restores.is_none();
        let owner = place.user_of_order(order);
        if order.submodules && is_new {
            let upstream = from.upstream.as_deref();
            self.remotes.add_submodules(place, start, cone, upstream, tree, owner).await?;
        }
        if let Some(source) = from.source.filter(|_| order.lfs) {
            let fill = if is_new { LfsFill::FromSource } else { LfsFill::AsKept };
            self.add_lfs(place, source, start, fill, tree, owner).await?;
        }
        Ok(())
    }
}

impl Git {
    /// Returns whether the history of `commit` contains `earlier`.
    pub(super) async fn contains(
        &self,
        place: &Place,
        commit: &str,
        earlier: &str,
    ) -> Result<bool> {
        let arguments = ["merge-base", "--is-ancestor", earlier, commit];
        Ok(self.on(&place.keep(), arguments).end().await?.code == Some(0))
    }
}

impl WorkspacePlaces {
    /// Returns whether a hook is still to run in a new workspace.
    pub fn awaits_hook(&self, order: &Order) -> bool {
        self.place(&order.project, &order.id).folder.join(HOOK_FOLLOWS).exists()
    }
}

/// Reads what is known of a workspace since it was made.
pub(super) fn read_made(place: &Place) -> Result<Made> {
    let path = place.folder.join(MADE);
    let text = std::fs::read(&path).map_err(CheckoutError::io("read", &path))?;
    serde_json::from_slice(&text).map_err(|error| {
        CheckoutError::Refused(format!("`{}` is not readable: {error}", path.display()))
    })
}
