//! The panel and the dialog: their addresses, their focus, and forms that cannot be sent twice.

use std::time::Duration;

use fantoccini::actions::{MOUSE_BUTTON_LEFT, MOUSE_BUTTON_MIDDLE};
use serde_json::{Value, json};

use super::browser::Browser;
use super::pictures::keep;
use super::{assert_quiet, daemon};
use crate::daemon::Daemon;

const ENTER: char = '\u{e007}';
const ESCAPE: char = '\u{e00c}';
const DOWN: char = '\u{e015}';

fn with_tasks() -> Daemon {
    let daemon = daemon(&["agt"]);
    for id in ["one", "two", "three"] {
        daemon.done(&["task", "add", "--project", "prj", "--id", id, "--title", id]);
    }
    daemon
}

/// Returns the id of the card or of the element with the focus.
fn focus(browser: &Browser) -> Value {
    browser.run(
        "const e = document.activeElement; return e.closest('.card')?.id ?? (e.id || e.tagName)",
    )
}

#[test]
fn a_card_opens_the_panel_and_escape_returns_to_it() {
    let daemon = with_tasks();
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    browser.go_to("/ui/projects/prj");
    browser.run("document.querySelector('#column-todo .card-link').focus()");
    browser.press(&[DOWN]);
    let card = focus(&browser);
    browser.press(&[ENTER]);
    browser.until("the panel has the focus", || focus(&browser) == "panel");
    let address = browser.run("return location.search");
    assert!(address.as_str().unwrap().starts_with("?task="), "{address}");
    // The card is another element by now, and the focus still finds it.
    let task = card.as_str().unwrap().trim_start_matches("card-").to_owned();
    daemon.done(&["task", "set", &task, "--title", "renamed"]);
    browser.until("it is shown anew", || {
        browser.texts(&format!("#card-{task} .card-link")) == ["renamed"]
    });
    browser.press(&[ESCAPE]);
    browser.until("the focus is back", || focus(&browser) == card);
    assert!(!browser.has("#panel .task"));
    assert_eq!(browser.run("return location.search"), "");
    // Back opens it again, without loading the page.
    browser.run("window.isTheSame = true; history.back()");
    browser.find("#panel .task");
    browser.run("history.back()");
    browser.until("it closes", || !browser.has("#panel .task"));
    assert_eq!(browser.run("return window.isTheSame"), true);
    // The address alone shows the same, and the task has a page of its own.
    browser.go_to(&format!("/ui/projects/prj{}", address.as_str().unwrap()));
    browser.find("#panel .task");
    browser.run("document.querySelector('[data-as-page]').click()");
    browser.until("it is a page", || browser.path().starts_with("/ui/tasks/"));
    assert_eq!(browser.texts("h1"), ["renamed"]);
    // The middle button opens the page in a window of its own, and leaves the board.
    browser.go_to("/ui/projects/prj");
    let first = browser.window();
    browser.press_mouse(MOUSE_BUTTON_MIDDLE, "#card-two .card-link", 1);
    let other = browser.until_some("another window is open", || {
        browser.windows().into_iter().find(|window| *window != first)
    });
    assert!(!browser.has("#panel .task"));
    browser.switch_to(&other);
    browser.until("it shows the page", || browser.path() == "/ui/tasks/PRJ-2");
    assert_quiet(&browser);
}

