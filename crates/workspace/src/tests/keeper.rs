//! The keeper, to whom the coordinator's repositories belong. These tests need root.

use std::collections::BTreeSet;
use std::os::unix::fs::{MetadataExt as _, lchown, symlink};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};

use super::rights::{AGENT, PERSON, agent, bed_of_root, chain, give, mode, snapshot_order};
use super::*;
use domain::workspace::{CleanOrder, ForgetOrder};
use domain::{RunAs, Timestamp};
use machine::crash_point::{CrashPoint, VARIABLE};

/// The keeper of these tests: neither the user of the agents nor a person.
const KEEPER: u32 = 2;
/// The folder of a bed, in the process that dies while it hands the repositories over.
const HANDOVER: &str = "AGENT_COORDINATOR_TEST_HANDOVER";

/// Returns the workspaces in the folder of a bed, for a daemon that has a keeper.
fn kept_in(folder: &Path) -> Checkouts {
    let settings = HostSettings::new(folder.join("workspaces"));
    Checkouts::with_settings(HostSettings { keeper: Some((KEEPER, KEEPER)), ..settings })
}

/// Returns all entries of a folder and itself, a folder after all that is in it.
fn entries_of(path: &Path) -> Vec<PathBuf> {
    let mut entries = Vec::new();
    if path.symlink_metadata().unwrap().is_dir() {
        for entry in std::fs::read_dir(path).unwrap() {
            entries.extend(entries_of(&entry.unwrap().path()));
        }
    }
    entries.push(path.to_owned());
    entries
}

/// Returns the coordinator's repositories of the project, as they are handed over.
fn repositories(bed: &Bed) -> Vec<PathBuf> {
    let keep = bed.keep_repository();
    let project = keep.parent().unwrap();
    let lent = super::objects::names_in(project).into_iter().filter(|it| it.starts_with(LENT));
    lent.chain(["keep.git".to_owned()]).map(|name| project.join(name)).collect()
}

/// Writes a program into the settings with which files are read, with the rights of the keeper.
/// Returns the file that the program makes.
fn write_program_as_keeper(bed: &Bed) -> PathBuf {
    let marks = bed.folder.path().join("marks");
    std::fs::create_dir(&marks).unwrap();
    mode(&marks, 0o777);
    let mark = marks.join("ran");
    let program = format!("[filter \"mark\"]\n\tclean = \"touch {}; cat\"\n", mark.display());
    let script = "printf %s \"$PROGRAM\" >>\"$FILES/config\"\n\
                  echo '* filter=mark' >\"$FILES/info/attributes\"";
    let files = bed.keep_repository().with_file_name("files.git");
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).env("PROGRAM", program).env("FILES", files);
    let ended = shell.uid(KEEPER).gid(KEEPER).output().unwrap();
    assert!(!ended.status.success(), "{ended:?}");
    mark
}

#[track_caller]
fn assert_all_belong_to(bed: &Bed, uid: u32) {
    for path in entries_of(&bed.keep_repository().with_file_name("files.git")) {
        assert_eq!(path.symlink_metadata().unwrap().uid(), 0, "{}", path.display());
    }
    let project = bed.keep_repository().parent().unwrap().to_owned();
    let borrows_from_keep = |name: &String| {
        let alternates = project.join(name).join("tree/.git/objects/info/alternates");
        std::fs::read_to_string(alternates).is_ok_and(|text| text.contains("/keep.git/"))
    };
    let has_old_clone = super::objects::names_in(&project).iter().any(borrows_from_keep);
    for folder in repositories(bed) {
        let found = folder.metadata().unwrap();
        let is_lent = folder.file_name().unwrap().to_string_lossy().starts_with(LENT);
        if uid == KEEPER && (is_lent || folder == bed.keep_repository()) {
            let expected = if is_lent || has_old_clone { 0o710 } else { 0o700 };
            assert_eq!(found.mode() & 0o777, expected, "{}", folder.display());
        }
        for path in entries_of(&folder) {
            let found = path.symlink_metadata().unwrap();
            assert_eq!(found.uid(), uid, "{}", path.display());
        }
    }
}

fn check_objects(bed: &Bed) {
    bed.git(&bed.keep_repository(), &["--git-dir=.", "fsck", "--no-dangling"]);
}

/// Reads a clone of root as root does in a namespace of users: without capabilities.
fn read_in_a_namespace(bed: &Bed, id: &str) {
    let mut git = Command::new("setpriv");
    git.args(["--bounding-set=-all", "--inh-caps=-all", "--clear-groups", "git", "log"]);
    let ended = git.current_dir(bed.tree(id)).env("HOME", bed.folder.path()).output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
}

