//! The life of an item, with a restart of the daemon in each state. The next daemon finds the item
//! unchanged, writes nothing twice, and goes on.

use std::fs;

use domain::forge::ForgeKind;
use rustix::process::Signal;
use serde_json::Value;

use super::crashes::for_each;
use super::{BOT, Bed, check_comments};
use crate::forge::fake::{Fault, Item, Times};
use crate::support::{until, until_some_within};

/// Only an agent's own files end it, unless the daemon is to end all agents.
const SETTINGS: &str = "backoff: { initial: 1ms, max: 1ms }\nstart: { limit: 0 }\n\
                        stop: { timeout: 1h, leak_grace: 100ms }\nnotice: { grace: 1h }";

/// The way in which the daemon ends before the next one starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The daemon ends its agents first.
    Stop,
    /// The daemon leaves its agents to the next one.
    Keep,
    Crash,
}

/// One issue, and the daemon that works on it.
struct Life {
    bed: Bed,
    issue: Item,
    end: End,
}

impl Life {
    /// Makes an issue that waits because starts are paused.
    fn new(forge: ForgeKind, end: End) -> Self {
        let bed = Bed::with(forge, &works("block", "report:blocked"), SETTINGS);
        bed.daemon.done(&["pause"]);
        let issue = bed.issue("Login fails");
        Self { bed, issue, end }
    }

    /// Waits until the only item, open or over, is in this state. Returns its entry of `forge
    /// list`.
    #[track_caller]
    fn until(&self, state: &str) -> Value {
        let list = |arguments: &[&str]| self.bed.daemon.json(arguments).as_array().unwrap().clone();
        let found = || {
            let open = list(&["forge", "list"]);
            let ended = if open.is_empty() { list(&["forge", "list", "--ended"]) } else { open };
            ended.into_iter().next().filter(|item| item["state"] == state)
        };
        until_some_within(super::TIMEOUT, found, || {
            format!("{:?}: it is not {state}\n{}", self.bed.items(), self.bed.daemon.log())
        })
    }

    /// Waits for the same without a pending write.
    #[track_caller]
    fn until_settled(&self, state: &str) -> Value {
        until(state, || self.until(state)["owed"].as_array().is_none_or(Vec::is_empty));
        self.until(state)
    }

    /// Ends the daemon and starts another one, which looks at the forge three times.
    #[track_caller]
    fn restart(&mut self) {
        let daemon = &mut self.bed.daemon;
        match self.end {
            End::Stop => drop(daemon.terminate()),
            End::Keep => {
                daemon.signal(Signal::USR1);
                daemon.wait();
            }
            End::Crash => daemon.kill(),
        }
        daemon.start();
        let lists = match self.bed.forge {
            ForgeKind::GitHub => "GET /repos/{owner}/{repo}/issues",
            ForgeKind::GitLab => "GET /api/v4/projects/{id}/issues",
        };
        let n_before = self.bed.fake.n_requests(lists);
        until("it is looked at again", || self.bed.fake.n_requests(lists) >= n_before + 3);
    }

    /// Restarts the daemon while the item is in this state. Checks that it stays in it, in the
    /// store and at the forge.
    #[track_caller]
    fn restart_in(&mut self, state: &str) -> Value {
        let before = (self.until(state), self.issue.labels(), self.issue.comments());
        self.restart();
        let after = (self.until(state), self.issue.labels(), self.issue.comments());
        for field in ["id", "item", "task_id", "position", "owed"] {
            assert_eq!(before.0[field], after.0[field], "{field} in {state}, {:?}", self.end);
        }
        assert_eq!((before.1, before.2), (after.1, after.2), "in {state}, {:?}", self.end);
        after.0
    }

    /// Restarts the daemon while the agent works, and returns when it works again.
    #[track_caller]
    fn restart_at_work(&mut self) {
        let n_agents = self.until_agents(1);
        self.restart_in("processing");
        self.until_agents(n_agents + usize::from(self.end == End::Stop));
        self.bed.until_agent_runs();
    }

    /// Waits until this number of agents have asked for their tasks. Returns their number.
    #[track_caller]
    fn until_agents(&self, n: usize) -> usize {
        let file = self.bed.daemon.work().join("agents");
        let n_agents = || fs::read_to_string(&file).unwrap_or_default().lines().count();
        until("the agents have their tasks", || n_agents() >= n);
        n_agents()
    }

