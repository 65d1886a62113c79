//! Bad input in each form of the page: it is told at its field, nothing is lost, and nothing runs.

use serde_json::{Value, json};

use super::browser::Browser;
use super::looks::{PAGES, go_to};
use super::{assert_quiet, daemon};
use crate::daemon::Daemon;

/// A form and the values that it must refuse.
struct Form {
    page: &'static str,
    /// A script that opens the form; empty if the page begins with it.
    opens: &'static str,
    form: &'static str,
    /// The values of the other fields, as an object of a script.
    others: &'static str,
    /// The name of a field, and expressions of bad values for it.
    bad: &'static [(&'static str, &'static [&'static str])],
}

const BLANK: &str = "' \\u3000 '";
const NUL: &str = "'a\\u0000b'";
const LONG_TITLE: &str = "'\u{1d54f}'.repeat(501)";
const LONG_NAME: &str = "'שלום'.repeat(51)";
const LONG_TEXT: &str = "'x'.repeat(50001)";

const FORMS: [Form; 10] = [
    Form {
        page: "/ui/projects/prj",
        opens: "document.querySelector('[data-new-task]').click()",
        form: "#new-task",
        others: "{ title: 'A title', description: 'What to do' }",
        bad: &[("title", &[BLANK, NUL, LONG_TITLE]), ("description", &[LONG_TEXT])],
    },
    Form {
        page: "/ui/projects/prj?task=tsk",
        opens: "document.querySelector('#panel .task-title').click()",
        form: "#title-tsk",
        others: "{}",
        bad: &[("title", &[BLANK, NUL, LONG_TITLE])],
    },
    Form {
        page: "/ui/projects/prj?task=tsk",
        opens: "document.querySelector('.edited:has(+ #edit-tsk) [data-edits]').click()",
        form: "#edit-tsk",
        others: "{ description: 'More' }",
        bad: &[("description", &[LONG_TEXT])],
    },
    Form {
        page: "/ui/tasks/tsk",
        opens: "document.querySelector('[data-asks-reason]').click()",
        form: ".why-blocked",
        others: "{}",
        bad: &[("reason", &["'x'.repeat(4001)"])],
    },
    Form {
        page: "/ui/tasks/tsk",
        opens: "",
        form: "#comment-tsk",
        others: "{}",
        bad: &[("text", &[BLANK, "'\u{1f980}'.repeat(4001)"])],
    },
    Form {
        page: "/ui/projects/prj?chat=agt",
        opens: "",
        form: "[data-say]",
        others: "{}",
        bad: &[("content", &["'\u{1f980}'.repeat(20001)"])],
    },
    Form {
        page: "/ui/agents/new",
        opens: "",
        form: ".main .form",
        others: "{ name: 'Ann', ai_type: 'claude', system_prompt: 'Be kind', id: '' }",
        bad: &[
            ("name", &[BLANK, NUL, LONG_NAME]),
            ("ai_type", &[BLANK, "'clauda'", "'x'.repeat(65)"]),
            ("system_prompt", &[LONG_TEXT]),
            ("id", &["'a b'", "'x'.repeat(65)", "'agt'"]),
        ],
    },
    Form {
        page: "/ui/agents/agt",
        opens: "",
        form: ".main .form",
        others: "{ name: 'Ann', ai_type: 'claude', system_prompt: 'Be kind' }",
        bad: &[("name", &[BLANK, LONG_NAME]), ("ai_type", &[BLANK, "'clauda'"])],
    },
    Form {
        page: "/ui/projects/new",
        opens: "",
        form: ".main .form",
        others: "{ name: 'Shop', working_directory: '/tmp', id: '' }",
        bad: &[
            ("name", &[BLANK, NUL, LONG_NAME]),
            (
                "working_directory",
                &[
                    BLANK,
                    "'srv/shop'",
                    "'/a\\u0000b'",
                    "'/' + 'x'.repeat(4096)",
                    "'/no/such/folder'",
                    "'/etc/hostname'",
                    "'/'",
                ],
            ),
            ("id", &["'ä'", "'prj'"]),
        ],
    },
    Form {
        page: "/ui/projects/prj/edit",
        opens: "",
        form: ".main .form",
        others: "{ name: 'Shop' }",
        bad: &[("name", &[BLANK, LONG_NAME]), ("working_directory", &["''"])],
    },
];

