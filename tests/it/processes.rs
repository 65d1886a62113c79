//! The table of processes: many agents, daemons that start and end, killed shims, damaged files.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::time::Duration;

use domain::launch::{ProcessEnd, StopReason};
use domain::{FileContent, LaunchFile, LaunchId, Phase};
use futures::StreamExt as _;
use machine::instance_dir;
use machine::instance_dir::clock::wall_clock;
use machine::instance_dir::lock::{self, LockState};
use machine::instance_dir::record::{self, Exit, ExitState, Record, Spec};
use machine::sys::processes;
use runtime::nudge::Nudge;
use rustix::fs::{CWD, FileType, Mode};
use rustix::process::Signal;
use service::read_output;
use supervisor::process::{self, OpenError, StartError};

use crate::support::{
    Bed, DEADLINE, exited, is_gone, key, kill, killed, n_in_phase, tree_of, until, until_some,
};

#[tokio::test(flavor = "multi_thread")]
async fn sixty_agents_that_exit_at_once_are_sixty_exits() {
    let bed = Bed::new().await;
    let starts = (0..60).map(|n| {
        let request = bed.request(&[&format!("exit:{}", n % 7)]);
        async { bed.start_request(request).await }
    });
    let launches = futures::future::join_all(starts).await;
    until("all have ended", || n_in_phase(&bed.table().instances(), Phase::is_ended) == 60);
    for (n, launch) in launches.iter().enumerate() {
        assert_eq!(bed.until_ended(launch), exited(i32::try_from(n).unwrap() % 7));
        bed.table().forget(launch).await.unwrap();
        assert_eq!(bed.dir(launch), instance_dir::ended_instance(&bed.config.state_dir, launch));
    }
    assert!(bed.table().instances().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_files_of_a_launch_are_there_before_it_and_its_owners_alone() {
    let bed = Bed::new().await;
    let mut request = bed.request(&["exit:0"]);
    let content = [FileContent::Text("a setting".to_owned()), FileContent::Link("/nowhere".into())];
    let files = ["of/some/program", "link"].into_iter().zip(content);
    request.command.files =
        files.map(|(path, content)| LaunchFile { path: path.into(), content }).collect();
    let launch = bed.start_request(request).await;
    let files = instance_dir::files(&bed.dir(&launch));
    assert_eq!(std::fs::read_to_string(files.join("of/some/program")).unwrap(), "a setting");
    assert_eq!(std::fs::read_link(files.join("link")).unwrap(), Path::new("/nowhere"));
    let mode = |name| std::fs::metadata(files.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(["", "of", "of/some", "of/some/program"].map(mode), [0o700, 0o700, 0o700, 0o600]);
    assert_eq!(bed.until_ended(&launch), exited(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_launch_whose_files_cannot_be_written_leaves_nothing() {
    let bed = Bed::new().await;
    let mut request = bed.request(&["exit:0"]);
    let file = LaunchFile { path: "twice".into(), content: FileContent::Text(String::new()) };
    request.command.files = vec![file.clone(), file];
    let launch = request.launch.clone();
    let error = bed.table().start(request).await.unwrap_err();
    assert!(matches!(error, StartError::Folder { .. }), "{error}");
    assert_eq!(instance_dir::find(&bed.config.state_dir, &launch), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_change_is_announced() {
    let bed = Bed::new().await;
    let nudge = Nudge::new();
    let mut config = bed.config.clone();
    let state = tempfile::tempdir().unwrap();
    state.path().clone_into(&mut config.state_dir);
    let mut wakeups = nudge.listen();
    let (table, _) = process::open(config, nudge).await.unwrap();
    table.start(bed.request(&["exit:0"])).await.unwrap();
    let ended = async {
        while !table.instances().iter().all(|instance| instance.phase.is_ended()) {
            wakeups.woken().await;
        }
    };
    tokio::time::timeout(crate::support::DEADLINE, ended).await.unwrap();
    table.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_has_one_live_instance() {
    let bed = Bed::new().await;
    let mut first = bed.request(&["sleep:600"]);
    first.key = key("agt_same");
    let mut second = bed.request(&["sleep:600"]);
    second.key = key("agt_same");
    let launch = bed.start_request(first.clone()).await;
    let refused = bed.table().start(second.clone()).await;
    assert!(matches!(refused, Err(StartError::KeyIsLive { .. })));
    assert!(matches!(bed.table().start(first).await, Err(StartError::Exists { .. })));
    bed.stop(&launch).await;
    bed.until_ended(&launch);
    bed.table().start(second).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_during_the_start_is_a_stop() {
    let bed = Bed::new().await;
    for _ in 0..10 {
        let request = bed.request(&["sleep:600"]);
        let launch = request.launch.clone();
        let start = bed.table().start(request);
        let stop = async {
            while !bed.table().request_stop(&launch, StopReason::Person, None).await.unwrap() {
                tokio::task::yield_now().await;
            }
        };
        let (started, ()) = tokio::join!(start, stop);
        started.unwrap();
        let end = bed.until_ended(&launch);
        assert!(matches!(end, ProcessEnd::StartFailed(_)) || end == killed(15), "{end:?}");
        assert_eq!(bed.instance(&launch).unwrap().stop, Some(StopReason::Person));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn living_agents_are_adopted() {
    let mut bed = Bed::new().await;
    let mut agents = Vec::new();
    for n in 0..3 {
        let launch = bed.start(&[&format!("wait-for:go{n}"), &format!("exit:{n}")]).await;
        agents.push((bed.until_running(&launch), launch));
    }
    bed.table().mark_authenticated(&agents[1].1).await.unwrap();
    bed.leave().await;
    let adoption = bed.open().await;
    assert_eq!(
        (adoption.n_adopted, adoption.n_ended, adoption.n_lost, adoption.n_strays),
        (3, 0, 0, 0)
    );
    assert_eq!(bed.table().instances().len(), 3);
    for (pid, launch) in &agents {
        let instance = bed.instance(launch).unwrap();
        assert!(instance.adopted);
        assert_eq!(bed.until_running(launch), *pid);
        assert!(!is_gone(*pid));
    }
    assert!(bed.instance(&agents[1].1).unwrap().is_marked_authenticated);
    std::fs::write(bed.file("go2"), "").unwrap();
    assert_eq!(bed.until_ended(&agents[2].1), exited(2));
    bed.stop(&agents[0].1).await;
    assert_eq!(bed.until_ended(&agents[0].1), killed(15));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exit_without_a_daemon_is_found_by_the_next() {
    let mut bed = Bed::new().await;
    let launch = bed.start(&["wait-for:go", "exit:42"]).await;
    bed.until_running(&launch);
    let dir = bed.dir(&launch);
    bed.leave().await;
    std::fs::write(bed.file("go"), "").unwrap();
    until("its end is recorded", || {
        std::fs::read_to_string(dir.join(Exit::FILE)).is_ok_and(|t| t.contains("ended_at\":\""))
    });
    let adoption = bed.open().await;
    assert_eq!((adoption.n_adopted, adoption.n_ended), (0, 1));
    assert_eq!(bed.until_ended(&launch), exited(42));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_that_a_dying_daemon_only_wrote_is_carried_out() {
    let mut bed = Bed::new().await;
    let launch = bed.start(&["sleep:600"]).await;
    bed.until_running(&launch);
    let dir = bed.dir(&launch);
    bed.leave().await;
    let stop = instance_dir::record::Stop::new(StopReason::Person, Duration::from_secs(5));
    instance_dir::record::write(&dir, &stop).unwrap();
    bed.open().await;
    assert_eq!(bed.until_ended(&launch), killed(15));
    assert_eq!(bed.instance(&launch).unwrap().stop, Some(StopReason::Person));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_patient_stop_after_a_hurried_one_does_not_prolong_it() {
    let bed = Bed::new().await;
    let launch = bed.start(&["ignore-term", "write:ready", "sleep:600"]).await;
    until("it takes no notice of TERM", || bed.file("ready").exists());
    let shim = bed.shim(&launch).pid;
    // The shim sees both at once, and only one of two equal signals.
    kill(shim, Signal::STOP);
    bed.table().request_stop(&launch, StopReason::Shutdown, Some(Duration::ZERO)).await.unwrap();
    bed.table()
        .request_stop(&launch, StopReason::Shutdown, Some(Duration::from_hours(1)))
        .await
        .unwrap();
    kill(shim, Signal::CONT);
    assert_eq!(bed.until_ended(&launch), killed(9));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_daemon_is_refused_and_the_next_is_not() {
    let mut bed = Bed::new().await;
    let refused = process::open(bed.config.clone(), Nudge::new()).await;
    let me = std::process::id().to_string();
    assert!(matches!(refused, Err(OpenError::InUse { pid, .. }) if pid == me));
    bed.leave().await;
    bed.open().await;
}

/// Starts an agent with a child in its group and one that has left its group and session. Returns
/// its launch, and the pids of its tree.
async fn start_tree(bed: &Bed) -> (LaunchId, Vec<i32>) {
    let launch =
        bed.start(&["term-ignoring-child", "setsid-child", "write:ready", "sleep:600"]).await;
    bed.written("ready");
    let shim = bed.shim(&launch).pid;
    let tree = until_some("the tree is complete", || {
        let tree = tree_of(shim);
        let is_asleep = |pid: &&i32| processes::comm(**pid).is_some_and(|comm| comm == "sleep");
        (tree.iter().filter(is_asleep).count() >= 3).then_some(tree)
    });
    (launch, tree)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_shim_takes_its_tree_with_it() {
    let bed = Bed::new().await;
    let bystander = bed.start(&["sleep:600"]).await;
    let bystander_pid = bed.until_running(&bystander);
    let (launch, tree) = start_tree(&bed).await;
    kill(bed.shim(&launch).pid, Signal::KILL);
    assert_eq!(bed.until_ended(&launch), ProcessEnd::Lost);
    let left: Vec<_> = tree.iter().filter(|&&pid| !is_gone(pid)).collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(!is_gone(bystander_pid));
    assert!(matches!(bed.phase(&bystander), Phase::Running { .. }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shim_killed_without_a_daemon_is_lost_and_its_tree_ended() {
    let mut bed = Bed::new().await;
    let (launch, tree) = start_tree(&bed).await;
    let shim = bed.shim(&launch).pid;
    bed.leave().await;
    kill(shim, Signal::KILL);
    until("the shim is dead", || is_gone(shim));
    let adoption = bed.open().await;
    assert_eq!((adoption.n_adopted, adoption.n_lost), (0, 1));
    assert_eq!(bed.until_ended(&launch), ProcessEnd::Lost);
    assert!(tree.iter().all(|&pid| is_gone(pid)));
    // The result is not determined again.
    bed.leave().await;
    assert_eq!(bed.open().await.n_ended, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_a_dying_daemon_did_not_finish_is_a_failed_start() {
    let mut bed = Bed::new().await;
    let launch = bed.start(&["exit:0"]).await;
    bed.until_ended(&launch);
    bed.until_shim_gone(&launch);
    let dir = bed.dir(&launch);
    bed.leave().await;
    // These are the files before the spawn.
    std::fs::remove_file(dir.join(Exit::FILE)).unwrap();
    std::fs::remove_file(dir.join("started.json")).unwrap();
    std::fs::write(dir.join("lock"), "").unwrap();
    assert_eq!(bed.open().await.n_lost, 1);
    let expected = ProcessEnd::StartFailed("the daemon died before its shim started".to_owned());
    assert_eq!(bed.until_ended(&launch), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_reboot_nothing_is_signalled() {
    let mut bed = Bed::new().await;
    let launch = bed.start(&["exit:0"]).await;
    bed.until_ended(&launch);
    bed.until_shim_gone(&launch);
    let dir = bed.dir(&launch);
    bed.leave().await;
    std::fs::remove_file(dir.join(Exit::FILE)).unwrap();
    let me = std::process::id();
    let of_another_boot =
        format!(r#"{{"pid":{me},"start_ticks":1,"boot_id":"another","pid_namespace":1}}"#);
    std::fs::write(dir.join("lock"), of_another_boot).unwrap();
    bed.open().await;
    assert!(matches!(bed.phase(&launch), Phase::Ended { end: ProcessEnd::Lost, .. }));
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_files_are_set_aside() {
    for garbage in ["", "{", "\0\0\0\0", r#"{"version":99}"#] {
        let mut bed = Bed::new().await;
        let (no_exit, no_spec) = (bed.start(&["exit:1"]).await, bed.start(&["exit:2"]).await);
        for launch in [&no_exit, &no_spec] {
            bed.until_ended(launch);
            bed.until_shim_gone(launch);
        }
        let dirs = (bed.dir(&no_exit), bed.dir(&no_spec));
        bed.leave().await;
        std::fs::write(dirs.0.join(Exit::FILE), garbage).unwrap();
        std::fs::write(dirs.1.join(Spec::FILE), garbage).unwrap();
        std::fs::write(
            instance_dir::instances(&bed.config.state_dir).join("lch_file"),
            "no folder",
        )
        .unwrap();
        let adoption = bed.open().await;
        assert_eq!((adoption.n_lost, adoption.n_set_aside), (1, 2), "{garbage:?}");
        assert_eq!(bed.until_ended(&no_exit), ProcessEnd::Lost);
        assert!(!dirs.1.exists());
    }
}

/// Replaces a file with something else.
fn replace(path: &Path, kind: &str) {
    let _ = std::fs::remove_file(path);
    match kind {
        "folder" => std::fs::create_dir(path).unwrap(),
        "pipe" => {
            rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        }
        "device" => symlink("/dev/zero", path).unwrap(),
        "loop" => symlink(path, path).unwrap(),
        "huge file" => std::fs::File::create(path).unwrap().set_len(20 << 30).unwrap(),
        other => panic!("{other}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_in_the_place_of_a_file_holds_up_the_next_daemon() {
    const KINDS: [&str; 5] = ["folder", "pipe", "device", "loop", "huge file"];
    let files = [
        Spec::FILE,
        Exit::FILE,
        "lock",
        "started.json",
        "stop.json",
        "authenticated",
        "output.log",
        ".ended.json",
    ];
    let cases: Vec<_> = KINDS.iter().flat_map(|kind| files.map(|file| (*kind, file))).collect();
    let mut bed = Bed::new().await;
    let mut launches = Vec::new();
    for _ in &cases {
        launches.push(bed.start(&["exit:0"]).await);
    }
    for launch in &launches {
        bed.until_ended(launch);
        bed.until_shim_gone(launch);
    }
    let dirs: Vec<_> = launches.iter().map(|launch| bed.dir(launch)).collect();
    bed.leave().await;
    for ((kind, file), dir) in cases.iter().zip(&dirs) {
        std::fs::remove_file(dir.join(Exit::FILE)).unwrap();
        replace(&dir.join(file), kind);
    }
    let instances = instance_dir::instances(&bed.config.state_dir);
    symlink(&dirs[1], instances.join("lch_link")).unwrap();
    let adoption =
        tokio::time::timeout(DEADLINE, bed.open()).await.expect("the start is not held up");
    assert_eq!(
        (adoption.n_set_aside, adoption.n_lost),
        (KINDS.len() + 1, cases.len() - KINDS.len())
    );
    for (((kind, file), dir), launch) in cases.iter().zip(&dirs).zip(&launches) {
        if *file == Spec::FILE {
            assert!(!dir.exists(), "{kind}");
            continue;
        }
        bed.until_ended(launch);
        assert!(matches!(record::read::<Exit>(dir), Ok(Some(_))), "{kind} in the place of {file}");
    }
    let names = std::fs::read_dir(&instances)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(names.filter(|name| name.starts_with(".corrupt-")).count(), KINDS.len() + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_whose_lock_was_replaced_is_adopted_and_ended() {
    for kind in ["folder", "pipe", "loop", "huge file"] {
        let mut bed = Bed::new().await;
        let launch = bed.start(&["write:ready", "sleep:600"]).await;
        let pid = bed.until_running(&launch);
        let shim = bed.shim(&launch);
        bed.leave().await;
        replace(&bed.dir(&launch).join("lock"), kind);
        let adoption =
            tokio::time::timeout(DEADLINE, bed.open()).await.expect("the start is not held up");
        assert_eq!((adoption.n_adopted, adoption.n_set_aside), (1, 0), "{kind}");
        // The lock names the shim, which holds another file.
        assert_eq!(lock::look(&bed.dir(&launch)).unwrap(), LockState::Free(Some(shim)), "{kind}");
        bed.stop(&launch).await;
        assert_eq!(bed.until_ended(&launch), killed(15), "{kind}");
        assert!(is_gone(pid));
    }
}

#[tokio::test]
async fn output_that_is_no_file_holds_up_nobody_who_follows_it() {
    for kind in ["folder", "pipe", "device", "loop"] {
        let state = tempfile::tempdir().unwrap();
        let launch: LaunchId = "lch_1".parse().unwrap();
        let dir = instance_dir::instance(state.path(), &launch);
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(instance_dir::rotated_log(&dir, 1), "older").unwrap();
        replace(&dir.join(instance_dir::OUTPUT_LOG), kind);
        let output = read_output(state.path(), &launch, None).unwrap().unwrap();
        let read: Vec<_> = output.map(Result::unwrap).collect().await;
        assert_eq!(read.concat(), b"older", "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_a_dying_daemon_just_made_is_removed() {
    let mut bed = Bed::new().await;
    bed.leave().await;
    let instances = instance_dir::instances(&bed.config.state_dir);
    for (name, file) in
        [("lch_empty", None), ("lch_locked", Some("lock")), ("lch_began", Some(".spec.json"))]
    {
        std::fs::create_dir(instances.join(name)).unwrap();
        if let Some(file) = file {
            std::fs::write(instances.join(name).join(file), "").unwrap();
        }
    }
    // The folder of an agent that ran, or that is about to run.
    for (name, file) in [("lch_ran", Exit::FILE), ("lch_printed", instance_dir::OUTPUT_LOG)] {
        std::fs::create_dir(instances.join(name)).unwrap();
        std::fs::write(instances.join(name).join(file), "").unwrap();
    }
    assert_eq!(bed.open().await.n_set_aside, 2);
    let mut left: Vec<_> = std::fs::read_dir(&instances)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort_unstable();
    assert!(left.iter().all(|name| name.starts_with(".corrupt-")), "{left:?}");
    assert_eq!(left.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exit_that_names_no_process_ends_nothing() {
    let mut bed = Bed::new().await;
    let launch = bed.start(&["sleep:600"]).await;
    let pid = bed.until_running(&launch);
    let exit =
        Exit { state: ExitState::Exited, ..Exit::without_agent(ProcessEnd::Lost, wall_clock()) };
    record::write(&bed.dir(&launch), &exit).unwrap();
    bed.leave().await;
    let adoption = bed.open().await;
    assert_eq!((adoption.n_adopted, adoption.n_ended), (1, 0));
    assert_eq!(bed.until_running(&launch), pid);
    bed.stop(&launch).await;
    assert_eq!(bed.until_ended(&launch), killed(15));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_without_a_folder_is_ended_before_anything_starts() {
    for what in ["folder", "spec"] {
        let mut bed = Bed::new().await;
        let launch = bed.start(&["write:ready", "sleep:600"]).await;
        bed.written("ready");
        let (pid, dir) = (bed.until_running(&launch), bed.dir(&launch));
        bed.leave().await;
        if what == "folder" {
            until("the folder is complete", || dir.join(instance_dir::OUTPUT_LOG).exists());
            std::fs::remove_dir_all(&dir).unwrap();
        } else {
            std::fs::write(dir.join(Spec::FILE), "garbage").unwrap();
        }
        let adoption = bed.open().await;
        assert!(adoption.n_strays >= 1, "{what}: {adoption:?}");
        assert_eq!(adoption.n_adopted, 0);
        assert!(is_gone(pid));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_removed_under_a_living_agent_loses_its_end_and_nothing_else() {
    let bed = Bed::new().await;
    let launch = bed.start(&["wait-for:go"]).await;
    let pid = bed.until_running(&launch);
    let dir = bed.dir(&launch);
    // This is its last file. A file that appears during the removal would make it fail.
    until("the folder is complete", || dir.join(instance_dir::OUTPUT_LOG).exists());
    std::fs::remove_dir_all(dir).unwrap();
    std::fs::write(bed.file("go"), "").unwrap();
    assert_eq!(bed.until_ended(&launch), ProcessEnd::Lost);
    assert!(is_gone(pid));
}
