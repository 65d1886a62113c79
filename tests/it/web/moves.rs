//! Moves that do not do at once what they say: a task that its agent still works on, one that waits
//! for others, and one without an agent.

use super::browser::Browser;
use super::{assert_quiet, daemon};

#[test]
fn a_task_that_is_taken_from_its_agent_shows_it_until_it_ends() {
    let daemon = daemon(&[]);
    daemon.agent("agt", "prj", &["authenticate", "get-my-task", "write:ready", "sleep:600"]);
    daemon.task("tsk", "prj", "agt");
    daemon.written_pid("ready");
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    browser.go_to("/ui/projects/prj?task=tsk");
    // A blocked task says why, and its panel has the agent.
    browser.find("#panel .states [data-asks-reason]").click();
    browser.find("[name=reason]").type_in("which key?");
    browser.find(".why-blocked .primary").click();
    browser.until("the card says why", || {
        browser.texts("#column-blocked #card-tsk .what") == ["which key?"]
    });
    browser.find("#panel .call.bad [hx-post='/ui/do/stop']");
    // Without a reason to tell, the agent is what its card tells.
    browser.find("#panel .states [data-sets=todo]").click();
    browser.find("#column-todo #card-tsk .dot.live");
    browser.find("#panel .call.good [hx-post='/ui/do/stop']").click();
    browser.find("#sure[open] .danger").click();
    browser.until("it has ended", || !browser.has("#card-tsk .dot.live"));
    browser.until("the panel shows that", || !browser.has("#panel .call.good"));
    // The agent has no work now. It stays stopped for the work that comes.
    browser.go_to("/ui/agents");
    browser.until("it is stopped", || browser.texts("#agent-agt-prj .mark") == ["Stopped"]);
    assert_eq!(browser.find("#agent-agt-prj .btn").text(), "Resume");
    assert_quiet(&browser);
}

#[test]
fn a_task_that_waits_for_others_says_that_it_starts_later() {
    let daemon = daemon(&["agt"]);
    daemon.done(&["task", "add", "--project", "prj", "--id", "first", "--title", "first"]);
    let second = ["task", "add", "--project", "prj", "--id", "second", "--title", "second"];
    daemon.done(&[&second[..], &["--assignee", "agt", "--depends-on", "first"]].concat());
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    let later = "Starts when the tasks it waits for are done";
    let is_wanted = || daemon.done(&["task", "show", "second"]).contains("starts after");
    for page in ["/ui/projects/prj", "/ui/projects/prj?task=second"] {
        browser.go_to(page);
        browser.find("#card-second");
        if page.contains("task=") {
            browser.find("#panel .states [data-sets=in_progress]").click();
        } else {
            browser.run("moveTask(document.querySelector('#card-second'), 'in_progress')");
        }
        browser.until("it is told", || browser.texts(".toast b") == [later]);
        // It stays while it has the focus.
        browser.run("document.querySelector('.toast .act').focus()");
        browser.until("the card says so", || {
            browser.texts("#column-todo #card-second .now .what") == [later]
        });
        assert!(is_wanted());
        browser.find(".toast .act").click();
        browser.until("it is taken back", || !browser.has("#card-second .now"));
        assert!(!is_wanted());
    }
    assert_quiet(&browser);
}

#[test]
fn open_subtasks_are_cancelled_with_their_task_after_a_question() {
    let daemon = daemon(&["agt"]);
    let whole = ["--id", "whole", "--title", "whole"];
    let part = ["--id", "part", "--title", "part", "--parent", "whole"];
    for task in [&whole[..], &part[..]] {
        daemon.done(&[&["task", "add", "--project", "prj"], task].concat());
    }
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    browser.go_to("/ui/projects/prj");
    browser.find("#card-whole");
    browser.run("moveTask(document.querySelector('#card-whole'), 'done')");
    let question = browser.find("#sure[open] #sure-text").text();
    assert!(question.contains("PRJ-2") && question.ends_with("Cancel them?"), "{question}");
    browser.find("#sure[open] .btn:not([value])").click();
    browser.find("#column-todo #card-whole:not(.is-moving)");
    assert_eq!(daemon.task_status("whole"), "todo");

    // The state control asks, too.
    browser.go_to("/ui/tasks/whole");
    browser.find(".states [data-sets=done]").click();
    browser.find("#sure[open] .danger").click();
    browser.until("it is told", || browser.texts(".toast b") == ["Moved to Done"]);
    browser.until("its page tells it", || {
        browser.texts(".task .second").iter().any(|text| text.starts_with("Done by hand, by "))
    });
    assert_eq!([daemon.task_status("whole"), daemon.task_status("part")], ["done", "cancelled"]);
}

#[test]
fn a_task_without_an_agent_leads_to_the_choice_of_one() {
    let daemon = daemon(&["agt"]);
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    browser.go_to("/ui/projects/prj");
    browser.find("[data-new-task]").click();
    browser.find("#new-title").type_in("A title");
    browser.find("#new-task [name=start]").click();
    browser.until("the field is marked", || {
        browser.run("return document.activeElement.name") == "assignee"
    });
    assert_eq!(browser.texts("#new-task .error"), ["Choose an agent to start the task."]);
    browser.find("#new-task .primary").click();
    browser.until("it is told", || browser.texts(".toast b") == ["Created PRJ-1"]);
    browser.find(".toast .act").click();
    browser.find("#panel .task");
    browser.find("#panel [data-close]").click();

    // The button of a card opens the list.
    browser.find(".card .act").click();
    browser.until("the list is open", || {
        browser.run("return document.activeElement.closest('#panel #pick-assignee') !== null")
            == true
    });
    browser.until("the agent is there", || browser.has("#found-assignee [value=agt]"));
    browser.find("#found-assignee [value=agt]").click();
    browser.until("it is assigned", || browser.has(".card .avatar"));
}