/// Changes a clone as its user does: one commit, and one file that is in no commit.
fn work(bed: &Bed, id: &str, text: &str, uid: u32) {
    let tree = bed.tree(id);
    give(&tree, 0);
    bed.commit(&tree, &format!("{id}.txt"), text);
    std::fs::write(tree.join("open.txt"), "open\n").unwrap();
    give(&tree, uid);
}

#[tokio::test]
async fn the_repositories_of_a_new_project_belong_to_the_keeper() {
    for user in [None, Some(agent())] {
        let Some(mut bed) = bed_of_root() else { return };
        bed.checkouts = kept_in(bed.folder.path());
        let uid = user.as_ref().map_or(0, |user| user.uid);
        if user.is_some() {
            give(&bed.source(), PERSON);
        }
        let order = Order { run_as: user, ..bed.order("one") };
        let one = bed.checkouts.clones.prepare(&order).await.unwrap();
        let tree = bed.tree("one");
        let borrowed = std::fs::read_to_string(tree.join(".git/objects/info/alternates")).unwrap();
        assert_eq!(borrowed, format!("../../../../lent-{uid}/objects\n"));
        work(&bed, "one", "work\n", uid);
        let kept = bed.keep("one", &one).await;
        assert!(kept.proof.is_some(), "{:?}", kept.left_out);
        let order_of_check = CleanOrder {
            id: "one".parse().unwrap(),
            project: "shop".parse().unwrap(),
            commit: kept.head_commit.clone(),
            base_commit: one.base_commit.clone(),
            agent: "dev".parse().unwrap(),
            protected: vec!["main.txt".to_owned()],
        };
        bed.checkouts.clones.prepare_clean(&order_of_check).await.unwrap();
        let fresh = bed.checkouts.places.clean_directory(&order_of_check, "");
        assert_eq!(fresh.join("one.txt").metadata().unwrap().uid(), uid);
        bed.checkouts
            .clones
            .remove_clean(&order_of_check.project, &order_of_check.id)
            .await
            .unwrap();
        let merged = bed.checkouts.results.merge(&bed.merge_order("one", &one)).await.unwrap();
        assert!(matches!(merged, Merged::Into { .. }), "{merged:?}");
        assert_eq!(bed.read("one.txt"), "work\n");
        let taken =
            bed.checkouts.snapshots.snapshot(&snapshot_order(&bed), &bed.policy).await.unwrap();
        assert_eq!(taken.left_out, [] as [String; 0]);
        std::fs::remove_dir_all(tree.parent().unwrap()).unwrap();
        let restores = Some(restored(&kept, &one));
        bed.checkouts.clones.prepare(&Order { restores, ..order }).await.unwrap();
        assert_eq!(std::fs::read_to_string(tree.join("open.txt")).unwrap(), "open\n");
        assert_eq!(tree.join("open.txt").metadata().unwrap().uid(), uid);
        let to = bed.folder.path().join("restored");
        let (project, id) = ("shop".parse().unwrap(), "one".parse().unwrap());
        bed.checkouts.results.write_kept_to(&project, &id, &kept.kept_commit, &to).await.unwrap();
        assert_eq!(std::fs::read_to_string(to.join("open.txt")).unwrap(), "open\n");
        // Git reads the files of each user with these settings.
        let mark = write_program_as_keeper(&bed);
        // The owner of what is there is the choice, also if the account is gone.
        bed.checkouts = Checkouts::new(bed.folder.path().join("workspaces"));
        std::fs::write(tree.join("main.txt"), "changed\n").unwrap();
        assert!(bed.keep("one", &one).await.proof.is_some());
        assert!(!mark.exists(), "git ran a program of the keeper");
        assert_all_belong_to(&bed, KEEPER);
        check_objects(&bed);
    }
}

#[tokio::test]
async fn without_a_way_for_the_keeper_the_repositories_stay_with_root() {
    let Some(mut bed) = bed_of_root() else { return };
    bed.checkouts = kept_in(bed.folder.path());
    mode(bed.folder.path(), 0o700);
    bed.prepare("one").await;
    assert_all_belong_to(&bed, 0);
    let root = bed.folder.path().join("workspaces");
    assert_eq!(root.metadata().unwrap().mode() & 0o777, 0o700, "no other user needs a way");
    mode(bed.folder.path(), 0o711);
    // A file with a second name may be another user's to change.
    let second = bed.folder.path().join("second");
    std::fs::hard_link(bed.keep_repository().join("config"), &second).unwrap();
    bed.prepare("two").await;
    assert_all_belong_to(&bed, KEEPER);
    let config = bed.keep_repository().join("config");
    assert_eq!(std::fs::read(&second).unwrap(), std::fs::read(config).unwrap());
    let second = second.metadata().unwrap();
    assert_eq!((second.uid(), second.nlink()), (0, 1));
}

