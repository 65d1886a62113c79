//! Folders as a person finds them, also after a crash and after other people's hands.

use ForgeKind::{GitHub, GitLab};
use ItemKind::{Issue, MergeRequest, PullRequest};

use super::*;
use crate::testing::key;
use domain::forge::{ItemEnd, StopCause, WorkState};
use domain::time::Timestamp;
use domain::{InstanceKey, Purpose};

const ID: &str = "019aa7d2-0000-7000-8000-000000000001";

fn item(state: ItemState) -> ForgeItem {
    let (task, agent, project) =
        ("tsk_1".parse().unwrap(), "agt_a".parse().unwrap(), "prj_a".parse().unwrap());
    let now = Timestamp::from_millis(0);
    let title = "Log in".to_owned();
    let url = "https://github.com/acme/shop/issues/7".to_owned();
    let new = ForgeItem::new(ID.parse().unwrap(), task, key(), agent, project, now);
    ForgeItem { title, url, state, pending: Vec::new(), ..new }
}

fn context(state: ItemState) -> Context {
    let launches = ["lch_1", "lch_2"].map(|id| id.parse().unwrap()).into();
    Context {
        item: item(state),
        provider: Some("claude".to_owned()),
        launches,
        last: Some(execution()),
    }
}

fn execution() -> Execution {
    Execution {
        id: "exe_1".parse().unwrap(),
        launch: "lch_2".parse().unwrap(),
        task: "tsk_1".parse().unwrap(),
        key: InstanceKey::new("agt_a".parse().unwrap(), "prj_a".parse().unwrap(), Purpose::Task),
        started_at: Timestamp::from_millis(0),
        ended_at: None,
        result: None,
        summary: Some("Done it.\n".to_owned()),
        next_steps: Some("None.".to_owned()),
        progress: Some(String::new()),
        findings: None,
        outcome: None,
        usage: domain::Usage::default(),
        failure: None,
        revision: 0,
    }
}

const RUNNING: ItemState = ItemState::Active(WorkState::Processing);
const PAUSED: ItemState = ItemState::Paused { since: Timestamp::from_millis(1_000) };
const STOPPED: ItemState = ItemState::Ended(ItemEnd::Stopped(StopCause::Unassigned));

struct Folders {
    state: tempfile::TempDir,
    contexts: Contexts,
}

impl Folders {
    fn new() -> Self {
        let state = tempfile::tempdir().unwrap();
        let contexts = Contexts::new(state.path());
        Self { state, contexts }
    }

    fn put(&self, place: FolderPlace, state: ItemState) {
        self.contexts.put(place, &context(state)).unwrap();
    }

    fn path(&self, below: &str) -> PathBuf {
        self.state.path().join(below)
    }

    fn write(&self, below: &str, text: &str) {
        let path = self.path(below);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Every file in `contexts`.
    fn files(&self) -> Vec<String> {
        fn collect(folder: &Path, root: &Path, files: &mut Vec<String>) {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    collect(&path, root, files);
                } else {
                    files.push(
                        path.strip_prefix(root).unwrap().display().to_string().replace(ID, "ID"),
                    );
                }
            }
        }
        let mut files = Vec::new();
        collect(&self.path("contexts"), &self.path("contexts"), &mut files);
        files.sort();
        files
    }

    fn json(&self, below: &str) -> Value {
        serde_json::from_slice(&fs::read(self.path("contexts").join(below)).unwrap()).unwrap()
    }

    fn find(&self) -> Option<FolderPlace> {
        self.contexts.find(&ID.parse().unwrap())
    }
}

#[test]
fn a_folder_says_all_that_is_known_and_moves_with_its_item() {
    let folders = Folders::new();
    assert_eq!(folders.find(), None);
    folders.write("instances/lch_1/output.log.1", "one ");
    folders.write("instances/lch_1/output.log", "two");
    folders.put(FolderPlace::Running, RUNNING);
    let of_running = [
        "running/ID/logs/lch_1/output.log",
        "running/ID/logs/lch_1/output.log.1",
        "running/ID/metadata.json",
        "running/ID/summary.md",
    ];
    assert_eq!(folders.files(), of_running);
    assert_eq!(folders.find(), Some(FolderPlace::Running));
    insta::assert_snapshot!(
        "metadata",
        format!("{:#}", folders.json(&format!("running/{ID}/metadata.json")))
    );
    let summary =
        fs::read_to_string(folders.path(&format!("contexts/running/{ID}/summary.md"))).unwrap();
    assert_eq!(
        summary,
        "# Log in\n\nhttps://github.com/acme/shop/issues/7\n\n## Summary\n\nDone it.\n\n## Next steps\n\nNone.\n"
    );
    folders.put(FolderPlace::Paused, PAUSED);
    assert_eq!(folders.find(), Some(FolderPlace::Paused));
    insta::assert_snapshot!(
        "task_state",
        format!("{:#}", folders.json(&format!("paused/{ID}/task_state.json")))
    );
    folders.put(FolderPlace::Running, RUNNING);
    folders.put(FolderPlace::Completed, STOPPED);
    let state = folders.json(&format!("completed/{ID}/task_state.json"));
    assert_eq!(
        (&state["status"], &state["paused_at"]),
        (&json!("stopped"), &json!("1970-01-01T00:00:01.000Z"))
    );
    let metadata = folders.json(&format!("completed/{ID}/metadata.json"));
    assert_eq!((&metadata["state"], &metadata["cause"]), (&json!("stopped"), &json!("unassigned")));
    assert_eq!(folders.files().len(), 5, "{:?}", folders.files());
}