#[test]
fn a_new_task_keeps_its_draft_and_is_made_once_however_often_it_is_sent() {
    let daemon = daemon(&["agt"]);
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    browser.go_to("/ui/projects/prj");
    browser.press(&['n']);
    browser.until("the title has the focus", || focus(&browser) == "new-title");
    browser.find("#new-title").type_in("A title");
    browser.press(&[ESCAPE]);
    browser.until("it is closed", || browser.run("return dialog.open") == false);
    browser.find("[data-new-task]").click();
    browser.until("it is open", || browser.run("return dialog.open") == true);
    assert_eq!(browser.run("return document.querySelector('#new-title').value"), "A title");
    assert!(browser.find("[data-draft-kept]").is_shown());
    // The browser keeps it, with all of its fields. A part of a task has a draft of its own.
    browser.run(
        "const field = document.querySelector('#new-task [name=priority]'); field.value = 'high'; \
         field.dispatchEvent(new Event('input', { bubbles: true }))",
    );
    browser.go_to("/ui/projects/prj");
    browser.press(&['n']);
    browser.until("the title has the focus", || focus(&browser) == "new-title");
    let fields = "const fields = document.querySelector('#new-task').elements; \
                  return [fields.title.value, fields.priority.value, fields.status.value]";
    assert_eq!(browser.run(fields), json!(["A title", "high", "todo"]));
    assert!(browser.find("[data-draft-kept]").is_shown());
    // The end of the dialog does not give up what is asked for right behind it.
    browser.run(
        "dialog.close(); document.querySelector('#column-backlog [hx-get*=new-task]').click()",
    );
    browser.until("the title has the focus", || focus(&browser) == "new-title");
    assert_eq!(browser.run(fields), json!(["A title", "high", "backlog"]), "as was asked");
    browser.find("[data-throw-away]").click();
    browser.until("it is closed", || browser.run("return dialog.open") == false);
    browser.press(&['n']);
    browser.until("the title has the focus", || focus(&browser) == "new-title");
    assert_eq!(browser.run(fields), json!(["", "medium", "todo"]));
    assert!(!browser.find("[data-draft-kept]").is_shown());
    browser.find("#new-title").type_in("A title");
    // The same form twice: by two clicks, and by two requests of which the first answer was lost.
    let sent = browser.run(
        "const form = document.querySelector('#new-task'); window.sent = new URLSearchParams(new FormData(form)).toString();\
         const button = form.querySelector('.primary'); button.click(); button.click(); return window.sent",
    );
    assert!(sent.as_str().unwrap().contains("title=A+title"), "{sent}");
    browser.until("it is on the board", || browser.texts(".card-link") == ["A title"]);
    let again = |body: &str| {
        browser.run_async(&format!(
            "fetch('/ui/do/projects/prj/tasks', {{ method: 'POST', body: new URLSearchParams({body}) }})\
             .then(r => arguments[arguments.length - 1](r.status))"
        ))
    };
    assert_eq!(again("window.sent"), 204);
    for other in [
        "'A+title', 'Another'",
        "'priority=medium', 'priority=low'",
        "'status=todo', 'status=backlog'",
        "'assignee=', 'assignee=agt'",
    ] {
        assert_eq!(again(&format!("window.sent.replace({other})")), 409, "{other}");
    }
    // The task was changed meanwhile. The form is the same.
    let task = daemon.json(&["task", "list"])[0]["id"].as_str().unwrap().to_owned();
    daemon.done(&["task", "set", &task, "--title", "Now another", "--priority", "urgent"]);
    assert_eq!(again("window.sent"), 204);
    browser.go_to("/ui/projects/prj");
    assert_eq!(browser.texts(".card-link"), ["Now another"]);

    // A form of another day or another person keeps its text, and can be sent after all.
    browser.find("[data-new-task]").click();
    browser.find("#new-title").type_in("Late");
    browser.run("document.querySelector('#new-task [name=form_id]').value = '0:0:0'");
    browser.find("#new-task .primary").click();
    let refusal = browser.find(".toast.bad");
    assert!(refusal.text().contains("send it again"), "{}", refusal.text());
    assert_eq!(browser.run("return document.querySelector('#new-title').value"), "Late");
    assert_eq!(browser.texts(".card-link").len(), 1);
    browser.find(".toast.bad .act").click();
    browser.until("it is made", || browser.texts(".card-link").contains(&"Late".to_owned()));

    // On a slow line, more clicks come before the answer.
    let is_closed = || browser.run("return dialog.open") == false;
    browser.until("the form is closed", is_closed);
    browser.press(&['n']);
    browser.until("the title has the focus", || focus(&browser) == "new-title");
    browser.find("#new-title").type_in("Slow");
    browser.emulate_latency(Duration::from_millis(1500));
    browser.press_mouse(MOUSE_BUTTON_LEFT, "#new-task .primary", 3);
    browser.until("it is answered", is_closed);
    browser.emulate_latency(Duration::ZERO);
    browser
        .until("it is on the board", || browser.texts(".card-link").contains(&"Slow".to_owned()));
    assert_eq!(daemon.json(&["task", "list"]).as_array().unwrap().len(), 3);
}