#[tokio::test]
async fn git_reads_no_files_with_settings_of_another_user() {
    for (changed, user) in
        [("", None), ("config", None), ("", Some(agent())), ("config", Some(agent()))]
    {
        let Some(bed) = bed_of_root() else { return };
        let uid = user.as_ref().map_or(0, |user| user.uid);
        let order = Order { run_as: user, ..bed.order("one") };
        let one = bed.checkouts.clones.prepare(&order).await.unwrap();
        work(&bed, "one", "work\n", uid);
        let files = bed.keep_repository().with_file_name("files.git");
        lchown(files.join(changed), Some(PERSON), None).unwrap();
        assert!(bed.keep("one", &one).await.proof.is_some());
        assert_all_belong_to(&bed, 0);
        lchown(&files, Some(PERSON), None).unwrap();
        let place = bed.checkouts.places.place(&order.project, &order.id);
        let files = &bed.checkouts.clones.files;
        let refused = files.on_files(&place, &[], &place.index()).map(drop).unwrap_err();
        assert!(refused.needs_person() && chain(&refused).contains("files.git"), "{refused}");
    }
}

#[tokio::test]
async fn what_is_lent_by_another_user_than_the_owner_of_what_is_kept_is_refused_and_stays() {
    for (keeper, other) in [(KEEPER, 0), (0, KEEPER)] {
        let Some(mut bed) = bed_of_root() else { return };
        if keeper == KEEPER {
            bed.checkouts = kept_in(bed.folder.path());
        }
        let order = Order { run_as: Some(agent()), ..bed.order("one") };
        let one = bed.checkouts.clones.prepare(&order).await.unwrap();
        work(&bed, "one", "work\n", AGENT);
        let lent = bed.keep_repository().with_file_name(format!("lent-{AGENT}"));
        let before: BTreeSet<PathBuf> = entries_of(&lent).into_iter().collect();
        // A person restored one of both from a backup.
        for path in &before {
            lchown(path, Some(other), None).unwrap();
        }
        let order = Order { run_as: Some(agent()), ..bed.order("two") };
        let keep_order = Bed::keep_order("one", &one);
        let advice = format!("`chown -R {keeper} {}`", lent.display());
        for refused in [
            bed.checkouts.clones.prepare(&order).await.unwrap_err(),
            bed.checkouts.clones.keep(&keep_order, &bed.policy).await.unwrap_err(),
        ] {
            let text = chain(&refused);
            assert!(refused.needs_person() && text.contains(&advice), "{text}");
        }
        let after: BTreeSet<PathBuf> = entries_of(&lent).into_iter().collect();
        assert_eq!(after, before);
        for path in &after {
            assert_eq!(path.symlink_metadata().unwrap().uid(), other, "{}", path.display());
            lchown(path, Some(keeper), None).unwrap();
        }
        bed.checkouts.clones.prepare(&order).await.unwrap();
        assert!(bed.keep("one", &one).await.proof.is_some());
        assert_all_belong_to(&bed, keeper);
    }
}

#[tokio::test]
async fn what_root_has_lent_goes_to_the_keeper_also_after_the_keep_repository_was_lost() {
    let Some(mut bed) = bed_of_root() else { return };
    let order = Order { run_as: Some(agent()), ..bed.order("one") };
    bed.checkouts.clones.prepare(&order).await.unwrap();
    std::fs::remove_dir_all(bed.keep_repository()).unwrap();
    bed.checkouts = kept_in(bed.folder.path());
    for (id, uid) in [("two", 0), ("three", KEEPER)] {
        let order = Order { run_as: Some(agent()), ..bed.order(id) };
        bed.checkouts.clones.prepare(&order).await.unwrap();
        assert_all_belong_to(&bed, uid);
    }
}