    /// Lets the agent that waits for this file go on.
    fn let_go(&self, file: &str) {
        fs::write(self.bed.daemon.work().join(file), "").unwrap();
    }

    /// Waits until the agent is gone. The next one takes these steps.
    #[track_caller]
    fn next_agent(&self, steps: &[&str]) {
        until("the agent is gone", || self.bed.daemon.open("agt").is_empty());
        let _ = fs::remove_file(self.bed.daemon.work().join("agents"));
        self.bed.daemon.steps("agt", steps);
    }

    fn refuse_writes(&self, routes: &[&str]) {
        for route in routes {
            self.bed.fake.fail(route, Times::Always, Fault::status(502));
        }
    }
}

/// Returns the steps of an agent that waits for a file with its task, and then takes this step.
fn works<'a>(file: &str, step: &'a str) -> [&'a str; 5] {
    let wait = match file {
        "block" => "wait-for:block",
        "save" => "wait-for:save",
        _ => "wait-for:finish",
    };
    ["authenticate", "get-my-task", "append:agents", wait, step]
}

#[test]
fn an_item_goes_on_after_a_restart_in_each_state() {
    // The way in which the daemon ends changes nothing in the requests to a forge.
    let cases = [
        (ForgeKind::GitHub, End::Stop),
        (ForgeKind::GitLab, End::Keep),
        (ForgeKind::GitHub, End::Crash),
    ];
    for_each(&cases, |&(forge, end)| {
        let mut life = Life::new(forge, end);
        let waiting = life.restart_in("waiting");
        assert_eq!((&waiting["position"], life.issue.labels().len()), (&1.into(), 1));

        life.refuse_writes(&["POST *comments", "POST *notes"]);
        life.bed.daemon.done(&["resume"]);
        until("the claim fails", || life.until("claiming")["retry_at"].is_string());
        life.restart_in("claiming");
        life.bed.fake.mend();
        let item = life.until_settled("processing");
        life.restart_at_work();
        check_comments(&life.issue, &["Task started"]);

        life.let_go("block");
        life.until_settled("blocked");
        life.next_agent(&works("save", "exit:0"));
        life.restart_in("blocked");
        assert_eq!(life.issue.labels(), ["coding agent blocked"]);

        life.issue.label("coding agent");
        life.until_settled("processing");
        life.until_agents(1);
        let signal = life.bed.daemon.state().join("contexts/pause_signal");
        fs::write(&signal, "").unwrap();
        life.until("pausing");
        if end == End::Stop {
            life.restart();
        } else {
            life.restart_in("pausing");
        }
        life.let_go("save");
        life.until_settled("paused");
        life.next_agent(&works("finish", "report:success"));
        life.restart_in("paused");
        assert_eq!(life.issue.labels(), ["coding agent paused"]);

        fs::remove_file(&signal).unwrap();
        life.until_settled("processing");
        life.restart_at_work();
        life.refuse_writes(&["POST *", "PUT *", "DELETE *"]);
        life.let_go("finish");
        until("a write fails", || life.until("done")["last_error"].is_string());
        life.restart_in("done");
        life.bed.fake.mend();
        let done = life.until_settled("done");
        assert_eq!((&done["id"], &done["task_id"]), (&item["id"], &item["task_id"]));
        life.restart_in("done");
        assert_eq!(life.issue.labels(), ["coding agent done"]);
        let titles = ["Task started", "Task blocked", "Task paused", "Task resumed", "Task done"];
        check_comments(&life.issue, &titles);
        assert_eq!(life.bed.places(&done), ["completed"]);

        life.next_agent(&[
            "authenticate",
            "get-my-task",
            "ignore-term",
            "append:agents",
            "wait-for:leave",
        ]);
        life.issue.label("coding agent");
        life.until_settled("processing");
        life.until_agents(1);
        life.issue.unassign(BOT);
        life.until("stopping");
        if end == End::Stop {
            life.let_go("leave");
            life.restart();
        } else {
            life.restart_in("stopping");
            life.let_go("leave");
        }
        let stopped = life.until_settled("stopped");
        assert_eq!(stopped["cause"], "unassigned");
        life.restart();
        assert_eq!(life.issue.labels(), ["coding agent stopped"]);
        check_comments(&life.issue, &[&titles[..], &["Task started", "Task stopped"]].concat());
        life.bed.daemon.until_nothing_is_left();
    });
}
