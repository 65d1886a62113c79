//! Measures the workspaces of tasks: how long it takes to make one, to keep its content and to
//! start an agent in it, and the space that it needs beyond its files.
#![allow(clippy::disallowed_methods, reason = "a bench waits and asks the time")]

mod support;

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use domain::workspace::{KeepOrder, Order, Prepared};
use support::agent::{self, Pipe, Role, monotonic};
use support::bed::{Bed, Wanted};
use support::clients::Control;
use support::figures::{Figure, Target, Times, print};
use workspace::{Checkouts, KeepPolicy, find_work_tree};

/// The repository has `N_FOLDERS` folders with `N_IN_FOLDER` files each.
const N_FOLDERS: usize = 200;
const N_IN_FOLDER: usize = 100;
const FILE_SIZE: usize = 7_100;
/// The number of workspaces that are made one after the other.
const N_MADE: usize = 7;
/// The number of workspaces that are made at once.
const N_AT_ONCE: usize = 20;
/// The number of times that a workspace is kept, and of files that change before each time.
const N_KEPT: usize = 10;
const N_CHANGED: usize = 50;
const N_STARTS: usize = 40;
const N_LOOKS: usize = 2_000;

fn main() -> Result<()> {
    if agent::is_agent() {
        return Ok(());
    }
    let folder = Bed::folder()?;
    let source = folder.path().join("source");
    make_source(&source)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut figures = Vec::new();
    runtime.block_on(async {
        let bed = Workspaces::new(folder.path(), source.clone());
        bed.make(&mut figures).await?;
        bed.make_at_once(&mut figures).await?;
        bed.keep(&mut figures).await?;
        look(&mut figures).await
    })?;
    figures.push(starts(&source)?);
    print(&figures);
    Ok(())
}

/// The workspaces of one source.
struct Workspaces {
    folder: PathBuf,
    source: PathBuf,
    checkouts: Arc<Checkouts>,
}

impl Workspaces {
    fn new(folder: &Path, source: PathBuf) -> Self {
        let checkouts = Arc::new(Checkouts::new(folder.join("workspaces")));
        Self { folder: folder.to_owned(), source, checkouts }
    }

    fn order(&self, id: &str) -> Result<Order> {
        Ok(Order {
            id: id.parse()?,
            project: "prj".parse()?,
            branch: format!("agents/{id}"),
            source: self.source.clone(),
            agent: "agt".parse()?,
            base: None,
            dependencies: Vec::new(),
            submodules: false,
            lfs: false,
            begins_at: None,
            restores: None,
            forge: None,
            run_as: None,
        })
    }

    fn tree(&self, order: &Order) -> PathBuf {
        self.checkouts.places.directory(&order.project, &order.id, "")
    }

    /// Measures workspaces that are made one after the other, each before a bare checkout of the
    /// same files. All files stay: some file systems make files slowly after many were removed.
    async fn make(&self, figures: &mut Vec<Figure>) -> Result<()> {
        // The first one makes the keep repository.
        let first = self.order("first")?;
        self.checkouts.clones.prepare(&first).await?;
        let (mut times, mut floor) = (Times::default(), Times::default());
        for n in 0..N_MADE {
            let order = self.order(&format!("made-{n}"))?;
            let began = Instant::now();
            self.checkouts.clones.prepare(&order).await?;
            times.add(began.elapsed());
            let bare = self.folder.join(format!("bare-{n}"));
            git(&self.folder, &["clone", "-q", "-s", "-n", "source", &format!("bare-{n}")])?;
            let began = Instant::now();
            git(&bare, &["checkout", "-q", "-f", "main"])?;
            floor.add(began.elapsed());
        }
        figures.push(Figure {
            target: Some(Target::AtMost(1_000.0)),
            floor: Some(floor.median()),
            max_ratio: Some(1.3),
            ..Figure::of_times("a workspace of 20,000 files; floor: a bare checkout", &times)
        });
        let tree = self.tree(&first);
        let all = size_of(tree.parent().context("a folder")?)?;
        let git = size_of(&tree.join(".git"))?;
        let files = size_of(&tree)? - git;
        #[allow(clippy::cast_precision_loss, reason = "some megabytes")]
        let beyond = (all - files) as f64 / f64::from(1 << 20);
        figures.push(Figure {
            target: Some(Target::AtMost(3.0)),
            ..Figure::new("the disk of a workspace beyond its files", "MiB", beyond)
        });
        Ok(())
    }

