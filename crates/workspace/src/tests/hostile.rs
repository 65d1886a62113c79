//! Repositories of hostile users, and the steps of a daemon of root on them. A seed chooses both.
//!
//! A variable before `cargo test -p agent-coordinator-workspace --lib hostile` chooses the seeds:
//!
//! ```text
//! AGENT_COORDINATOR_TEST_HOSTILE=20000     this number, from seed 0 on
//! AGENT_COORDINATOR_TEST_HOSTILE_SEED=42   this one
//! ```
//!
//! A bed of a seed is a copy of a template, so that no repository is made anew:
//!
//! ```text
//! source/      the project's repository, of a person, of the agents' user, or of root
//! workspaces/  the clones. The clone `one` is of the agents' user or of root, if it exists
//! private-0/   a secret, a folder and a repository that only root can enter
//! private-1/   the same of the person, and `private-65534` of the agents' user
//! marks/       files named like the users as whom a program of a repository ran
//! home/        a folder of a person, for files that are written out
//! forge.git/   the repository at a forge, with the requests of strangers
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::ops::Range;
use std::os::unix::fs::{MetadataExt as _, lchown, symlink};
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt as _;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::objects::names_in as names;
use super::rights::{AGENT, PERSON, PROGRAMS, SECRET, agent, chain, give, mode, snapshot_order};
use super::*;
use changes::{Dice, Target, craft};
use domain::workspace::{CleanOrder, PublishOrder, Pushed};

mod changes;
mod forge;

const VARIABLE: &str = "AGENT_COORDINATOR_TEST_HOSTILE";
const SEED: &str = "AGENT_COORDINATOR_TEST_HOSTILE_SEED";
const N_SEEDS: u64 = 20;
const N_TASKS: usize = 4;
/// The time of one step.
const DEADLINE: Duration = Duration::from_secs(90);
/// A step that takes longer is printed.
const SLOW: Duration = Duration::from_secs(10);
/// The clones of the template: one of the agents' user, and one of root.
const ROOTS: [&str; 2] = ["workspaces", "workspaces-of-root"];

struct Template {
    bed: Bed,
    /// The commit of the private repository.
    private: String,
    /// Commits with trees that no git makes. Their objects are in `crafted`.
    crafted: Vec<String>,
    clones: Vec<(Prepared, Content)>,
}

impl Template {
    async fn new() -> Self {
        let bed = Bed::new();
        let folder = bed.folder.path().to_owned();
        let library = bed.library("library", "file.txt");
        bed.add_submodule(&bed.source(), &library, "lib", "../library");
        std::fs::create_dir_all(folder.join("private-0/folder")).unwrap();
        for secret in ["private-0/secret", "private-0/folder/secret"] {
            std::fs::write(folder.join(secret), SECRET).unwrap();
        }
        let repository = bed.library("private-0/repo", "secret");
        bed.commit(&repository, "secret", SECRET);
        mode(&folder.join("private-0"), 0o700);
        let private = bed.git(&repository, &["rev-parse", "HEAD"]);
        for copied in [bed.source(), library.clone(), repository] {
            // The fewer files, the faster is a copy.
            bed.git(&copied, &["gc", "--quiet", "--prune=now"]);
            std::fs::remove_dir_all(copied.join(".git/hooks")).unwrap();
        }
        let _ = std::fs::remove_dir_all(bed.source().join(".git/modules/lib/hooks"));
        let crafted = craft(&bed, &private);
        forge::make(&bed, &crafted);
        for of_person in [bed.source(), library] {
            give(&of_person, PERSON);
        }
        let mut clones = Vec::new();
        mode(&folder, 0o711);
        for (root, uid) in ROOTS.into_iter().zip([AGENT, 0]) {
            let checkouts = Checkouts::new(folder.join(root));
            let order = Order { run_as: (uid != 0).then(agent), ..bed.order("one") };
            let prepared = checkouts.clones.prepare(&order).await.unwrap();
            let tree = checkouts.places.directory(&order.project, &order.id, "");
            std::fs::write(tree.join("one.txt"), "one\n").unwrap();
            for step in [&["add", "."][..], &["commit", "--quiet", "-m", "one"]] {
                bed.git(&tree, &[&["-c", "safe.directory=*"], step].concat());
            }
            give(&tree, uid);
            let order = Bed::keep_order("one", &prepared);
            let kept = checkouts.clones.keep(&order, &bed.policy).await.unwrap();
            clones.push((prepared, kept));
        }
        Self { bed, private, crafted, clones }
    }