#[test]
fn a_new_task_waits_for_tasks_that_are_picked_from_a_list() {
    let daemon = with_tasks();
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    browser.go_to("/ui/projects/prj");
    browser.press(&['n']);
    browser.until("the title has the focus", || focus(&browser) == "new-title");
    browser.find("#new-title").type_in("The last");
    // The list stays open.
    browser.find("[data-waits-for]").click();
    browser.find("#found-waits-for [role=option]").click();
    browser.until("it is marked", || browser.has("#found-waits-for [aria-selected=true]"));
    assert_eq!(browser.find("[data-waits-for]").text(), "Waits for 1");
    browser.find("#found-waits-for [aria-selected=true]").click();
    browser.until("it is taken back", || !browser.has("#found-waits-for [aria-selected=true]"));
    browser.find("#pick-waits-for [name=q]").type_in("two");
    browser.until("it is found", || browser.texts("#found-waits-for .cut") == ["two"]);
    browser.press(&[ENTER]);
    browser.until("it is picked", || browser.find("[data-waits-for]").text() == "Waits for 1");
    browser.press(&[ESCAPE]);
    assert_eq!(browser.run("return dialog.open"), true);
    // The draft has it, too.
    browser.go_to("/ui/projects/prj");
    browser.press(&['n']);
    browser.until("it is there", || browser.find("[data-waits-for]").text() == "Waits for 1");
    browser.find("#new-task .primary").click();
    browser.until("it is made", || browser.texts(".card-link").contains(&"The last".to_owned()));
    let tasks = daemon.json(&["task", "list"]);
    let last = tasks.as_array().unwrap().iter().find(|task| task["title"] == "The last");
    assert_eq!(last.unwrap()["dependencies"], json!(["two"]));
    assert_quiet(&browser);
}

#[test]
fn a_mistake_is_shown_at_its_field_and_loses_nothing() {
    let daemon = daemon(&["agt"]);
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    browser.go_to("/ui/projects/prj");
    browser.press(&['n']);
    browser.find("#new-description").type_in("<b>what</b> to do");
    browser.find("#new-task .primary").click();
    browser.until("the title is marked", || focus(&browser) == "new-title");
    assert!(browser.has("#new-title[aria-invalid=true]"));
    assert_eq!(browser.texts("#new-title-e"), ["Enter a title."]);
    assert_eq!(
        browser.run("return document.querySelector('#new-description').value"),
        "<b>what</b> to do"
    );
    assert!(!browser.has(".toast"));
    browser.find("#new-title").type_in("Now it has one");
    browser.find("#new-task .primary").click();
    browser.until("it is made", || browser.texts(".card-link") == ["Now it has one"]);
}