    async fn make_at_once(&self, figures: &mut Vec<Figure>) -> Result<()> {
        let floor = self.check_out_at_once()?;
        let mut steps = tokio::task::JoinSet::new();
        let began = Instant::now();
        for n in 0..N_AT_ONCE {
            let order = self.order(&format!("at-once-{n}"))?;
            let checkouts = Arc::clone(&self.checkouts);
            steps.spawn(async move { checkouts.clones.prepare(&order).await });
        }
        while let Some(made) = steps.join_next().await {
            made??;
        }
        let took = began.elapsed().as_secs_f64() * 1e3;
        figures.push(Figure {
            target: Some(Target::AtMost(12_000.0)),
            floor: Some(floor),
            ..Figure::new("20 workspaces at once; floor: 20 bare checkouts at once", "ms", took)
        });
        Ok(())
    }

    /// Returns how long bare checkouts of the same files take at once, in milliseconds.
    fn check_out_at_once(&self) -> Result<f64> {
        let names: Vec<String> = (0..N_AT_ONCE).map(|n| format!("bare-at-once-{n}")).collect();
        for name in &names {
            git(&self.folder, &["clone", "-q", "-s", "-n", "source", name])?;
        }
        let began = Instant::now();
        let mut running = Vec::new();
        for name in &names {
            let mut checkout = Command::new("git");
            checkout.args(["checkout", "-q", "-f", "main"]).current_dir(self.folder.join(name));
            running.push(checkout.spawn()?);
        }
        for mut checkout in running {
            ensure!(checkout.wait()?.success(), "a checkout failed");
        }
        Ok(began.elapsed().as_secs_f64() * 1e3)
    }

    /// Measures how long it takes to keep a workspace in which some files were changed.
    async fn keep(&self, figures: &mut Vec<Figure>) -> Result<()> {
        let order = self.order("kept")?;
        let prepared = self.checkouts.clones.prepare(&order).await?;
        let Prepared { branch, base_ref, base_commit, .. } = prepared;
        let tree = self.tree(&order);
        let Order { id, project, agent, .. } = order;
        let keep = KeepOrder {
            id,
            project,
            branch,
            base_ref,
            base_commit,
            agent,
            launch: None,
            chosen: None,
            dropped: [].into(),
            conflict: None,
        };
        let policy = KeepPolicy { ignored_max: 64 << 20, rebuildable: Vec::new() };
        self.checkouts.clones.keep(&keep, &policy).await?;
        let mut times = Times::default();
        for round in 0..N_KEPT {
            for n in 0..N_CHANGED {
                let file = tree.join(format!("folder-{n}/file-{round}"));
                fs::write(&file, content(1 + round * N_CHANGED + n))?;
            }
            let began = Instant::now();
            let kept = self.checkouts.clones.keep(&keep, &policy).await?;
            times.add(began.elapsed());
            ensure!(kept.proof.is_some(), "not all was kept: {:?}", kept.left_out);
        }
        figures.push(Figure {
            target: Some(Target::AtMost(150.0)),
            ..Figure::of_times("20,000 files kept, of which 50 were changed", &times)
        });
        Ok(())
    }
}

/// Measures what a start in a folder outside of git needs more than without workspaces: the look
/// for a git work tree.
async fn look(figures: &mut Vec<Figure>) -> Result<()> {
    let folder = Bed::folder()?;
    let below = folder.path().join("a/b/c/d");
    fs::create_dir_all(&below)?;
    let mut times = Times::default();
    for _ in 0..N_LOOKS {
        let below = below.clone();
        let began = Instant::now();
        let found = tokio::task::spawn_blocking(move || find_work_tree(&below)).await?;
        times.add(began.elapsed());
        ensure!(found.is_none(), "the folder for temporary files is in a git work tree");
    }
    figures.push(Figure {
        target: Some(Target::AtMost(0.1)),
        ..Figure::of_times("a start in a folder outside of git: what it takes more", &times)
    });
    Ok(())
}