/// The scripts that all forms need. `wrong` returns what a reader sees of a mistake.
const SCRIPTS: &str = "
window.put = (form, values) => { for (const [name, value] of Object.entries(values)) { form.elements[name].value = value; form.elements[name].dispatchEvent(new Event('input', { bubbles: true })); } };
window.wrong = (form, name, value, others) => {
  const field = form.elements[name], error = document.getElementById(`${field.id || field.name}-e`);
  if (!field.matches('[aria-invalid=true]') || !error) return null;
  return { told: error.textContent, isNamed: field.getAttribute('aria-describedby').split(' ').includes(error.id),
    hasFocus: document.activeElement === field, isKept: field.value === value && Object.entries(others).every(([other, value]) => other === name || form.elements[other].value === value),
    isSeen: error.checkVisibility() && error.getBoundingClientRect().height > 0, toasts: document.querySelectorAll('.toast').length, n: form.querySelectorAll('.error').length };
};";

/// Sends a form with a bad value, and checks that the mistake is told at its field.
#[track_caller]
fn check_told(browser: &Browser, form: &Form, field: &str, bad: &str) {
    let setting = format!(
        "const form = document.querySelector({}), others = {}, value = {bad};",
        json!(form.form),
        form.others
    );
    browser.run(&format!(
        "{setting} put(form, {{ ...others, {field}: value }}); form.requestSubmit()"
    ));
    let place = format!("{} of {}: {field} = {bad}", form.form, form.page);
    let wrong = browser.until_some(&place, || {
        let wrong = browser.run(&format!("{setting} return wrong(form, '{field}', value, others)"));
        Some(wrong).filter(|wrong| !wrong.is_null())
    });
    let told = wrong["told"].as_str().unwrap();
    let is_japanese = told.chars().any(|c| ('\u{3040}'..='\u{30ff}').contains(&c));
    assert!(is_japanese, "{place}: {told}");
    for fact in ["isNamed", "hasFocus", "isKept", "isSeen"] {
        assert_eq!(wrong[fact], true, "{place}: {wrong}");
    }
    assert_eq!((&wrong["toasts"], &wrong["n"]), (&json!(0), &json!(1)), "{place}: {wrong}");
    // What is corrected is not marked any more.
    let is_marked = browser.run(&format!(
        "{setting} put(form, {{ {field}: others['{field}'] ?? '' }}); return form.querySelector('[aria-invalid], .error, .is-wrong') !== null"
    ));
    assert_eq!(is_marked, false, "{place}");
}

/// Returns a daemon with the things that [`FORMS`] are about.
fn with_forms() -> Daemon {
    let daemon = daemon(&["agt"]);
    daemon.agent("held", "prj", &["authenticate"]);
    daemon.done(&["pause"]);
    daemon.task("tsk", "prj", "held");
    daemon.done(&["stop", "held", "prj"]);
    daemon.done(&["resume"]);
    daemon
}

/// Opens a form in the way of a person.
fn open(browser: &Browser, form: &Form) {
    // The page before asks about what was written.
    browser.run("for (const e of document.querySelectorAll('[data-is-written]')) e.removeAttribute('data-is-written')");
    browser.go_to(form.page);
    browser.run(SCRIPTS);
    if form.page.contains("task=") {
        browser.find("#panel .task");
    }
    browser.run(form.opens);
    browser.find(form.form);
    if form.others.contains("ai_type") {
        // A kind is written only if it was not found.
        browser.find(".choice [value='']").click();
    }
}

#[test]
fn each_form_tells_a_mistake_at_its_field_and_keeps_what_was_written() {
    let daemon = with_forms();
    let Some(browser) = Browser::at(&daemon, "operator", "ja") else {
        return;
    };
    for form in &FORMS {
        open(&browser, form);
        for (field, values) in form.bad {
            for bad in *values {
                check_told(&browser, form, field, bad);
            }
        }
    }
    // Nothing of all that was written down.
    assert_eq!(daemon.json(&["task", "list"]).as_array().unwrap().len(), 1);
    assert_eq!(daemon.json(&["agent", "list"]).as_array().unwrap().len(), 2);
    assert_eq!(daemon.json(&["project", "list"]).as_array().unwrap().len(), 1);
    assert_eq!(daemon.json(&["task", "show", "tsk"])["title"], "a title");
}

#[test]
fn the_first_run_tells_each_mistake_at_its_field() {
    let daemon = Daemon::running("http: { listen: \"127.0.0.1:0\" }\n");
    let Some(browser) = Browser::at(&daemon, "operator", "ja") else {
        return;
    };
    let form = |others, bad| Form { page: "", opens: "", form: ".step .form", others, bad };
    let check = |form: &Form| {
        browser.run(SCRIPTS);
        for (field, values) in form.bad {
            for bad in *values {
                check_told(&browser, form, field, bad);
            }
        }
    };
    check(&form(
        "{ name: 'Shop', working_directory: '/tmp' }",
        &[("name", &[LONG_NAME]), ("working_directory", &[BLANK, "'shop'"])],
    ));
    browser.find("[name=workspace]");
    let work = json!(daemon.work());
    browser.run(&format!(
        "const form = document.querySelector('.step .form'); put(form, {{ name: 'Shop', working_directory: {work} }}); form.requestSubmit()"
    ));
    browser.find(".choice input[value=claude]:checked");
    check(&form("{}", &[("name", &[LONG_NAME, NUL])]));
    browser.find(".step .primary").click();
    browser.find(".step #title");
    check(&form(
        "{ title: 'Say hello', description: '' }",
        &[("title", &[BLANK, LONG_TITLE]), ("description", &[LONG_TEXT])],
    ));
}

