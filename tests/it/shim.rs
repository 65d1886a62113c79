//! One agent under one shim: its environment, its records, and that no process of it stays.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, Instant};

use domain::Phase;
use domain::launch::{ProcessEnd, StopReason};
use domain::{LaunchId, Secret};
use machine::instance_dir::clock::BootInstant;
use machine::instance_dir::{self, SHIM_COMM};
use machine::sys::processes;
use rustix::process::Signal;
use supervisor::process::StartError;

use crate::support::{Bed, exited, is_gone, kill, killed, tree_of, until, until_some};

const TERM: i32 = 15;
const KILL: i32 = 9;

#[tokio::test(flavor = "multi_thread")]
async fn an_exit_code_is_recorded() {
    let bed = Bed::new().await;
    let launch = bed.start(&["print:hello", "stderr:there", "exit:3"]).await;
    assert_eq!(bed.until_ended(&launch), exited(3));
    let output = bed.output(&launch);
    assert!(output.contains("hello\n") && output.contains("there\n"), "{output:?}");
    let record = bed.exit_record(&launch);
    assert_eq!((record.n_leaked, record.n_dropped_lines, record.stop), (0, 0, None));
    assert!(!has_two_ends(&bed, &launch), "nothing outlived it");
}

/// Returns whether the exit was recorded before the end, in the place that was reserved for it.
fn has_two_ends(bed: &Bed, launch: &LaunchId) -> bool {
    !bed.dir(launch).join(".exited.json").exists()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadly_signal_is_recorded() {
    let bed = Bed::new().await;
    let launch = bed.start(&["segv"]).await;
    assert_eq!(bed.until_ended(&launch), killed(11));
    let launch = bed.start(&["sleep:600"]).await;
    kill(bed.until_running(&launch), Signal::KILL);
    assert_eq!(bed.until_ended(&launch), killed(KILL));
    assert!(bed.exit_record(&launch).was_killed_by_others);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_ends_the_agent_with_term() {
    let bed = Bed::new().await;
    let launch = bed.start(&["on-term:7", "write:ready", "sleep:600"]).await;
    bed.written("ready");
    let (pid, shim) = (bed.until_running(&launch), bed.shim(&launch));
    assert_eq!(processes::comm(shim.pid).as_deref(), Some(SHIM_COMM));
    assert!(bed.stop(&launch).await);
    assert_eq!(bed.until_ended(&launch), exited(7));
    assert_eq!(bed.exit_record(&launch).stop, Some(StopReason::Person));
    assert!(is_gone(pid));
    until("the shim is reaped", || {
        processes::read(shim.pid).is_none_or(|p| p.start_ticks != shim.start_ticks)
    });
    assert!(!bed.stop(&launch).await, "a stop of what has ended says so");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_ignores_term_is_killed_at_the_stop_timeout() {
    let timeout = Duration::from_millis(500);
    let bed = Bed::with(|config| config.stop.timeout = timeout).await;
    let launch = bed.start(&["ignore-term", "write:ready", "sleep:600"]).await;
    bed.written("ready");
    let asked = Instant::now();
    bed.stop(&launch).await;
    assert_eq!(bed.until_ended(&launch), killed(KILL));
    let took = asked.elapsed();
    assert!(took >= timeout && took < timeout + Duration::from_millis(400), "{took:?}");
    assert!(!bed.exit_record(&launch).was_killed_by_others);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_stop_shortens_the_time_and_keeps_the_first_reason() {
    let bed = Bed::with(|config| config.stop.timeout = Duration::from_mins(10)).await;
    let launch = bed.start(&["ignore-term", "write:ready", "sleep:600"]).await;
    bed.written("ready");
    bed.stop(&launch).await;
    let again = bed.table().request_stop(&launch, StopReason::Shutdown, Some(Duration::ZERO));
    assert!(again.await.unwrap());
    assert_eq!(bed.until_ended(&launch), killed(KILL));
    assert_eq!(bed.exit_record(&launch).stop, Some(StopReason::Person));
    assert_eq!(bed.instance(&launch).unwrap().stop, Some(StopReason::Person));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_ignores_term_does_not_survive_its_agent() {
    let bed = Bed::with(|config| config.stop.leak_grace = Duration::from_millis(200)).await;
    let launch = bed.start(&["on-term:0", "term-ignoring-child", "write:ready", "sleep:600"]).await;
    bed.written("ready");
    let tree = tree_of(bed.until_running(&launch));
    bed.stop(&launch).await;
    assert_eq!(bed.until_ended(&launch), exited(0));
    assert!(tree.iter().all(|&pid| is_gone(pid)));
    assert!(bed.exit_record(&launch).n_leaked >= 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_agent_is_ended() {
    let bed = Bed::new().await;
    let launch = bed.start(&["write:ready", "sleep:600"]).await;
    bed.written("ready");
    kill(bed.until_running(&launch), Signal::STOP);
    bed.stop(&launch).await;
    assert_eq!(bed.until_ended(&launch), killed(TERM));
}

/// Waits until the agent has this number of descendants, and returns the pids of its tree.
fn until_tree(bed: &Bed, launch: &LaunchId, n: usize) -> Vec<i32> {
    let shim = bed.shim(launch).pid;
    until_some("the tree is complete", || Some(tree_of(shim)).filter(|tree| tree.len() >= n))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemonised_child_is_found_and_ended() {
    let bed = Bed::new().await;
    let launch = bed.start(&["setsid-child", "wait-for:go", "exit:0"]).await;
    // These are the agent, its sleep, and the child that has left its session.
    let shim = bed.shim(&launch).pid;
    let daemonised = until_some("the child has its own session", || {
        let all = processes::list().unwrap();
        let found = processes::descendants(&all, shim)
            .into_iter()
            .find(|process| process.session == process.pid);
        found.filter(|process| processes::comm(process.pid).is_some_and(|comm| comm == "sleep"))
    });
    std::fs::write(bed.file("go"), "").unwrap();
    assert_eq!(bed.until_ended(&launch), exited(0));
    assert!(is_gone(daemonised.pid));
    assert!(bed.exit_record(&launch).n_leaked >= 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exit_is_recorded_before_its_leftovers_end() {
    let bed = Bed::with(|config| config.stop.leak_grace = Duration::from_millis(400)).await;
    let launch = bed
        .start(&["term-ignoring-child", "fork-child", "write:ready", "wait-for:go", "exit:5"])
        .await;
    bed.written("ready");
    let tree = until_tree(&bed, &launch, 3);
    std::fs::write(bed.file("go"), "").unwrap();
    until("the exit is seen", || matches!(bed.phase(&launch), Phase::Exited { .. }));
    assert_eq!(bed.until_ended(&launch), exited(5));
    assert!(tree.iter().all(|&pid| is_gone(pid)));
    let record = bed.exit_record(&launch);
    let took = record.ended_at.unwrap().since(record.exited_at);
    assert!(took >= Duration::from_millis(350) && took < Duration::from_millis(900), "{took:?}");
    assert!(record.n_leaked >= 2, "{}", record.n_leaked);
    assert!(has_two_ends(&bed, &launch));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_pipe_does_not_delay_the_exit() {
    let bed = Bed::new().await;
    let launch = bed.start(&["hold-pipe", "write:ready", "partial:the end"]).await;
    bed.written("ready");
    assert_eq!(bed.until_ended(&launch), exited(0));
    let record = bed.exit_record(&launch);
    // The child would hold the pipe for ten minutes.
    assert!(record.ended_at.unwrap().since(record.exited_at) < Duration::from_mins(1));
    assert_eq!(bed.output(&launch), "the end\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_standard_output_keeps_nobody_busy() {
    let bed = Bed::new().await;
    let launch = bed.start(&["close-stdout", "write:ready", "wait-for:go"]).await;
    bed.written("ready");
    let shim = bed.shim(&launch).pid;
    let ticks = || {
        let stat = std::fs::read_to_string(format!("/proc/{shim}/stat")).unwrap();
        let fields: Vec<u64> =
            stat.rsplit(')').next().unwrap().split(' ').filter_map(|n| n.parse().ok()).collect();
        fields[10] + fields[11]
    };
    let (start, begun) = (ticks(), Instant::now());
    until("half a second is over", || begun.elapsed() > Duration::from_millis(500));
    assert!(ticks() - start <= 5, "the shim used {} of 50 ticks", ticks() - start);
    std::fs::write(bed.file("go"), "").unwrap();
    assert_eq!(bed.until_ended(&launch), exited(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_tree_is_ended_in_one_stop() {
    let bed = Bed::new().await;
    let launch = bed.start(&["children:200", "write:ready", "sleep:600"]).await;
    bed.written("ready");
    let tree = until_tree(&bed, &launch, 200);
    bed.table().request_stop(&launch, StopReason::Person, Some(Duration::ZERO)).await.unwrap();
    bed.until_ended(&launch);
    assert!(tree.iter().all(|&pid| is_gone(pid)));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_has_three_descriptors() {
    // This is like a daemon that was started with an unknown descriptor.
    let leaked = rustix::io::dup(std::io::stdout()).unwrap();
    let bed = Bed::new().await;
    let launch = bed.start_request(bed.request_program("ls", &["-1", "/proc/self/fd"])).await;
    assert_eq!(bed.until_ended(&launch), exited(0));
    // Descriptor 3 is the folder that `ls` reads.
    assert_eq!(bed.output(&launch), "0\n1\n2\n3\n");
    drop(leaked);
}

#[test]
#[allow(unsafe_code, reason = "a signal is ignored in this process")]
fn an_agent_has_a_clean_signal_state() {
    use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, pthread_sigmask, signal};
    // SAFETY: no handler is installed, and no other test depends on the signal.
    unsafe { signal(Signal::SIGHUP, SigHandler::SigIgn) }.unwrap();
    let mut blocked = SigSet::empty();
    blocked.add(Signal::SIGTERM);
    // The threads of the runtime below inherit the mask.
    pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&blocked), None).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let bed = Bed::new().await;
        let launch = bed.start_request(bed.request_program("cat", &["/proc/self/status"])).await;
        assert_eq!(bed.until_ended(&launch), exited(0));
        let output = bed.output(&launch);
        for field in ["SigBlk", "SigIgn", "SigCgt", "SigPnd"] {
            assert!(output.contains(&format!("{field}:\t0000000000000000\n")), "{output}");
        }
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_reads_its_prompt_and_then_the_end() {
    let bed = Bed::new().await;
    let mut request = bed.request(&["read-stdin:got"]);
    request.command.stdin = Some(Secret::new("what to do\nin two lines"));
    bed.start_request(request).await;
    assert_eq!(bed.written("got"), "what to do\nin two lines");
    bed.start(&["read-stdin:nothing"]).await;
    assert_eq!(bed.written("nothing"), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_has_no_terminal_and_only_its_own_environment() {
    let bed = Bed::new().await;
    let mut request = bed.request(&["env:env"]);
    request.command.environment.push(("AGENT_ID".to_owned(), Secret::new("agt_x")));
    let launch = bed.start_request(request).await;
    let text = bed.written("env");
    let mut names: Vec<&str> =
        text.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    names.retain(|name| !["PWD", "OLDPWD", "SHLVL", "_"].contains(name));
    names.sort_unstable();
    assert_eq!(names, ["AGENT_COORDINATOR_MARK", "AGENT_ID", "PATH", "TMPDIR"]);
    assert!(text.contains(&format!("/{launch}\n")));
    let no_terminal = bed.start_request(bed.request_program("sh", &["-c", ": </dev/tty"])).await;
    assert_ne!(bed.until_ended(&no_terminal), exited(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_reach_no_file_and_no_argument_list() {
    let bed = Bed::new().await;
    let mut request = bed.request(&[
        "print:my key is hunter22-secret, sess_0123456789abcdefgh",
        "write:ready",
        "wait-for:go",
    ]);
    request.command.environment.push(("AGENT_PASSKEY".to_owned(), Secret::new("hunter22-secret")));
    request.command.stdin = Some(Secret::new("prompt with hunter22-secret"));
    request.command.redact.push(Secret::new("hunter22-secret"));
    let launch = bed.start_request(request).await;
    bed.written("ready");
    let shim = bed.shim(&launch).pid;
    let arguments = std::fs::read_to_string(format!("/proc/{shim}/cmdline")).unwrap();
    assert!(!arguments.contains("hunter22") && !arguments.contains("prompt"), "{arguments:?}");
    std::fs::write(bed.file("go"), "").unwrap();
    bed.until_ended(&launch);
    for file in std::fs::read_dir(bed.dir(&launch)).unwrap() {
        let path = file.unwrap().path();
        let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
        assert!(
            !text.contains("hunter22") && !text.contains("0123456789abcdefgh"),
            "{}: {text}",
            path.display()
        );
    }
    assert!(bed.output(&launch).contains("my key is [redacted], sess_…"));
}

#[tokio::test(flavor = "multi_thread")]
async fn output_keeps_its_limits() {
    let bed = Bed::with(|config| {
        config.output.max_file = 200_000;
        config.output.files = 3;
    })
    .await;
    let launch = bed.start(&["chatter:3000000", "long-line:1000000", "print:the last"]).await;
    assert_eq!(bed.until_ended(&launch), exited(0));
    let files = instance_dir::output_files(&bed.dir(&launch));
    assert_eq!(files.len(), 3);
    assert!(files.iter().all(|file| file.metadata().unwrap().len() <= 200_000));
    let output = bed.output(&launch);
    assert!(output.ends_with("the last\n"));
    assert!(output.lines().all(|line| line.len() < 66_000));
    assert!(output.contains("bytes dropped]\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hangup_reopens_the_log() {
    let bed = Bed::new().await;
    let launch = bed.start(&["print:one", "wait-for:go", "print:two"]).await;
    let (dir, shim) = (bed.dir(&launch), bed.shim(&launch).pid);
    let log = dir.join(instance_dir::OUTPUT_LOG);
    until("the first line is there", || {
        std::fs::read_to_string(&log).is_ok_and(|text| text == "one\n")
    });
    std::fs::rename(&log, dir.join("moved")).unwrap();
    kill(shim, Signal::HUP);
    until("there is a new file", || log.exists());
    std::fs::write(bed.file("go"), "").unwrap();
    assert_eq!(bed.until_ended(&launch), exited(0));
    assert_eq!(std::fs::read_to_string(log).unwrap(), "two\n");
    assert_eq!(std::fs::read_to_string(dir.join("moved")).unwrap(), "one\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burnt_fuse_starts_nothing() {
    let bed = Bed::new().await;
    let mut request = bed.request(&["write:started"]);
    request.start_deadline = BootInstant::now();
    let launch = bed.start_request(request).await;
    assert_eq!(bed.until_ended(&launch), ProcessEnd::StartDeadlinePassed);
    assert!(!bed.file("started").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_fuse_ends_an_agent_that_never_authenticated() {
    let bed = Bed::new().await;
    let mut requests = [
        bed.request(&["write:one", "sleep:600"]),
        bed.request(&["write:two", "wait-for:go", "exit:4"]),
    ];
    for request in &mut requests {
        request.start_deadline = BootInstant::now() + Duration::from_millis(700);
    }
    let [never, authenticated] = requests;
    let (never, authenticated) =
        (bed.start_request(never).await, bed.start_request(authenticated).await);
    bed.table().mark_authenticated(&authenticated).await.unwrap();
    bed.table().mark_authenticated(&authenticated).await.unwrap();
    assert_eq!(bed.until_ended(&never), killed(TERM));
    assert_eq!(bed.instance(&never).unwrap().stop, Some(StopReason::StartTimeout));
    assert!(matches!(bed.phase(&authenticated), Phase::Running { .. }));
    std::fs::write(bed.file("go"), "").unwrap();
    assert_eq!(bed.until_ended(&authenticated), exited(4));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shim_that_slept_past_its_start_deadline_gives_its_agent_no_more_time() {
    // A busy machine must start the agent in this time.
    let start_deadline = Duration::from_secs(3);
    let bed = Bed::with(|config| config.stop.timeout = Duration::from_millis(500)).await;
    let mut request =
        bed.request(&["run:trap 'echo told >told' TERM", "write:ready", "sleep:600", "sleep:600"]);
    request.start_deadline = BootInstant::now() + start_deadline;
    let deadline_at = Instant::now() + start_deadline;
    let launch = bed.start_request(request).await;
    bed.written("ready");
    let shim = bed.shim(&launch).pid;
    kill(shim, Signal::STOP);
    let slept_long = deadline_at + bed.config.stop.timeout;
    until("its time is over, and that of a stop", || Instant::now() > slept_long);
    assert!(!is_gone(bed.until_running(&launch)), "nobody else ends it");
    kill(shim, Signal::CONT);
    assert_eq!(bed.until_ended(&launch), killed(KILL));
    assert_eq!(bed.instance(&launch).unwrap().stop, Some(StopReason::StartTimeout));
    assert!(!bed.file("told").exists(), "it was not asked to go and waited for");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_start_names_the_object() {
    use std::os::unix::fs::PermissionsExt;
    let bed = Bed::new().await;
    let in_work = |name: &str| bed.file(name).to_str().unwrap().to_owned();
    std::fs::write(in_work("plain"), "#!/bin/sh\n").unwrap();
    std::fs::write(in_work("lost"), "#!/no/such/interpreter\n").unwrap();
    std::fs::set_permissions(in_work("lost"), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::create_dir(in_work("folder")).unwrap();
    let mut gone = bed.request(&[]);
    gone.command.working_directory = bed.file("gone");
    let mut file = bed.request(&[]);
    file.command.working_directory = bed.file("plain");
    let long = "x".repeat(200_000);
    let cases = [
        (bed.request_program(&in_work("missing"), &[]), "missing` does not exist"),
        (bed.request_program(&in_work("plain"), &[]), "plain` is not executable"),
        (bed.request_program(&in_work("folder"), &[]), "folder` is a directory"),
        (bed.request_program(&in_work("lost"), &[]), "interpreter `/no/such/interpreter`"),
        (bed.request_program("true", &[&long]), "is too long"),
        (gone, "gone` does not exist"),
        (file, "plain` is not a directory"),
    ];
    for (request, expected) in cases {
        let launch = bed.start_request(request).await;
        let end = bed.until_ended(&launch);
        assert!(
            matches!(&end, ProcessEnd::StartFailed(text) if text.contains(expected)),
            "{expected}: {end:?}"
        );
    }
    let unknown = bed.request_program("no-such-program", &[]);
    let launch = unknown.launch.clone();
    let error = bed.table().start(unknown).await.unwrap_err();
    assert!(matches!(error, StartError::ProgramNotFound { .. }), "{error}");
    assert_eq!(bed.instance(&launch), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_loses_lines_and_neither_the_agent_nor_its_end() {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};
    let bed = Bed::new().await;
    let steps = [
        "wait-for:go",
        "chatter:100000",
        "write:chattered",
        "wait-for:space",
        "print:the last",
        "exit:3",
    ];
    let launch = bed.start(&steps).await;
    let shim = Pid::from_raw(bed.shim(&launch).pid);
    let unlimited = rustix::process::getrlimit(Resource::Fsize);
    bed.until_running(&launch);
    // There is room for a record, and for little of the output.
    prlimit(shim, Resource::Fsize, Rlimit { current: Some(8192), ..unlimited }).unwrap();
    std::fs::write(bed.file("go"), "").unwrap();
    bed.written("chattered");
    assert!(
        std::fs::metadata(bed.dir(&launch).join(instance_dir::OUTPUT_LOG)).unwrap().len() <= 8192
    );
    prlimit(shim, Resource::Fsize, unlimited).unwrap();
    std::fs::write(bed.file("space"), "").unwrap();
    assert_eq!(bed.until_ended(&launch), exited(3));
    assert!(bed.exit_record(&launch).n_dropped_lines > 100);
    assert!(bed.output(&launch).ends_with("the last\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_stopped_and_continued_by_others_is_seen() {
    let bed = Bed::new().await;
    let launch = bed.start(&["write:ready", "wait-for:go", "exit:0"]).await;
    bed.written("ready");
    let pid = bed.until_running(&launch);
    let is_suspended = || bed.instance(&launch).unwrap().condition.suspended_since.is_some();
    assert!(!is_suspended());
    kill(pid, Signal::STOP);
    until("it is seen as stopped", is_suspended);
    kill(pid, Signal::CONT);
    until("it is seen as continued", || !is_suspended());
    std::fs::write(bed.file("go"), "").unwrap();
    assert_eq!(bed.until_ended(&launch), exited(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_has_the_limits_that_the_daemon_was_given() {
    let bed = Bed::with(|config| config.descriptors = Some(300)).await;
    let launch = bed.start(&["run:ulimit -S -n >limits; ulimit -f >>limits", "exit:0"]).await;
    assert_eq!(bed.until_ended(&launch), exited(0));
    let expected = match rustix::process::getrlimit(rustix::process::Resource::Fsize).current {
        Some(bytes) => (bytes / 512).to_string(),
        None => "unlimited".to_owned(),
    };
    assert_eq!(bed.written("limits"), format!("300\n{expected}\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_marker_of_a_launch_needs_no_new_place_on_the_disk() {
    let bed = Bed::new().await;
    let launch = bed.start(&["wait-for:go"]).await;
    assert!(!instance_dir::is_marked_authenticated(&bed.dir(&launch)));
    bed.table().mark_authenticated(&launch).await.unwrap();
    assert!(instance_dir::is_marked_authenticated(&bed.dir(&launch)));
    let inode = |name: &str| std::fs::metadata(bed.dir(&launch).join(name)).unwrap().ino();
    assert_eq!(inode("authenticated"), inode("spec.json"), "another name of a file that is there");
    std::fs::write(bed.file("go"), "").unwrap();
    bed.until_ended(&launch);
}
