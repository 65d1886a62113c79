//! A forge that was away, and the events that make the daemon ask it again before its next look.

use domain::forge::ForgeKind;

use super::{Bed, NAME};
use crate::daemon::Daemon;
use crate::forge::fake::{Fake, Fault, TOKEN, Times};
use crate::support::until;

const LISTS: &str = "GET /repos/{owner}/{repo}/issues";

/// Returns a daemon whose forge failed, and which looks again only in many minutes.
fn waiting() -> Bed {
    let fake = Fake::start();
    fake.repository(ForgeKind::GitHub, NAME);
    let settings = settings(&fake, "1h");
    fake.fail(LISTS, Times::Always, Fault::status(403).header("retry-after", "1"));
    let daemon = Daemon::configured(&settings);
    daemon.write("token", TOKEN);
    let mut bed = Bed { fake, daemon, forge: ForgeKind::GitHub };
    bed.daemon.start();
    until("the forge has failed", || bed.host()["health"] == "limited");
    bed.fake.mend();
    bed
}

fn settings(fake: &Fake, poll_interval: &str) -> String {
    Bed::settings(fake, ForgeKind::GitHub, "")
        .replace("poll_interval: 100ms", &format!("poll_interval: {poll_interval}"))
        .replace(&format!("token: {TOKEN}"), "token_file: token")
}

#[test]
fn refresh_and_reload_reach_a_forge_that_failed() {
    for command in ["refresh", "reload"] {
        let bed = waiting();
        bed.daemon.done(&[command]);
        until(command, || bed.host()["health"] == "ok");
    }
}

#[test]
fn a_new_token_reaches_a_forge_at_once() {
    let bed = waiting();
    bed.daemon.done(&["refresh"]);
    until("it answers", || bed.host()["health"] == "ok");
    bed.fake.set_token("an0ther-t0ken");
    bed.daemon.done(&["refresh"]);
    until("it is told", || bed.host()["health"] == "unauthorized");
    let n_requests = bed.fake.n_requests(LISTS);
    bed.daemon.write("token", "an0ther-t0ken\n");
    until("the new token is used", || bed.host()["health"] == "ok");
    assert!(bed.fake.n_requests(LISTS) > n_requests);
}