#[test]
fn properties_are_changed_in_place_and_a_change_of_another_person_is_told() {
    let daemon = with_tasks();
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    browser.go_to("/ui/projects/prj?task=one");
    // The button of the reason why it waits opens the list that ends the wait.
    browser.find("#panel .call .act").click();
    browser.find("#pick-assignee [role=option]");
    browser.press(&[ESCAPE]);
    browser.find("#edit-priority").click();
    browser.find("#pick-priority [value=urgent]").click();
    browser.find("#card-one .pr.urgent");
    // A value is picked from a list by the keyboard: type, Enter.
    let at = || {
        browser.run("return document.activeElement.id || document.activeElement.textContent.trim()")
    };
    browser.press(&[ESCAPE]);
    browser.find("#card-one .card-link").click();
    browser.until("the panel is open", || focus(&browser) == "panel");
    browser.press(&['a']);
    browser.until("the agents are listed", || browser.has("#pick-assignee [role=option]"));
    keep(&browser, "pick");
    browser.run("document.activeElement.value = ''");
    for key in ['a', 'g', 't', ENTER] {
        browser.press(&[key]);
    }
    browser.find("#card-one .avatar");
    browser.find("#panel .props .avatar");
    assert_eq!(at(), "edit-assignee");
    // Escape closes the list and not the panel.
    browser.press(&[ENTER]);
    browser.until("both are listed", || browser.texts("#pick-assignee [role=option]").len() == 2);
    browser.press(&[ESCAPE]);
    browser.until("it is closed", || at() == "edit-assignee");
    assert!(browser.has("#panel .task") && !browser.has(".pick:popover-open"));
    // The arrow keys walk in the list. A task that is waited for is taken away in the same way.
    let waits_for = || browser.texts("#panel .props .list a");
    browser.run("document.querySelector('#edit-dependencies').click()");
    browser.until("two tasks are listed", || {
        browser.texts("#pick-dependencies [role=option]").len() == 2
    });
    let second = browser.texts("#pick-dependencies [role=option] .cut").remove(1);
    browser.press(&[DOWN]);
    browser.press(&[DOWN]);
    browser.until("it has the focus", || at().as_str().unwrap().starts_with(&second));
    browser.press(&[ENTER]);
    browser.until("it waits for it", || waits_for() == [second.as_str()]);
    browser.find("#edit-dependencies").click();
    browser.find("#pick-dependencies [aria-selected=true]").click();
    browser.until("it waits for nothing", || waits_for().is_empty());
    // A value that another person changed meanwhile is not overwritten without a question.
    browser.run("document.querySelector('#pick-assignee .picks').replaceChildren()");
    browser.find("#edit-assignee").click();
    browser.find("#pick-assignee [value='']");
    daemon.done(&["task", "set", "one", "--title", "One"]);
    browser.find("#pick-assignee [value='']").click();
    browser.find("#panel .props .was-changed");
    let told = browser.texts(".was-changed b").concat();
    assert!(told.ends_with(" saved this while you were writing."), "{told}");
    browser.run("document.querySelector('.was-changed .btn').click()");
    assert_eq!(browser.texts(".was-changed dl"), ["Assignee: agt"]);
    browser.find(".was-changed .primary").click();
    browser.until("it is saved", || !browser.has("#card-one .avatar"));
    // The state control reaches each allowed state; a block asks for its reason first.
    daemon.done(&["task", "set", "one", "--assignee", "agt", "--status", "in_progress"]);
    browser.find(".states [title=Blocked][data-asks-reason]").click();
    browser.press(&[ESCAPE]);
    assert!(!browser.find(".why-blocked").is_shown() && browser.has("#panel .task"));
    browser.find(".states [title=Blocked][data-asks-reason]").click();
    browser.find("[name=reason]").type_in("waits for the team");
    browser.find(".why-blocked .primary").click();
    browser.until("the card says why", || {
        browser.texts("#column-blocked #card-one .what") == ["waits for the team"]
    });
    browser
        .until("the panel says why", || browser.texts("#panel .call b") == ["waits for the team"]);
    let disabled = browser.run(
        "return [...document.querySelectorAll('.states button')].filter(b => b.disabled).length",
    );
    assert_ne!(disabled, json!(0));
    browser.find(".states [title=Cancelled]").click();
    browser.find("#column-cancelled #card-one");

    // A card that is moved there moves at once, and is asked about then.
    daemon.done(&["task", "set", "two", "--assignee", "agt", "--status", "in_progress"]);
    browser.find("#column-in_progress #card-two");
    browser.run("moveTask(document.querySelector('#card-two'), 'blocked')");
    browser.until("the reason is asked for", || {
        browser.run("return document.activeElement.name") == "reason"
    });
    assert_eq!(daemon.task_status("two"), "blocked");
    browser.find("[name=reason]").type_in("no key");
    browser.press(&[ENTER]);
    browser.until("the card says why", || {
        browser.texts("#column-blocked #card-two .what") == ["no key"]
    });
}

