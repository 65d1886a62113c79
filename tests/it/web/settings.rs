//! The page of the settings.

use serde_json::json;

use super::browser::Browser;
use super::{assert_quiet, daemon_with};

#[test]
fn settings_show_where_each_value_is_from_and_logins_are_revoked_there() {
    let daemon = daemon_with(&[], "max_concurrent: 7\ncoordinator_token: coord_a_secret_of_ours");
    let token = daemon.json(&["token", "create", "--name", "ci"]);
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    browser.go_to("/ui/settings");
    let row = |name: &str| -> Vec<String> {
        let script = format!(
            "const rows = [...document.querySelectorAll('#configuration_state tr')];\
             const row = rows.find(row => row.cells[0].textContent === {});\
             return [...row.cells].slice(1).map(cell => cell.textContent)",
            json!(name)
        );
        serde_json::from_value(browser.run(&script)).unwrap()
    };
    let concurrent = row("max_concurrent");
    assert_eq!(concurrent[0], "7");
    assert!(concurrent[1].starts_with("File,\u{a0}line\u{a0}"), "{concurrent:?}");
    assert_eq!(row("coordinator_token")[0], "(secret)");
    assert_eq!(row("notice.grace")[1], "Default");
    assert!(!browser.texts("main").concat().contains("a_secret_of_ours"));

    // A mistake in the file comes before the settings that are in use.
    daemon.configure("http: { listen: \"127.0.0.1:0\" }\nmax_concurent: 8");
    assert_ne!(daemon.cli(&["reload"]).code, 0);
    browser.go_to("/ui/settings");
    assert!(browser.texts("#configuration_state .call.bad")[0].contains("max_concurent"));
    assert_eq!(row("max_concurrent")[0], "7");

    browser.go_to("/ui/operations");
    let banner = browser.texts(".banner").concat();
    assert!(banner.contains("The configuration file has mistakes and is not in use."), "{banner}");
    browser.go_to("/ui/settings");

    // Single keys can be turned off.
    browser.find("#single-keys").click();

    browser.go_to("/ui/settings");
    assert_eq!(browser.run("return document.querySelector('#single-keys').checked"), false);

    // A time is as many days ago as there were midnights since.
    let shown = browser.run(
        "const at = new Date(); at.setDate(at.getDate() - 2); at.setHours(23, 59, 0, 0);\
         const time = document.createElement('time'); time.dateTime = at.toISOString();\
         return timeText(time)",
    );
    assert!(shown.as_str().unwrap().starts_with("2 days ago, 11:59"), "{shown}");

    let names = || browser.texts("#logins .name");
    assert_eq!(names().len(), 2, "{:?}", names());
    let own = "#logins tr:has(td:nth-child(2) .faint)";
    assert!(browser.texts(own)[0].contains("Browser (this browser)"));
    assert!(!browser.has(&format!("{own} button")));
    let id = token["id"].as_str().unwrap();
    browser.find(&format!("#{id} button")).click();
    assert_eq!(browser.find("#sure[open] #sure-text").text(), "Revoke permanently? Token · ci");
    assert_eq!(browser.find("#sure .danger").text(), "Revoke");
    browser.find("#sure .danger").click();
    browser.until("the token is gone", || names().len() == 1);
    let left = daemon.json(&["token", "list"]);
    assert!(left.as_array().unwrap().iter().all(|login| login["name"] != "ci"), "{left}");
    assert_quiet(&browser);
}