    /// Returns a bed whose source has this owner, with one of the clones or with none.
    fn copy(&self, owner: u32, clone: Option<usize>) -> Bed {
        let from = self.bed.folder.path();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        mode(path, 0o711);
        for name in ["source", "library"] {
            copy(&from.join(name), &path.join(name), Some(owner));
        }
        for uid in [0, PERSON, AGENT] {
            copy(&from.join("private-0"), &path.join(format!("private-{uid}")), Some(uid));
        }
        copy(&from.join("forge.git"), &path.join("forge.git"), Some(PERSON));
        if let Some(clone) = clone {
            copy(&from.join(ROOTS[clone]), &path.join("workspaces"), None);
        }
        std::fs::create_dir(path.join("home")).unwrap();
        symlink(path.join("private-0/folder"), path.join("home/link")).unwrap();
        give(&path.join("home"), PERSON);
        std::fs::create_dir(path.join("marks")).unwrap();
        mode(&path.join("marks"), 0o777);
        let script = format!("#!/bin/sh\nid -u >{}/$(id -u)\ncat\n", path.join("marks").display());
        std::fs::write(path.join("mark"), script).unwrap();
        mode(&path.join("mark"), 0o755);
        let checkouts = Checkouts::new(path.join("workspaces"));
        Bed { checkouts, policy: self.bed.policy.clone(), folder }
    }
}

/// Copies an entry with its mode, and with its owner unless another one is named.
fn copy(from: &Path, to: &Path, owner: Option<u32>) {
    let found = from.symlink_metadata().unwrap();
    if found.is_dir() {
        std::fs::create_dir(to).unwrap();
        for entry in std::fs::read_dir(from).unwrap().flatten() {
            copy(&entry.path(), &to.join(entry.file_name()), owner);
        }
    } else if found.is_symlink() {
        symlink(std::fs::read_link(from).unwrap(), to).unwrap();
    } else {
        std::fs::copy(from, to).unwrap();
    }
    let (uid, gid) = owner.map_or((found.uid(), found.gid()), |uid| (uid, uid));
    lchown(to, Some(uid), Some(gid)).unwrap();
    if !found.is_symlink() {
        mode(to, found.mode() & 0o7777);
    }
}

/// The steps of a daemon that does not know the repository yet. Others make a clone first.
const FIRST_STEPS: &str =
    "prepare,prepare as agent,prepare working tree,prepare submodules as agent,snapshot,look";
/// All steps. Some have several forms.
const STEPS: &str = "prepare,prepare as agent,prepare working tree,prepare submodules,\
    prepare submodules as agent,keep,prepare clean,publish,merge,snapshot,write,\
    write through a link,behind,look,diff";

fn shown<T: std::fmt::Debug>(result: Result<T, CheckoutError>) -> String {
    match result {
        Ok(done) => format!("{done:?}"),
        Err(error) => format!("{}: {error:?}", chain(&error)),
    }
}

/// The forms of the steps, which the seed chooses beside the dice, so that each seed goes on to
/// change the same.
#[derive(Debug, Clone, Copy)]
struct Forms {
    style: MergeStyle,
    /// A further clone is made from what was kept of the clone `one`.
    restores: bool,
    /// Clones begin at this request of a fork, and the forge gets what is published.
    request: Option<usize>,
}

impl Forms {
    fn of(seed: u64, has_clone: bool, n_requests: usize) -> Self {
        let style = match seed % 3 {
            0 => MergeStyle::Merge,
            1 => MergeStyle::Squash,
            _ => MergeStyle::Rebase,
        };
        let request = usize::try_from(seed / 4).unwrap() % n_requests;
        Self {
            style,
            restores: has_clone && seed.is_multiple_of(2),
            request: (seed % 4 == 3).then_some(request),
        }
    }
}

