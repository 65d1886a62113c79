//! The changes of a task in the panel: they appear while it is open, and a result is merged.

use serde_json::Value;

use super::assert_quiet;
use super::browser::Browser;
use super::looks::TOO_FAINT;
use crate::http::changes::{TWO_BRANCHES, WORKS, git, shop, until_kept};

const ENTER: char = '\u{e007}';
const ESCAPE: char = '\u{e00c}';

#[test]
fn the_changes_of_a_task_appear_in_its_panel_and_are_merged_there() {
    let daemon = shop("http: { listen: \"127.0.0.1:0\" }", &WORKS);
    daemon.done(&[
        "task",
        "add",
        "--id",
        "tsk",
        "--project",
        "shop",
        "--assignee",
        "agt",
        "--title",
        "a title",
    ]);
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    browser.go_to("/ui/projects/shop?task=tsk&tab=changes");
    browser.find("#panel .task");
    assert!(!browser.has("#panel .changes"));
    // The changes of its agent appear without a reload.
    daemon.done(&["task", "set", "tsk", "--status", "in_progress"]);
    browser.find("#panel .changes .mark.good");
    until_kept(&daemon, "tsk");
    browser.until("the files are there", || browser.texts("#panel .changes .box code").len() == 3);
    browser.until("the card shows them", || {
        browser.texts("#card-tsk .plus") == ["+2"] && browser.has("#card-tsk .dot.wait")
    });
    // The first file is open. A reader who closes it finds it closed.
    browser.until("the lines are shown", || browser.find(".changes .box .diff").is_shown());
    browser.find(".changes .box summary").click();
    browser.until("it is closed", || !browser.find(".changes .box .diff").is_shown());
    browser.run("document.querySelectorAll('.changes .box summary').forEach(e => e.click())");
    browser.until("the lines are shown", || browser.find(".changes .box .diff").is_shown());
    assert!(browser.texts(".changes tr.add td:last-child").contains(&"<b>TWO</b>".to_owned()));
    for theme in ["light", "dark"] {
        browser.run(&format!("document.documentElement.dataset.theme = '{theme}'"));
        // The colours of buttons change within a tenth of a second.
        browser.until("all can be read", || browser.run(TOO_FAINT) == Value::Array(Vec::new()));
    }
    browser.find(".changes .primary").click();
    browser.until("it is merged", || {
        browser.texts("#said-of-changes .call.good").concat().contains("Merged into main")
    });
    assert_eq!(git(&daemon, &["show", "main:main.txt"]), "one\n<b>TWO</b>\nthree");
    // What the reader opened is still open.
    assert!(browser.find(".changes .box .diff").is_shown());
    browser.go_to("/ui/projects/shop?task=tsk");
    browser.until("the activity tells it", || {
        browser.texts(".time-line p").concat().contains("merged the result into main")
    });
    assert_quiet(&browser);
}

#[test]
fn a_conflict_is_shown_after_a_reload_and_asking_the_agent_comes_first() {
    let daemon = shop("http: { listen: \"127.0.0.1:0\" }", &WORKS);
    daemon.task("tsk", "shop", "agt");
    until_kept(&daemon, "tsk");
    std::fs::write(daemon.work().join("main.txt"), "one\nmine\nthree\n").unwrap();
    git(&daemon, &["commit", "--quiet", "--all", "-m", "mine"]);
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    let page = "/ui/tasks/SHOP-1?tab=changes";
    browser.go_to(page);
    browser.find(".changes .primary").click();
    let primary = || browser.texts(".changes .primary");
    browser.until("the conflict is shown", || browser.has(".changes .conflict"));
    for _ in 0..2 {
        let told = browser.texts(".changes .conflict").concat();
        assert!(told.contains("change the same lines of:") && told.contains("main.txt"), "{told}");
        assert_eq!(primary(), ["Ask the agent to resolve it"]);
        assert!(!browser.has("#said-of-changes .call"), "it is told once");
        browser.go_to(page);
        browser.until("it is there again", || browser.has(".changes .conflict"));
    }
    browser.find(".changes .primary").click();
    browser.until("the agent is asked", || {
        browser.texts("#said-of-changes .call").concat().contains("The agent was asked")
    });
    assert_quiet(&browser);
}

#[test]
fn a_branch_is_chosen_by_the_first_button() {
    let daemon = shop("http: { listen: \"127.0.0.1:0\" }", &TWO_BRANCHES);
    daemon.task("tsk", "shop", "agt");
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    until_kept(&daemon, "tsk");
    browser.go_to("/ui/projects/shop?task=tsk&tab=changes");
    let primary = || browser.texts(".changes .primary");
    browser.until("a branch is to be chosen", || primary() == ["Choose the branch"]);
    browser.find(".changes .primary").click();
    let choices = || browser.find("#choices-of-result-tsk");
    browser.until("the branches are shown", || choices().is_shown());
    let mut branches = browser.texts("#choices-of-result-tsk button");
    branches.sort();
    assert_eq!(branches, ["x", "y"]);
    browser.find("#choices-of-result-tsk button").click();
    browser.until("it is the result", || primary() == ["Merge into main"]);
    assert!(browser.texts(".changes .grow-14").concat().contains("1 file, 1 commit"));
    assert_quiet(&browser);
}

#[test]
fn the_other_actions_are_in_a_menu_that_closes_and_fits_on_a_phone() {
    let daemon = shop("http: { listen: \"127.0.0.1:0\" }", &WORKS);
    daemon.task("tsk", "shop", "agt");
    until_kept(&daemon, "tsk");
    let Some(browser) = Browser::at(&daemon, "operator", "en") else {
        return;
    };
    let page = "/ui/projects/shop?task=tsk&tab=changes";
    let is_open = || browser.find("#more-of-result-tsk").is_shown();
    let opens = || {
        browser.find(".changes .opens-menu").click();
        browser.until("the menu is shown", is_open);
    };
    browser.emulate_phone(390, 844);
    browser.go_to(page);
    opens();
    let fits = browser.run(
        "const menu = document.querySelector('#more-of-result-tsk').getBoundingClientRect();\
         return menu.left >= 0 && menu.right <= innerWidth",
    );
    assert_eq!(fits, true, "the menu fits");
    browser.emulate_screen(1440, 900);
    browser.go_to(page);
    opens();
    // Escape closes the menu and not the panel.
    browser.press(&[ESCAPE]);
    browser.until("the menu is closed", || !is_open());
    assert!(browser.has("#panel .task"));
    browser.press(&[ENTER]);
    browser.until("the button had the focus", is_open);
    browser.find("#more-of-result-tsk [name=squash]").click();
    browser.until("it is merged", || {
        browser.texts("#said-of-changes .call.good").concat().contains("Merged into main")
    });
    assert!(!is_open(), "the menu closes");
    assert_eq!(git(&daemon, &["log", "-1", "--format=%p", "main"]).split(' ').count(), 1);
    assert!(!daemon.work().join("left.txt").exists());
    // The menu follows the state, and has the choice of the files in no commit.
    browser.until("nothing comes first", || !browser.has(".changes .primary"));
    opens();
    assert!(browser.texts("#more-of-result-tsk").concat().contains("Merge all again"));
    browser.find("#more-of-result-tsk [name=with_uncommitted]").click();
    browser.find("#more-of-result-tsk [name=squash]").click();
    browser.until("the files are merged", || daemon.work().join("left.txt").exists());
    assert_quiet(&browser);
}