#[test]
fn logs_outlive_their_instance_and_follow_its_rotation() {
    let folders = Folders::new();
    folders.write("instances/lch_2/output.log", "first ");
    folders.put(FolderPlace::Running, RUNNING);
    fs::rename(
        folders.path("instances/lch_2/output.log"),
        folders.path("instances/lch_2/output.log.1"),
    )
    .unwrap();
    folders.write("instances/lch_2/output.log", "second");
    folders.put(FolderPlace::Running, RUNNING);
    fs::remove_dir_all(folders.path("instances/lch_2")).unwrap();
    folders.put(FolderPlace::Completed, STOPPED);
    let logs = folders.path(&format!("contexts/completed/{ID}/logs/lch_2"));
    let printed =
        instance_dir::output_files(&logs).into_iter().map(|path| fs::read_to_string(path).unwrap());
    assert_eq!(printed.collect::<String>(), "first second");
}

#[test]
fn doing_it_again_mends_what_a_crash_left() {
    let folders = Folders::new();
    folders.write(&format!("contexts/running/{ID}/.metadata.json.new"), "{\"uu");
    folders.write(&format!("contexts/running/{ID}/logs/lch_1/.output.log.new"), "old draft");
    folders.write("ended/lch_1/output.log", "printed");
    for _ in 0..2 {
        folders.put(FolderPlace::Completed, STOPPED);
        assert_eq!(
            folders.files(),
            [
                "completed/ID/logs/lch_1/output.log",
                "completed/ID/metadata.json",
                "completed/ID/summary.md"
            ]
        );
    }
}

#[test]
fn of_a_folder_in_two_places_the_newer_wins_and_gets_what_only_the_other_has() {
    let folders = Folders::new();
    folders.put(FolderPlace::Running, RUNNING);
    let newer = format!("contexts/running/{ID}");
    let older = format!("contexts/completed/{ID}");
    for (file, text) in
        [("metadata.json", "{}"), ("notes.txt", "mine"), ("logs/lch_0/output.log", "before")]
    {
        folders.write(&format!("{older}/{file}"), text);
    }
    folders.write(&format!("{newer}/notes.txt"), "newer notes");
    let file = fs::File::options()
        .write(true)
        .open(folders.path(&format!("{older}/metadata.json")))
        .unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(folders.find(), Some(FolderPlace::Running));
    folders.put(FolderPlace::Paused, PAUSED);
    assert_eq!(
        folders.files(),
        [
            "paused/ID/logs/lch_0/output.log",
            "paused/ID/metadata.json",
            "paused/ID/notes.txt",
            "paused/ID/summary.md",
            "paused/ID/task_state.json"
        ]
    );
    let notes =
        fs::read_to_string(folders.path(&format!("contexts/paused/{ID}/notes.txt"))).unwrap();
    assert_eq!(notes, "newer notes");
}

#[test]
fn a_place_that_takes_nothing_is_named_and_nothing_is_lost() {
    let folders = Folders::new();
    folders.put(FolderPlace::Running, RUNNING);
    folders.write("contexts/completed", "a file where the folder should be");
    let error = folders.contexts.put(FolderPlace::Completed, &context(STOPPED)).unwrap_err();
    assert!(
        error.to_string().contains(&folders.path("contexts/completed").display().to_string()),
        "{error}"
    );
    assert_eq!(folders.find(), Some(FolderPlace::Running));
    fs::remove_file(folders.path("contexts/completed")).unwrap();
    folders.put(FolderPlace::Completed, STOPPED);
    assert_eq!(folders.find(), Some(FolderPlace::Completed));
}

#[test]
fn folders_are_their_owners_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let folders = Folders::new();
    folders.put(FolderPlace::Paused, PAUSED);
    let mode =
        |below: &str| fs::metadata(folders.path(below)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("contexts/paused"), 0o700);
    assert_eq!(mode(&format!("contexts/paused/{ID}")), 0o700);
    assert_eq!(mode(&format!("contexts/paused/{ID}/task_state.json")), 0o600);
}

/// The folders are those of the older system (R-002-5).
#[test]
fn each_kind_of_item_has_the_seeds_key() {
    let key = |forge, repository: &str, kind| {
        let key = ItemKey { forge, repository: repository.to_owned(), kind, ..item(RUNNING).key };
        task_key(&key).to_string()
    };
    let check =
        |forge, repository, kind, expected| assert_eq!(key(forge, repository, kind), expected);
    check(GitHub, "o/r", Issue, r#"{"number":7,"owner":"o","repo":"r","type":"github_issue"}"#);
    check(
        GitHub,
        "o/r",
        PullRequest,
        r#"{"number":7,"owner":"o","repo":"r","type":"github_pull_request"}"#,
    );
    check(GitLab, "42", Issue, r#"{"issue_iid":7,"project_id":42,"type":"gitlab_issue"}"#);
    check(
        GitLab,
        "g/s/p",
        MergeRequest,
        r#"{"mr_iid":7,"project_id":"g/s/p","type":"gitlab_merge_request"}"#,
    );
}

#[test]
fn only_what_is_completed_is_removed() {
    let folders = Folders::new();
    folders.write("contexts/completed/not an id/x", "");
    folders.put(FolderPlace::Running, RUNNING);
    let id = ID.parse().unwrap();
    assert!(folders.contexts.completed().is_empty());
    folders.contexts.remove_completed(&id).unwrap();
    assert_eq!(folders.find(), Some(FolderPlace::Running));
    folders.put(FolderPlace::Completed, STOPPED);
    assert_eq!(folders.contexts.completed(), std::slice::from_ref(&id));
    folders.contexts.remove_completed(&id).unwrap();
    assert_eq!(folders.find(), None);
}