/// Takes a step, and returns all that it says.
async fn take(
    bed: &Bed,
    (at, step): (usize, &str),
    forms: Forms,
    prepared: &Prepared,
    kept: &mut Content,
) -> String {
    let checkouts = &bed.checkouts;
    let (id, project): (WorkspaceId, ProjectId) = ("one".parse().unwrap(), "shop".parse().unwrap());
    let keep = Bed::keep_order("one", prepared);
    match step {
        "keep" => {
            let result = checkouts.clones.keep(&keep, &bed.policy).await;
            if let Ok(content) = &result {
                kept.clone_from(content);
            }
            shown(result)
        }
        "prepare clean" => {
            let order = CleanOrder {
                id,
                project,
                commit: kept.head_commit.clone(),
                base_commit: prepared.base_commit.clone(),
                agent: "dev".parse().unwrap(),
                protected: vec!["*.txt".to_owned(), "lib/**".to_owned()],
            };
            shown(checkouts.clones.prepare_clean(&order).await)
        }
        "publish" if forms.request.is_some() => {
            format!("{:?}", forge::push(bed, kept.head_commit.clone().unwrap()).await)
        }
        "publish" => {
            let order = PublishOrder {
                id,
                project,
                source: bed.source(),
                branch: "agents/one".to_owned(),
                commit: kept.head_commit.clone().unwrap(),
                last: None,
            };
            shown(checkouts.results.publish_branch(&order).await)
        }
        "merge" => {
            let order = MergeOrder { style: forms.style, ..bed.merge_order("one", prepared) };
            shown(checkouts.results.merge(&order).await)
        }
        "snapshot" => shown(checkouts.snapshots.snapshot(&snapshot_order(bed), &bed.policy).await),
        "write" | "write through a link" => {
            let home = bed.folder.path().join(if step == "write" { "home" } else { "home/link" });
            let to = home.join(at.to_string());
            shown(checkouts.results.write_kept_to(&project, &id, &kept.kept_commit, &to).await)
        }
        "behind" => {
            let order = BehindOrder {
                source: bed.source(),
                base_ref: "refs/heads/main".to_owned(),
                base_commit: prepared.base_commit.clone().unwrap(),
                head_commit: kept.head_commit.clone(),
            };
            shown(checkouts.results.behind(&order).await)
        }
        "look" => format!("{:?}", checkouts.clones.look_at(&bed.source()).await),
        "diff" => {
            let of = if at % 2 == 0 { DiffKind::Committed } else { DiffKind::Uncommitted };
            let diff = checkouts
                .results
                .diff(&DiffOrder { keep, is_in_use: at % 2 == 0, result: None, of })
                .await;
            shown(diff.map(|diff| String::from_utf8_lossy(&diff).into_owned()))
        }
        prepare => {
            let has_one = bed.keep_repository().exists();
            let name = if has_one { format!("n{at}") } else { "one".to_owned() };
            // A clone with another name goes on, as after the removal of the first one.
            let restores = forms.restores.then(|| restored(kept, prepared));
            let forge = match forms.request {
                Some(n) => forge::fetch(bed, n).await,
                None => Ok(None),
            };
            let forge = match forge {
                Ok(forge) => forge,
                Err(error) => return error.to_string(),
            };
            let branch =
                if forms.restores { prepared.branch.clone() } else { format!("agents/{name}") };
            let order = Order {
                branch,
                restores,
                forge,
                run_as: prepare.ends_with("agent").then(agent),
                submodules: prepare.contains("submodules"),
                base: prepare.ends_with("tree").then(|| "working_tree".to_owned()),
                ..bed.order(&name)
            };
            shown(checkouts.clones.prepare(&order).await)
        }
    }
}

/// The modes, the owners and the contents of files.
type Noted = BTreeMap<PathBuf, (u32, u32, u32, Vec<u8>)>;

