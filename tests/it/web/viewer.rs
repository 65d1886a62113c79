//! The page of a viewer: nothing is offered that would be refused, and each refusal is in words.

use std::fs;
use std::path::Path;

use serde_json::json;

use super::assert_quiet;
use super::browser::Browser;
use super::looks::{all_pages, busy, go_to};

/// Returns the paths of all actions of the page, with things of [`busy`] in them.
fn deeds() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/web/src/web");
    let mut deeds = Vec::new();
    for file in fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let source = fs::read_to_string(path).unwrap();
        deeds.extend(
            source.split('"').filter(|text| text.starts_with("/ui/do/")).map(str::to_owned),
        );
    }
    for (name, id) in [("{project}", "prj"), ("{agent}", "agt"), ("{id}", "tsk")] {
        for deed in &mut deeds {
            *deed = deed.replace(name, id);
        }
    }
    deeds.retain(|deed| !deed.contains('{') && deed != "/ui/do/language");
    deeds.sort();
    deeds.dedup();
    deeds
}

#[test]
fn a_viewer_is_offered_nothing_that_is_refused_and_each_refusal_is_in_words() {
    let daemon = busy();
    let Some(browser) = Browser::at(&daemon, "viewer", "ja") else {
        return;
    };
    let mut pages = all_pages(&daemon);
    pages.retain(|page| !page.ends_with("999"));
    let others = ["/ui/tasks/stuck", "/ui/inbox?show=later", "/ui/inbox?show=done"];
    pages.extend(others.map(str::to_owned));
    for page in &pages {
        go_to(&browser, page);
        let offered = browser.run(
            "const inert = 'fieldset:disabled *, #login-again *, [action=\"/logout\"] *, [action=\"/ui/do/language\"] *';\
             const all = '[hx-post], form[method=post] button, [data-say], [data-removal], [data-new-task], [data-asks-reason], [hx-get*=removals], [hx-get*=new-task], [draggable=true]';\
             return [...document.querySelectorAll(all)].filter(e => !e.matches(inert) && !(e.matches('form') && e.closest('fieldset:disabled'))).map(e => e.outerHTML.slice(0, 200))",
        );
        assert_eq!(offered, json!([]), "{page}");
        assert!(!browser.has("#logins"), "{page} shows the logins of others");
    }
    let deeds = deeds();
    assert!(deeds.len() > 20, "{deeds:?}");
    let answers = browser.run_async(&format!(
        "const done = arguments[arguments.length - 1];\
         Promise.all({}.map(async path => {{ const answer = await fetch(path, {{ method: 'POST', body: new URLSearchParams({{}}) }});\
         const problem = await answer.json().catch(() => null); return [path, answer.status, problem?.code, problem?.detail]; }})).then(done)",
        json!(deeds)
    ));
    for answer in answers.as_array().unwrap() {
        assert_eq!((&answer[1], &answer[2]), (&json!(403), &json!("viewer_may_not")), "{answer}");
        assert!(answer[3].as_str().unwrap().starts_with("閲覧のみ可能です"), "{answer}");
    }
    // The browser itself notes each refusal that the script asked for.
    assert_eq!(browser.complaints().len(), deeds.len());
    browser.go_to("/ui/projects");
    assert_quiet(&browser);
}