/// Values that are unusual and right.
const UNUSUAL: [&str; 4] = [
    "שלום (1) \u{202e}cba",
    "\u{1f980}\u{1d54f}\u{e9}",
    "<img src=x onerror=\"window.ran = 1\"><script>window.ran = 1</script>",
    "{{ 7 * 7 }} '; DROP TABLE tasks; -- %00",
];

/// The fields that take any text.
const TEXTS: [&str; 7] =
    ["title", "description", "reason", "text", "content", "name", "system_prompt"];

#[test]
fn each_form_keeps_an_unusual_text_once_however_often_it_is_sent() {
    let daemon = with_forms();
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    let kept = |mark: &str| daemon.done(&["export"]).matches(mark).count();
    let odd = UNUSUAL.join(" ").replace('\u{202e}', "");
    for (n, form) in FORMS.iter().enumerate() {
        open(&browser, form);
        let marks: Vec<(&str, String)> = form
            .bad
            .iter()
            .map(|(field, _)| *field)
            .filter(|field| TEXTS.contains(field))
            .map(|field| (field, format!("mark-{n}-{field}")))
            .collect();
        let values: Vec<String> = marks
            .iter()
            .map(|(field, mark)| format!("{field}: {}", json!(format!("{mark} {odd}"))))
            .collect();
        let sent = browser.run(&format!(
            "const form = document.querySelector({}); put(form, {{ ...{}, {} }});\
             const sent = [form.getAttribute('hx-post'), new URLSearchParams(new FormData(form)).toString()];\
             for (let n = 0; n < 3; n++) form.requestSubmit(); return sent",
            json!(form.form),
            form.others,
            values.join(", ")
        ));
        for (field, mark) in &marks {
            browser.until(&format!("{field} of {} is kept", form.form), || kept(mark) > 0);
        }
        // The same request comes once more, such as from a line that lost the answer.
        if let Some(path) = sent[0].as_str() {
            // Another page sends it, because the answer to the form may leave this one meanwhile.
            go_to(&browser, "/ui/inbox");
            let status = browser.run_async(&format!(
                "fetch({}, {{ method: 'POST', body: new URLSearchParams({}) }}).then(r => arguments[arguments.length - 1](r.status))",
                json!(path),
                sent[1]
            ));
            assert!(matches!(status.as_u64().unwrap(), 200..300 | 412), "{}: {status}", form.page);
        }
        for (field, mark) in &marks {
            assert_eq!(kept(mark), 1, "{field} of {}", form.form);
        }
    }
    let pages = ["/ui/projects/prj", "/ui/projects/prj?chat=agt", "/ui/tasks/tsk", "/ui/inbox"];
    for page in PAGES.into_iter().chain(pages) {
        go_to(&browser, page);
        let facts = browser.run(
            "return [window.ran ?? null, document.querySelectorAll('.app script, .app img[onerror]').length]",
        );
        assert_eq!(facts, json!([null, 0]), "{page}");
    }
}