/// Notes the mode, the owner and the content of all that is below a path.
fn note(path: &Path, found: &mut Noted) {
    let about = path.symlink_metadata().unwrap();
    let content = if about.is_dir() {
        for name in names(path) {
            note(&path.join(name), found);
        }
        Vec::new()
    } else if about.is_symlink() {
        std::fs::read_link(path).unwrap().into_os_string().into_encoded_bytes()
    } else {
        std::fs::read(path).unwrap()
    };
    found.insert(path.to_owned(), (about.mode(), about.uid(), about.gid(), content));
}

/// Returns the files below a folder that have the secret.
fn with_secret(path: &Path, found: &mut Vec<PathBuf>) {
    let Ok(about) = path.symlink_metadata() else { return };
    if about.is_dir() {
        for name in names(path) {
            with_secret(&path.join(name), found);
        }
    } else if about.is_file() && about.len() < 1 << 20 {
        let content = std::fs::read(path).unwrap();
        if content.windows(SECRET.len()).any(|it| it == SECRET.as_bytes()) {
            found.push(path.to_owned());
        }
    }
}

/// Returns what must be the same after all steps.
fn unchanged(bed: &Bed) -> (BTreeSet<String>, Noted) {
    let folder = bed.folder.path();
    let all: BTreeSet<String> =
        names(folder).into_iter().filter(|name| name != "workspaces").collect();
    let mut noted = BTreeMap::new();
    for name in all.iter().filter(|it| it.starts_with("private-") || *it == "library") {
        note(&folder.join(name), &mut noted);
    }
    (all, noted)
}

/// Plays one seed. Returns what does not hold.
async fn play(template: &Template, seed: u64, log: &mut String) -> Vec<String> {
    let mut dice = Dice::new(seed);
    let owner =
        dice.pick(&[PERSON, PERSON, PERSON, PERSON, PERSON, PERSON, AGENT, AGENT, AGENT, 0]);
    let clone = dice.pick(&[None, Some(0), Some(0), Some(1)]);
    let bed = template.copy(owner, clone);
    let of_source = Target { bed: &bed, tree: bed.source(), owner, branch: "main" };
    let tree = bed.tree("one");
    let of_clone =
        Target { bed: &bed, tree, owner: [AGENT, 0][clone.unwrap_or(0)], branch: "agents/one" };
    let mut users = BTreeSet::new();
    let forms = Forms::of(seed, clone.is_some(), template.crafted.len() + 1);
    let _ = writeln!(log, "the source is of user {owner}, the clone is {clone:?}; {forms:?}");
    // Five of eight begin with the next piece and way of all, so that none is missed.
    let (group, in_group) = (seed / 8, seed % 8);
    let first = (in_group < 5).then(|| usize::try_from(5 * group + in_group).unwrap());
    for n in 0..=dice.below(3) {
        let target = if clone.is_some() && dice.below(2) == 0 { &of_clone } else { &of_source };
        let is_of_root = target.owner == 0 && target.branch == "main";
        let line = match first.filter(|_| n == 0) {
            _ if is_of_root => target.share(&mut dice, template),
            Some(at) => target.replace(at, &mut dice),
            None => target.change(&mut dice, template),
        };
        let _ = writeln!(log, "{}: {line}", target.branch);
        users.insert(target.owner);
    }
    let (prepared, mut kept) = template.clones[clone.unwrap_or(0)].clone();
    let before = unchanged(&bed);
    let mut problems = Vec::new();
    let n_steps = 2 + dice.below(3);
    for at in 0..n_steps {
        let step = match (at, clone) {
            (0, None) => dice.part(FIRST_STEPS, ","),
            (0, Some(_)) if dice.below(2) == 0 => "keep",
            _ => dice.part(STEPS, ","),
        };
        let begun = Instant::now();
        let taken = take(&bed, (at, step), forms, &prepared, &mut kept);
        let said = tokio::time::timeout(DEADLINE, taken).await;
        if begun.elapsed() > SLOW {
            println!("seed {seed}: the step {step} took {} s", begun.elapsed().as_secs());
        }
        let Ok(said) = said else {
            problems.push(format!("the step {step} does not end"));
            break;
        };
        let _ = writeln!(log, "{step}: {said}");
        if said.contains(SECRET) {
            problems.push(format!("the step {step} says the secret"));
        }
    }
    users.remove(&0);
    let marks = names(&bed.folder.path().join("marks"));
    if let Some(mark) = marks.iter().find(|it| !users.iter().any(|user| user.to_string() == **it)) {
        problems.push(format!("a program ran as user {mark}"));
    }
    let keep = bed.keep_repository();
    let list = ["cat-file", "--batch-all-objects", "--batch", "--buffer"];
    if keep.exists() && run_git(bed.folder.path(), &keep, &list).contains(SECRET) {
        problems.push("the keep repository has the secret".to_owned());
    }
    let mut told = Vec::new();
    with_secret(&bed.folder.path().join("home"), &mut told);
    for name in names(keep.parent().unwrap()).iter().filter(|name| *name != "one") {
        with_secret(&keep.with_file_name(name), &mut told);
    }
    problems.extend(told.iter().map(|file| format!("{} has the secret", file.display())));
    let after = unchanged(&bed);
    if before != after {
        let (old, new) = (before.1.iter(), &after.1);
        let changed: Vec<_> = old.filter(|(path, it)| new.get(*path) != Some(it)).collect();
        let made: Vec<_> = new.keys().filter(|path| !before.1.contains_key(*path)).collect();
        problems.push(format!("changed: {changed:?}, made: {made:?}, all: {:?}", after.0));
    }
    problems
}