/// Returns a bed of a daemon without a keeper, with a clone of root, one of an agent's user, and a
/// pack with a second name.
async fn bed_before() -> Option<(Bed, [Prepared; 2])> {
    let bed = bed_of_root()?;
    let (old, _) = bed.prepare("old").await;
    let order = Order { run_as: Some(agent()), ..bed.order("one") };
    let one = bed.checkouts.clones.prepare(&order).await.unwrap();
    work(&bed, "old", "work\n", 0);
    bed.keep("old", &old).await;
    work(&bed, "one", "work\n", AGENT);
    let packs = bed.keep_repository().join("objects/pack");
    let linked = bed.folder.path().join("linked");
    std::fs::create_dir(&linked).unwrap();
    for name in super::objects::names_in(&packs) {
        std::fs::hard_link(packs.join(&name), linked.join(&name)).unwrap();
    }
    std::fs::remove_file(bed.keep_repository().join("mended")).unwrap();
    assert_all_belong_to(&bed, 0);
    Some((bed, [old, one]))
}

/// Checks that the next daemon, which has a keeper, hands everything over and loses nothing.
async fn check_handover(bed: &mut Bed, [old, one]: &[Prepared; 2]) {
    bed.checkouts = kept_in(bed.folder.path());
    let kept = bed.keep("one", one).await;
    assert!(kept.proof.is_some(), "{:?}", kept.left_out);
    bed.prepare("two").await;
    assert_all_belong_to(bed, KEEPER);
    assert!(!bed.keep_repository().with_file_name("handover").exists());
    let lent = bed.keep_repository().with_file_name(format!("lent-{AGENT}"));
    assert_eq!(lent.metadata().unwrap().gid(), AGENT);
    let linked = super::objects::names_in(&bed.folder.path().join("linked"));
    let linked: Vec<PathBuf> =
        linked.iter().map(|name| bed.folder.path().join("linked").join(name)).collect();
    assert!(linked.iter().all(|path| path.metadata().unwrap().uid() == 0));
    read_in_a_namespace(bed, "old");
    // A clone of root from before goes on to borrow from the keep repository.
    let (project, id) = ("shop".parse().unwrap(), "old".parse().unwrap());
    assert_eq!(bed.checkouts.places.lending_folder(&project, &id), bed.keep_repository());
    work(bed, "old", "more work\n", 0);
    let kept = bed.keep("old", old).await;
    assert!(kept.proof.is_some(), "{:?}", kept.left_out);
    let merged = bed.checkouts.results.merge(&bed.merge_order("old", old)).await.unwrap();
    assert!(matches!(merged, Merged::Into { .. }), "{merged:?}");
    assert_all_belong_to(bed, KEEPER);
    check_objects(bed);
}

#[tokio::test]
async fn what_root_has_kept_goes_to_the_keeper_at_the_first_use() {
    let Some((mut bed, prepared)) = bed_before().await else { return };
    // A pack may have got its second name after the upgrade from 0.1.0.
    std::fs::write(bed.keep_repository().join("mended"), "").unwrap();
    let found = kept_in(bed.folder.path()).keep.list_upgrades();
    assert!(found.len() == 1 && found[0].n_bytes > 0, "{found:?}");
    check_handover(&mut bed, &prepared).await;
    assert!(bed.checkouts.keep.list_upgrades().is_empty());
}

#[tokio::test]
async fn a_handover_that_was_cut_off_is_completed_and_nothing_is_lost() {
    if let Some(folder) = std::env::var_os(HANDOVER) {
        let checkouts = kept_in(Path::new(&folder));
        checkouts.keep.git.check().await.unwrap();
        let place = checkouts.places.place(&"shop".parse().unwrap(), &"one".parse().unwrap());
        checkouts.keep.make_keep("sha1", &place).await.unwrap();
        return;
    }
    // The process dies after the first entry. The later states are made by hand.
    for nth in 0..4 {
        let Some((mut bed, prepared)) = bed_before().await else { return };
        if nth == 0 {
            let test = "tests::keeper::\
                        a_handover_that_was_cut_off_is_completed_and_nothing_is_lost";
            let mut child = Command::new(std::env::current_exe().unwrap());
            child.args(["--exact", test]).env(HANDOVER, bed.folder.path());
            child.env(VARIABLE, format!("{:?}", CrashPoint::EntryHandedOver));
            let ended = child.output().unwrap();
            assert_eq!(ended.status.signal(), Some(9), "{ended:?}");
        } else {
            // Such files were copied before.
            std::fs::remove_dir_all(bed.folder.path().join("linked")).unwrap();
            let folders = repositories(&bed);
            let mark = bed.keep_repository().with_file_name("handover");
            std::fs::write(mark, format!("{KEEPER}:{KEEPER}\n")).unwrap();
            let all: Vec<PathBuf> = folders.iter().flat_map(|path| entries_of(path)).collect();
            for path in &all[..all.len() * nth / 4] {
                let gid = (path.symlink_metadata().unwrap().gid() == 0).then_some(KEEPER);
                lchown(path, Some(KEEPER), gid).unwrap();
            }
        }
        let all = repositories(&bed).into_iter().flat_map(|path| entries_of(&path));
        let owners: BTreeSet<u32> =
            all.map(|path| path.symlink_metadata().unwrap().uid()).collect();
        assert_eq!(owners, BTreeSet::from([0, KEEPER]), "it is in the middle");
        assert_eq!(bed.keep_repository().metadata().unwrap().uid(), 0);
        check_handover(&mut bed, &prepared).await;
    }
}