#[test]
fn unusual_texts_are_kept_shown_as_text_and_do_nothing() {
    let daemon = daemon(&["agt"]);
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    browser.go_to("/ui/projects/prj");
    let is_inert = || {
        let facts = browser.run(
            "return [window.ran ?? null, document.querySelectorAll('.app script, .app img[onerror], dialog script').length, /[\\u202a-\\u202e]/.test(document.body.innerText)]",
        );
        assert_eq!(facts, json!([null, 0, false]));
    };
    for text in UNUSUAL {
        let n = browser.texts(".card-link").len();
        browser.find("[data-new-task]").click();
        browser.until("the form is open", || {
            browser.run("return document.activeElement.id") == "new-title"
        });
        let value = json!(text);
        browser.run(&format!(
            "for (const name of ['title', 'description']) document.querySelector(`#new-task [name=${{name}}]`).value = {value};\
             document.querySelector('#new-task').requestSubmit(); document.querySelector('#new-task').requestSubmit()"
        ));
        browser.until("its card is there", || browser.texts(".card-link").len() == n + 1);
        let shown = text.replace('\u{202e}', "");
        assert!(browser.texts(".card-link").contains(&shown), "{shown}");
        is_inert();
        // It is found again, also by the palette.
        browser.run(&format!(
            "search.value = {value}; search.dispatchEvent(new Event('input', {{ bubbles: true }}))"
        ));
        let found = || browser.texts(".card-link");
        let is_found = !text.contains('\u{202e}');
        browser.until("it is found", || found().len() == usize::from(is_found));
        is_inert();
        browser
            .run("search.value = ''; search.dispatchEvent(new Event('input', { bubbles: true }))");
        browser.until("all are shown", || found().len() == n + 1);
        browser.run(&format!(
            "openPalette(); palette.querySelector('input').value = {value}; palette.dispatchEvent(new Event('input'))"
        ));
        browser.until("the palette answers", || {
            browser.texts("#found .what").contains(&shown) == is_found
        });
        is_inert();
        browser.run("palette.close()");
    }
    for text in ["'\\u0000'", "'\\ufffe\\ud800'", "'x'.repeat(100000)"] {
        browser.run(&format!(
            "search.value = {text}.slice(0, 4000); search.dispatchEvent(new Event('input', {{ bubbles: true }}))"
        ));
        browser.until("nothing is found", || browser.has("#nothing-found"));
        browser
            .run("search.value = ''; search.dispatchEvent(new Event('input', { bubbles: true }))");
        browser.until("all are shown", || !browser.has("#nothing-found"));
    }
    assert_quiet(&browser);
}

/// A script that returns the texts from right to left that could reorder the words around them, and
/// the fields that show such a text in the wrong direction.
const REORDERING: &str = "
const rtl = /[\\u0590-\\u08ff]/, walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), found = [];
while (walker.nextNode()) {
  const node = walker.currentNode;
  if (!rtl.test(node.data) || node.parentElement.closest('option, script, template')) continue;
  let element = node.parentElement, isApart = false;
  while (getComputedStyle(element).display === 'inline' || getComputedStyle(element).display === 'contents') {
    isApart ||= !['normal', 'embed'].includes(getComputedStyle(element).unicodeBidi);
    element = element.parentElement;
  }
  if (!isApart && element.textContent.trim() !== node.data.trim()) found.push([element.outerHTML.slice(0, 200), node.data]);
}
const fields = [...document.querySelectorAll('input:not([type]), input[type=text], input[type=search], textarea')];
return { texts: found, fields: fields.filter(f => f.dir !== 'auto' && !f.matches('.mono, [name=confirm]')).map(f => f.outerHTML), n: rtl.test(document.body.innerText) };";

#[test]
fn text_from_right_to_left_does_not_reorder_the_words_around_it() {
    let daemon = daemon(&["agt", "idle"]);
    daemon
        .steps("agt", &["authenticate", "get-my-task", "print:שורה 1", "write:ready", "sleep:600"]);
    for agent in ["agt", "idle"] {
        daemon.done(&["agent", "set", agent, "--name", &format!("{agent} סוכן (1)")]);
    }
    daemon.done(&["project", "set", "prj", "--name", "פרויקט (2)"]);
    daemon.task("tsk", "prj", "agt");
    daemon.done(&["task", "set", "tsk", "--title", "כותרת (3)", "--description", "תיאור (4)"]);
    daemon.task("stuck", "prj", "idle");
    daemon.done(&["task", "set", "stuck", "--title", "חסום [5]"]);
    daemon.done(&["task", "set", "stuck", "--status", "blocked", "--reason", "איזה בנק? (6)"]);
    daemon.done(&["task", "add", "--project", "prj", "--parent", "tsk", "--title", "חלק 7:"]);
    daemon.written_pid("ready");
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    let launch = daemon.open("agt")[0]["launch_id"].as_str().unwrap().to_owned();
    let launch = format!("/ui/launches/{launch}");
    let more = [launch.as_str(), "/ui/projects/prj?task=stuck", "/ui/agents/agt"];
    for page in PAGES.into_iter().chain(more) {
        go_to(&browser, page);
        let found = browser.run(REORDERING);
        assert_eq!(found["texts"], json!([]), "{page}");
        assert_eq!(found["fields"], json!([]), "{page}");
        assert!(found["n"] == Value::Bool(true) || page.ends_with("/new"), "{page}");
    }
    // The id stands after the title, as it does with any other title.
    browser.go_to("/ui/projects/prj?task=stuck");
    browser.find("#panel .task");
    browser.find("[data-new-task]").click();
    browser.find("#new-task");
    assert_eq!(browser.run(REORDERING)["fields"], json!([]));
    browser.run("closeDialog(); openPalette()");
    browser.find("#found [role=option]");
    assert_eq!(browser.run(REORDERING)["texts"], json!([]));
}