#[test]
fn a_move_to_done_is_undone_although_no_move_leads_straight_back() {
    let daemon = with_tasks();
    daemon.done(&["task", "set", "one", "--assignee", "agt", "--status", "in_progress"]);
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    browser.go_to("/ui/projects/prj");
    browser.run("moveTask(document.querySelector('#card-one'), 'done')");
    browser.until("it is told", || browser.texts(".toast b") == ["Moved to Done"]);
    browser.find("#column-done #card-one");
    browser.find(".toast .act").click();
    browser.until("it is back", || daemon.task_status("one") == "in_progress");
    browser.find("#column-in_progress #card-one");

    // The state control tells the same, on the board and on the page of the task.
    for page in ["/ui/projects/prj?task=one", "/ui/tasks/one"] {
        browser.go_to(page);
        browser.find(".states [data-sets=done]").click();
        browser.until("it is told", || browser.texts(".toast b") == ["Moved to Done"]);
        // It stays while it has the focus.
        browser.run("document.querySelector('.toast .act').focus()");
        browser.until("it is shown", || browser.has(".states [data-sets=done][aria-pressed=true]"));
        browser.find(".toast .act").click();
        browser.until("it is back", || daemon.task_status("one") == "in_progress");
    }
    browser.find("[data-asks-reason][aria-expanded=false]").click();
    browser.find("[data-asks-reason][aria-expanded=true]");
    browser.find("[name=reason]").type_in("waits");
    browser.find(".why-blocked .primary").click();
    browser.until("the focus is at the state", || {
        browser.run("return document.activeElement.dataset.sets") == "blocked"
    });
    browser.until("it is told", || browser.texts(".toast b") == ["Moved to Blocked"]);
    browser.find(".toast .act").click();
    browser.until("it is back again", || daemon.task_status("one") == "in_progress");
    assert_quiet(&browser);
}

#[test]
fn keys_walk_through_the_tasks_of_a_column_while_the_panel_is_open() {
    let daemon = with_tasks();
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    browser.go_to("/ui/projects/prj");
    browser.find("#card-one .card-link").click();
    browser.until("the panel has the focus", || focus(&browser) == "panel");
    let title = || browser.texts("#panel .task-title").concat();
    let label = "const panel = document.querySelector('#panel'); \
                 return document.getElementById(panel.getAttribute('aria-labelledby')).textContent";
    for (key, task) in [('j', "two"), ('j', "three"), ('j', "three"), ('k', "two")] {
        browser.press(&[key]);
        browser.until("the panel shows it", || title() == task);
        browser.until("so does the address", || {
            browser.run("return location.search").as_str().unwrap().contains("task=PRJ-")
        });
        assert_eq!(browser.run(label), task);
        browser.find(&format!("#card-{task}.is-open"));
    }
    browser.press(&[ESCAPE]);
    browser.until("the focus is at its card", || focus(&browser) == "card-two");
    // Back leads to the board, and not through all that was shown.
    browser.find("#card-one .card-link").click();
    browser.until("the address has it", || browser.run("return location.search") == "?task=PRJ-1");
    browser.press(&['j']);
    browser.until("the panel shows the next", || title() == "two");
    browser.until("the address has it", || browser.run("return location.search") == "?task=PRJ-2");
    browser.run("history.back()");
    browser.until("the panel is closed", || !browser.has("#panel .task"));
    assert_quiet(&browser);
}