#[tokio::test]
async fn only_the_user_in_a_whole_mark_gets_what_root_has_kept() {
    let Some(bed) = bed_of_root() else { return };
    bed.prepare("one").await;
    let keep = bed.keep_repository();
    let mark = keep.with_file_name("handover");
    let (project, id) = ("shop".parse().unwrap(), "one".parse().unwrap());
    let place = bed.checkouts.places.place(&project, &id);
    // An earlier build gave only these settings away. They show no handover.
    lchown(keep.with_file_name("files.git"), Some(PERSON), Some(PERSON)).unwrap();
    drop(bed.checkouts.keep.lock_keep(&project, &place).await.unwrap());
    bed.prepare("two").await;
    assert_all_belong_to(&bed, 0);
    // The process died before it had written the whole mark.
    std::fs::write(&mark, format!("{KEEPER}:{KEEPER}")).unwrap();
    drop(bed.checkouts.keep.lock_keep(&project, &place).await.unwrap());
    assert!(!mark.exists());
    assert_all_belong_to(&bed, 0);
    std::fs::write(&mark, format!("{KEEPER}:{KEEPER}\n")).unwrap();
    let away = bed.folder.path().join("away");
    std::fs::rename(&keep, &away).unwrap();
    symlink(&away, &keep).unwrap();
    let refused = bed.checkouts.keep.lock_keep(&project, &place).await.unwrap_err();
    assert!(refused.needs_person() && refused.to_string().contains("put back"), "{refused}");
    assert_all_belong_to(&bed, 0);
    std::fs::remove_file(&keep).unwrap();
    drop(bed.checkouts.keep.lock_keep(&project, &place).await.unwrap());
    assert!(!mark.exists(), "there is nothing to hand over");
}

#[tokio::test]
async fn what_root_has_kept_in_an_open_folder_is_closed_before_others_can_enter() {
    let Some(mut bed) = bed_of_root() else { return };
    bed.checkouts.snapshots.snapshot(&snapshot_order(&bed), &bed.policy).await.unwrap();
    mode(&bed.keep_repository(), 0o755);
    bed.checkouts = kept_in(bed.folder.path());
    bed.checkouts.snapshots.snapshot(&snapshot_order(&bed), &bed.policy).await.unwrap();
    assert_all_belong_to(&bed, KEEPER);
}

#[tokio::test]
async fn a_keep_repository_that_the_keeper_cannot_see_is_not_missing() {
    let Some(mut bed) = bed_of_root() else { return };
    bed.checkouts = kept_in(bed.folder.path());
    let (one, _) = bed.prepare("one").await;
    let inode = bed.keep_repository().metadata().unwrap().ino();
    let forget = ForgetOrder {
        id: "one".parse().unwrap(),
        project: "shop".parse().unwrap(),
        branch: one.branch,
        decided_at: Timestamp::from_millis(1_000_000),
    };
    // A person closes a folder above those of the daemon.
    mode(bed.folder.path(), 0o700);
    for refused in [
        bed.checkouts.keep.forget(&forget).await.unwrap_err(),
        bed.checkouts.clones.prepare(&bed.order("two")).await.unwrap_err(),
    ] {
        let text = chain(&refused);
        assert!(refused.needs_person() && text.contains("may not enter"), "{text}");
    }
    bed.checkouts.keep.expire(Timestamp::from_millis(1_000_000)).await.unwrap_err();
    assert_eq!(bed.keep_repository().metadata().unwrap().ino(), inode);
    mode(bed.folder.path(), 0o711);
    // The daemon opens its own folders.
    mode(&bed.folder.path().join("workspaces"), 0o700);
    bed.prepare("two").await;
    bed.checkouts.keep.forget(&forget).await.unwrap();
    assert_all_belong_to(&bed, KEEPER);
}

