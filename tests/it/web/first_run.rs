//! The first run: from an empty coordinator to a task that an agent works on, on the page alone.

use std::path::Path;
use std::process::Command;

use super::assert_quiet;
use super::browser::Browser;
use super::pictures::keep;
use crate::daemon::Daemon;

#[test]
fn an_empty_coordinator_leads_to_the_first_task_in_three_steps() {
    let daemon = Daemon::running("http: { listen: \"127.0.0.1:0\" }\n");
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    assert_eq!(browser.texts(".step.is-next .no"), ["1"]);
    assert_eq!(browser.texts(".step.is-later").len(), 2);
    // The folder is looked at while its path is typed.
    let work = daemon.work();
    let path = work.to_str().unwrap();
    let folder = |text: &str| browser.texts("#folder-state").concat().contains(text);
    browser.run("document.querySelector('#directory').value = ''");
    browser.find("#directory").type_in(&path[..path.len() - 1]);
    browser.until("there is no such folder", || folder("There is no such folder"));
    browser.find(".step .primary").click();
    browser.until("the field says it", || browser.has("#directory[aria-invalid=true]"));
    assert_eq!(browser.complaints().len(), 1, "the browser tells of the refusal");
    browser.find("#directory").type_in(&path[path.len() - 1..]);
    browser.until("there is one", || folder("A folder without git"));
    assert!(!browser.has("#directory[aria-invalid=true]"));
    git(&work, &["init", "--quiet", "--initial-branch=main"]);
    browser.find("#directory").type_in("/.");
    browser.until("it is a repository", || folder("git, no commit yet"));
    assert_eq!(browser.run("return document.querySelector('[name=workspace]').value"), "shared");
    std::fs::write(work.join("new"), "").unwrap();
    git(&work, &["commit", "--quiet", "--allow-empty", "--message", "first"]);
    browser.find("#directory").type_in("/.");
    let changed = "git, branch main, with uncommitted changes";
    browser.until("it has changes", || folder(changed));
    std::fs::remove_file(work.join("new")).unwrap();
    browser.run("document.querySelector('#directory').value = ''");
    browser.find("#directory").type_in(path);
    browser.until("it is clean", || folder("git, branch main, clean"));
    assert_eq!(browser.run("return document.querySelector('[name=workspace]').value"), "clone");
    // Without a name, the project gets that of the folder.
    browser.find(".step .primary").click();

    browser.until("the second step is next", || browser.texts(".step.is-next .no") == ["2"]);
    let name = work.file_name().unwrap().to_str().unwrap();
    assert!(browser.texts(".step.is-done")[0].contains(name));
    browser.until("the first step has the folder", || folder("git, branch main, clean"));
    browser.find(".choice input[value=claude]:checked");
    keep(&browser, "first-run");
    browser.run("document.querySelector('#programs .choices').dataset.isOld = ''");
    browser.find(".step .btn.ghost").click();
    browser.find("#programs .choices:not([data-is-old]) input[value=claude]:checked");
    assert_eq!(browser.texts(".choice:has([value=example]) .mark"), ["Bundled"]);
    browser.find(".choice:has([value=example])").click();
    browser.find(".step .primary").click();

    browser.until("the third step is next", || browser.texts(".step.is-next .no") == ["3"]);
    browser.find("#title").type_in("Say hello");
    browser.find("#description").type_in("In **one** line.");
    browser.find(".step .primary").click();
    browser.find("#panel .task");
    assert!(browser.path().starts_with("/ui/projects/prj_"), "{}", browser.path());
    let search = browser.run("return location.search").as_str().unwrap().to_owned();
    let task = search.strip_prefix("?task=").unwrap();
    assert_eq!(browser.texts("[id^=column-] .card-link"), ["Say hello"]);
    browser.until("the bundled agent has done it", || daemon.task_status(task) == "done");
    browser.until("the card is among the done ones", || {
        browser.texts("#column-done .card-link") == ["Say hello"]
    });
    let answer = daemon.cli(&["task", "diff", task]);
    assert!(answer.stdout.contains("+Hello from agt_"), "{answer:?}");
    browser.go_to("/ui/projects");
    browser.find("#projects tbody tr");
    assert!(!browser.has(".step"), "the steps are over");
    assert_quiet(&browser);
}

/// Runs git as a person.
fn git(folder: &Path, arguments: &[&str]) {
    let person = ["-c", "user.name=Ann", "-c", "user.email=ann@example.invalid"];
    let mut git = Command::new("git");
    let done = git.current_dir(folder).args(person).args(arguments).output().unwrap();
    assert!(done.status.success(), "{done:?}");
}

#[test]
fn a_viewer_sees_no_steps_and_learns_nothing_about_the_machine() {
    let daemon = Daemon::running("http: { listen: \"127.0.0.1:0\" }\n");
    let Some(browser) = Browser::at(&daemon, "viewer", "ja") else {
        return;
    };
    assert!(!browser.has(".step"));
    assert!(browser.texts("#projects").concat().contains("プロジェクトがまだありません"));
    let found = browser.run_async(
        "fetch('/ui/parts/first-run/programs').then(r => r.text()).then(arguments[arguments.length - 1])",
    );
    assert!(!found.as_str().unwrap().contains("claude"), "{found}");
    let found = browser.run_async(
        "fetch('/ui/parts/projects/workspace?working_directory=/etc')\
         .then(r => r.text()).then(arguments[arguments.length - 1])",
    );
    assert!(!found.as_str().unwrap().contains("folder-state"), "{found}");
}