/// Plays seeds, some at once, and returns a text for each that fails.
async fn play_all(mut seeds: Range<u64>) -> Vec<String> {
    let template = Arc::new(Template::new().await);
    let (mut tasks, mut failed) = (JoinSet::new(), Vec::new());
    loop {
        while tasks.len() < N_TASKS
            && let Some(seed) = seeds.next()
        {
            let template = Arc::clone(&template);
            tasks.spawn(async move {
                let mut log = String::new();
                let played = AssertUnwindSafe(play(&template, seed, &mut log)).catch_unwind().await;
                let problems = played.unwrap_or_else(|_| vec!["the step panicked".to_owned()]);
                let text = format!("seed {seed}: {}\n{log}", problems.join("; "));
                if !problems.is_empty() || std::env::var_os(SEED).is_some() {
                    println!("{text}");
                }
                (!problems.is_empty()).then_some(text)
            });
        }
        match tasks.join_next().await {
            Some(played) => failed.extend(played.unwrap()),
            None => return failed,
        }
    }
}

#[tokio::test]
async fn the_forge_of_a_bed_serves_its_requests_and_takes_results() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root has other users");
        return;
    }
    let template = Template::new().await;
    let bed = template.copy(PERSON, Some(1));
    let (prepared, kept) = &template.clones[1];
    let fetched = forge::fetch(&bed, template.crafted.len()).await.unwrap().unwrap();
    assert_eq!(Some(fetched.commit), prepared.base_commit);
    let fetched = forge::fetch(&bed, 0).await.unwrap().unwrap();
    assert_eq!(fetched.commit, template.crafted[0], "a malformed tree comes as far as this");
    let order = Order { forge: Some(fetched), ..bed.order("two") };
    let refused = bed.checkouts.clones.prepare(&order).await.unwrap_err();
    assert!(refused.to_string().contains("two entries with the name"), "{refused}");
    let pushed = forge::push(&bed, kept.head_commit.clone().unwrap()).await;
    assert_eq!(pushed, Ok(Pushed::Done));
}

#[test]
fn a_hostile_repository_gets_nothing_of_others_and_holds_up_no_step() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root has other users");
        return;
    }
    let number = |name: &str| Some(std::env::var(name).ok()?.parse::<u64>().expect("a number"));
    let all = 0..number(VARIABLE).unwrap_or(N_SEEDS);
    let seeds = number(SEED).map_or(all, |seed| seed..seed + 1);
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(N_TASKS).enable_all().build().unwrap();
    let failed = runtime.block_on(play_all(seeds));
    // A thread that waits for a pipe has no end.
    runtime.shutdown_background();
    let seeds: Vec<&str> = failed.iter().filter_map(|text| text.lines().next()).collect();
    assert!(failed.is_empty(), "repeat each with {SEED}=N:\n{}", seeds.join("\n"));
}