#[tokio::test]
async fn what_a_person_moved_to_another_disk_stays_with_root() {
    for moved in ["", "objects", "objects/pack"] {
        let Some(mut bed) = bed_of_root() else { return };
        bed.prepare("one").await;
        let elsewhere = bed.folder.path().join("elsewhere");
        let entry = if moved.is_empty() {
            bed.keep_repository()
        } else {
            bed.keep_repository().join(moved)
        };
        std::fs::rename(&entry, &elsewhere).unwrap();
        symlink(&elsewhere, &entry).unwrap();
        mode(&elsewhere, 0o755);
        bed.checkouts = kept_in(bed.folder.path());
        for id in ["two", "three"] {
            let (prepared, tree) = bed.prepare(id).await;
            bed.commit(&tree, "work.txt", id);
            assert!(bed.keep(id, &prepared).await.proof.is_some());
        }
        assert_all_belong_to(&bed, 0);
        for path in entries_of(&elsewhere) {
            assert_eq!(path.symlink_metadata().unwrap().uid(), 0, "{}", path.display());
        }
        let root = bed.folder.path().join("workspaces");
        assert_eq!(root.metadata().unwrap().mode() & 0o777, 0o700, "no other user needs a way");
        let order = Order { run_as: Some(agent()), ..bed.order("four") };
        bed.checkouts.clones.prepare(&order).await.unwrap();
        assert_eq!(root.metadata().unwrap().mode() & 0o777, 0o711);
        let is_open = elsewhere.metadata().unwrap().mode() & 0o077 != 0;
        assert_eq!(is_open, !moved.is_empty(), "what is behind `keep.git` is closed with it");
    }
}

#[tokio::test]
async fn what_borrows_from_elsewhere_stays_with_root() {
    let Some(mut bed) = bed_of_root() else { return };
    bed.prepare("one").await;
    let elsewhere = bed.folder.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let alternates = bed.keep_repository().join("objects/info/alternates");
    std::fs::write(&alternates, format!("{}\n", elsewhere.display())).unwrap();
    bed.checkouts = kept_in(bed.folder.path());
    bed.prepare("two").await;
    assert_all_belong_to(&bed, 0);
    // Without a name in it, the file does no harm.
    std::fs::write(&alternates, "").unwrap();
    bed.checkouts = kept_in(bed.folder.path());
    bed.prepare("three").await;
    assert_all_belong_to(&bed, KEEPER);
}

#[tokio::test]
async fn no_agent_runs_in_the_group_of_root_while_that_can_enter_what_is_kept() {
    let Some(mut bed) = bed_of_root() else { return };
    bed.prepare("one").await;
    bed.checkouts = kept_in(bed.folder.path());
    bed.prepare("two").await;
    for (gid, groups) in [(0, vec![0]), (AGENT, vec![AGENT, 0])] {
        let user = RunAs { gid, groups, ..agent() };
        let order = Order { run_as: Some(user), ..bed.order("three") };
        let refused = bed.checkouts.clones.prepare(&order).await.unwrap_err();
        assert!(refused.needs_person() && chain(&refused).contains("group of root"), "{refused}");
        assert!(!bed.tree("three").exists());
    }
    // No clone borrows from it any more.
    std::fs::remove_dir_all(bed.tree("one").parent().unwrap()).unwrap();
    bed.prepare("four").await;
    assert_eq!(bed.keep_repository().metadata().unwrap().mode() & 0o777, 0o700);
    let user = RunAs { groups: vec![AGENT, 0], ..agent() };
    bed.checkouts
        .clones
        .prepare(&Order { run_as: Some(user), ..bed.order("three") })
        .await
        .unwrap();
}

#[tokio::test]
async fn no_agent_runs_as_the_owner_of_what_is_kept() {
    let Some(mut bed) = bed_of_root() else { return };
    bed.checkouts = kept_in(bed.folder.path());
    bed.prepare("one").await;
    // The account was renamed, so that the configuration has another name for it.
    let user = RunAs { name: "bin".to_owned(), uid: KEEPER, gid: KEEPER, groups: vec![KEEPER] };
    let order = Order { run_as: Some(user), ..bed.order("two") };
    let refused = bed.checkouts.clones.prepare(&order).await.unwrap_err();
    assert!(refused.needs_person() && refused.to_string().contains("owns `"), "{refused}");
    assert!(!bed.tree("two").exists());
    bed.prepare("three").await;
}
