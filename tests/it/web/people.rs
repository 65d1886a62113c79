//! Two people with names of their own: in a chat, in the comments, and in the activity.

use serde_json::json;

use super::browser::Browser;
use super::{assert_quiet, daemon};
use crate::support::until;

/// Returns the messages of people in the panel, as (name, content).
fn said(browser: &Browser) -> Vec<(String, String)> {
    let script = "return [...document.querySelectorAll('.message.is-ours:not(.is-unsent)')]\
                  .map(m => [m.querySelector('.sender b').textContent, m.querySelector('.prose').textContent])";
    serde_json::from_value(browser.run(script)).unwrap()
}

fn say(browser: &Browser, text: &str) {
    browser.go_to("/ui/projects/prj?chat=agt");
    browser.find("#send");
    browser.find("#say").type_in(text);
    browser.find("#send").click();
    browser
        .until("it is said", || said(browser).last().is_some_and(|(_, content)| content == text));
}

#[test]
fn two_people_have_two_names() {
    let daemon = daemon(&["agt", "idle"]);
    daemon.done(&["stop", "idle", "prj"]);
    daemon.task("tsk", "prj", "idle");
    let Some(mut browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    let own = |name: &str, text: &str| (name.to_owned(), text.to_owned());
    browser.log_in(&daemon, &["--name", "Ann"]);
    say(&browser, "of Ann");
    assert_eq!(said(&browser), [own("Ann", "of Ann")]);
    browser.go_to("/ui/tasks/tsk");
    browser.find("#comment").type_in("seen by Ann");
    browser.find("#comment-tsk .btn").click();
    browser.find(".time-line .prose");

    browser.log_in(&daemon, &["--name", "Ben Ω"]);
    say(&browser, "of Ben");
    assert_eq!(said(&browser), [own("Ann", "of Ann"), own("Ben Ω", "of Ben")]);
    browser.go_to("/ui/tasks/tsk");
    assert!(browser.texts(".time-line b").contains(&"Ann".to_owned()));
    browser.find("[data-asks-reason]").click();
    browser.find("[name=reason]").type_in("Ann knows");
    browser.find(".why-blocked .primary").click();
    browser.until("the activity names both", || {
        let names = browser.texts(".time-line b");
        ["Ann", "Ben Ω"].iter().all(|name| names.contains(&(*name).to_owned()))
    });

    // A third person, who has a script, is named while the page is open.
    let token = daemon.done(&["token", "create", "--name", "Cem"]);
    browser.go_to("/ui/projects/prj?chat=agt");
    browser.until("the messages are there", || said(&browser).len() == 2);
    let status = browser.run_async(&format!(
        "fetch('/api/projects/prj/agents/agt/chat/messages', {{ method: 'POST', credentials: 'omit', body: JSON.stringify({{ content: 'of Cem' }}),\
         headers: {{ authorization: 'Bearer ' + {}, 'content-type': 'application/json' }} }}).then(r => arguments[arguments.length - 1](r.status))",
        json!(token.trim())
    ));
    assert!((200..300).contains(&status.as_u64().unwrap()), "{status}");
    let all = [own("Ann", "of Ann"), own("Ben Ω", "of Ben"), own("Cem", "of Cem")];
    browser.until("all have their names", || said(&browser) == all);
    let authors = || -> Vec<_> {
        let lines = daemon.mirrored("agt").into_iter();
        let of_people = lines.filter(|line| line["senderId"] == "user");
        of_people.map(|line| line["author"].clone()).collect()
    };
    until("the file of the chat names them, too", || authors() == ["Ann", "Ben Ω", "Cem"]);
    assert_quiet(&browser);
}