/// Measures the start of an agent whose workspace is ready, against one in a folder without git.
fn starts(source: &Path) -> Result<Figure> {
    let folder = Bed::folder()?;
    let mut beginnings = Pipe::make(folder.path().join("beginnings"))?;
    let role = Role::Work(beginnings.path().to_owned());
    let wanted =
        Wanted { settings: "polling_interval: 10s\nrun: { linger: 0 }", role, n_agents: 1 };
    let mut bed = Bed::start_in(folder, &wanted)?;
    bed.apply(&format!(
        "projects:\n  cloned: {{ working_directory: {}, workspace: clone, agents: [agt_0] }}\n\
         tasks:\n  tsk_cloned: {{ project: cloned, title: a task, assignee: agt_0 }}\n",
        source.display()
    ))?;
    let mut control = bed.control()?;
    let (mut with, mut without) = (Times::default(), Times::default());
    // The first start makes the workspace.
    start(&mut bed, &mut control, &mut beginnings, "tsk_cloned")?;
    for _ in 0..N_STARTS {
        with.add(start(&mut bed, &mut control, &mut beginnings, "tsk_cloned")?);
        without.add(start(&mut bed, &mut control, &mut beginnings, "tsk_0")?);
    }
    Ok(Figure {
        target: Some(Target::AtMost(without.median() + 5.0)),
        floor: Some(without.median()),
        ..Figure::of_times("a start in a ready workspace; floor: without git", &with)
    })
}

/// Returns the time from the change of a task to the first instruction of its agent. Returns when
/// the next start may follow.
fn start(
    bed: &mut Bed,
    control: &mut Control,
    beginnings: &mut Pipe,
    task: &str,
) -> Result<Duration> {
    let asked = monotonic();
    control.set_status(task, "in_progress")?;
    let took = beginnings.next()?.saturating_sub(asked);
    let is_cloned = task == "tsk_cloned";
    bed.wait_until("the launch has ended", |_| {
        let is_kept =
            !is_cloned || control.get(&format!("/tasks/{task}/workspace"))?["state"] == "ready";
        let is_ended = |launch: &Value| launch["state"] == "ended";
        Ok(is_kept && Bed::launches(control, 1, is_ended)?.len() == 1)
    })?;
    control.set_status(task, "todo")?;
    std::thread::sleep(Duration::from_millis(5));
    Ok(took)
}

/// Makes a repository with one commit, whose objects are packed.
fn make_source(source: &Path) -> Result<()> {
    for n in 0..N_FOLDERS {
        let folder = source.join(format!("folder-{n}"));
        fs::create_dir_all(&folder)?;
        for m in 0..N_IN_FOLDER {
            fs::write(folder.join(format!("file-{m}")), content(1_000_000 + n * N_IN_FOLDER + m))?;
        }
    }
    git(source, &["init", "-q", "-b", "main"])?;
    git(source, &["add", "."])?;
    git(source, &["commit", "-q", "-m", "first"])?;
    git(source, &["repack", "-a", "-d", "-q", "--window=0"])
}

/// Returns text that is the same for each number, and that a pack holds in half of its size.
fn content(number: usize) -> String {
    let mut text = String::with_capacity(FILE_SIZE + 16);
    let mut state = number as u64 | 1 << 40;
    while text.len() < FILE_SIZE {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let _ = writeln!(text, "{state:016x}");
    }
    text
}

fn git(folder: &Path, arguments: &[&str]) -> Result<()> {
    let who = ["-c", "user.name=Ann", "-c", "user.email=ann@example.invalid"];
    let mut command = Command::new("git");
    command.args(who).args(arguments).current_dir(folder).stdin(Stdio::null());
    ensure!(command.status()?.success(), "git {arguments:?} failed");
    Ok(())
}

/// Returns the space that a folder and all that is in it use, in bytes.
fn size_of(path: &Path) -> Result<u64> {
    let found = path.symlink_metadata()?;
    let mut sum = found.blocks() * 512;
    if found.is_dir() {
        for entry in fs::read_dir(path)? {
            sum += size_of(&entry?.path())?;
        }
    }
    Ok(sum)
}
