//! The texts about agents and about the operation of all of them.

use super::Words;
use crate::web::names::isolated;
use api::status::CoordinatorBody;
use domain::Language;
use domain::start_history::StartReason;
use domain::waiting::{WaitReason, Waiting, host_name};

impl Words {
    /// Returns the number of agents, and of those that work.
    pub(in crate::web) fn of_working(&self, n_agents: usize, n_working: usize) -> String {
        match self.language {
            Language::English => format!("{n_agents}, {n_working} working"),
            Language::Japanese => format!("{n_agents} 件、作業中 {n_working}"),
        }
    }

    /// Returns the question before an agent is stopped. It never begins with the name itself, which
    /// htmx would run if it began with `js:`.
    pub(in crate::web) fn of_stop_question(&self, agent: &str) -> String {
        let agent = isolated(agent);
        match self.language {
            Language::English => format!(
                "Stop {agent}? It does not start again until you resume it or move one of its tasks to “In progress”."
            ),
            Language::Japanese => format!(
                "{agent} を停止しますか？ 再開するか、担当タスクを「進行中」に移すまで起動しません。"
            ),
        }
    }

    /// Returns the line of an agent without work in some projects.
    pub(in crate::web) fn of_no_task_in(&self, projects: &str) -> String {
        match self.language {
            Language::English => format!("No task for it in {projects}."),
            Language::Japanese => format!("{projects} に担当タスクはありません。"),
        }
    }

    /// Returns the heading of the note about an agent that does not run.
    pub(in crate::web) fn of_not_running(&self, waiting: &Waiting) -> String {
        let reason = waiting.sentence(self.language);
        if waiting.reason == WaitReason::HostSilent {
            return reason;
        }
        match self.language {
            Language::English if waiting.begins_with_name() => format!("Not running: {reason}"),
            Language::English => format!("Not running: {}", with_small_letter(&reason)),
            Language::Japanese => format!("起動していません: {reason}"),
        }
    }

    /// Returns what a person should know about a wait; `None` if its sentence says all.
    pub(in crate::web) fn of_wait_help(&self, waiting: &Waiting) -> Option<&'static str> {
        let is_login = waiting.is_not_logged_in();
        let WaitReason::Start(reason) = &waiting.reason else { return None };
        let (english, japanese) = match reason {
            StartReason::Parked if is_login => (
                "Log in on the machine of the agents, as the user that runs them. The next try notices it, or “Try now” at once.",
                "エージェントのマシンで、エージェントを実行するユーザーとしてログインしてください。次の再試行か「今すぐ再試行」で反映されます。",
            ),
            StartReason::Backoff => {
                ("The pause doubles after each failure.", "失敗のたびに待ち時間が倍になります。")
            }
            StartReason::Held => (
                "It stays stopped until you resume it or move one of its tasks to “In progress”.",
                "再開するか、担当タスクを「進行中」に移すまで停止したままです。",
            ),
            StartReason::Suspended | StartReason::Misconfigured => (
                "The latest launches show the cause. Fix it, then resume the agent.",
                "直近の起動で原因を確認し、解消してから再開してください。",
            ),
            StartReason::NoCoordinator => (
                "A coordinator starts agents. Run `agent-coordinator supervise` on their machine.",
                "エージェントのマシンで `agent-coordinator supervise` を実行してください。",
            ),
            _ => return None,
        };
        Some(self.language.either(english, japanese))
    }

    pub(in crate::web) fn of_assigned(&self, project: &str) -> String {
        match self.language {
            Language::English => format!("Assigned to {project}, and both are active"),
            Language::Japanese => format!("{project} に割り当て済みで、どちらも有効"),
        }
    }

    pub(in crate::web) fn of_work_for(&self, task: &str) -> String {
        match self.language {
            Language::English => format!("There is work: {task}"),
            Language::Japanese => format!("作業がある: {task}"),
        }
    }

    pub(in crate::web) fn of_free_slot(&self, n_running: usize, n_slots: usize) -> String {
        match self.language {
            Language::English => format!("A slot is free ({n_running} of {n_slots} in use)"),
            Language::Japanese => {
                format!("スロットが空いている（{n_slots} 中 {n_running} を使用）")
            }
        }
    }

    /// Returns how many banners are not shown.
    pub(in crate::web) fn of_more_banners(&self, n: usize) -> String {
        match self.language {
            Language::English => format!("{n} more"),
            Language::Japanese => format!("ほか {n} 件"),
        }
    }

    /// Returns how many agents are not shown.
    pub(in crate::web) fn of_more_agents(&self, n: usize) -> String {
        match (self.language, n) {
            (Language::English, 1) => "1 more agent".to_owned(),
            (Language::English, n) => format!("{n} more agents"),
            (Language::Japanese, n) => format!("ほか {n} 体のエージェント"),
        }
    }

    /// Returns what the slots of all coordinators run.
    pub(in crate::web) fn of_slots(
        &self,
        n_tasks: usize,
        n_chats: usize,
        n_slots: usize,
        n_kept: usize,
    ) -> String {
        match self.language {
            Language::English => {
                let slots = if n_slots == 1 { "slot" } else { "slots" };
                let kept = match n_kept {
                    0 => String::new(),
                    n => format!(", {n} kept for chats"),
                };
                format!("{n_slots} {slots}: tasks use {n_tasks}, chats use {n_chats}{kept}")
            }
            Language::Japanese => {
                let kept = match n_kept {
                    0 => String::new(),
                    n => format!("、チャット用に確保 {n}"),
                };
                format!("スロット {n_slots}: タスク {n_tasks}、チャット {n_chats}{kept}")
            }
        }
    }

    /// Returns the button that stops this many agents.
    pub(in crate::web) fn of_stop_n(&self, n: usize) -> String {
        match (self.language, n) {
            (Language::English, 1) => "Stop 1 agent".to_owned(),
            (Language::English, n) => format!("Stop {n} agents"),
            (Language::Japanese, n) => format!("{n} 体のエージェントを停止"),
        }
    }

    /// Returns the name of a host. If it is not known, the id of its coordinator stands for it.
    pub(in crate::web) fn of_host(&self, host: &CoordinatorBody) -> String {
        let machine = host.machine.as_ref().map(|machine| machine.name.as_str());
        host_name(&host.coordinator_id, machine, self.language)
    }

    /// Returns the warning about a host that does not answer, before the time of its last contact.
    pub(in crate::web) fn of_host_away(&self, host: &CoordinatorBody) -> String {
        let host = self.of_host(host);
        match self.language {
            Language::English => format!(
                "{host} does not respond. No agents start there until it is back. Last contact:"
            ),
            Language::Japanese => {
                format!("{host} が応答しないため、復帰するまでそこでは起動しません。最終応答:")
            }
        }
    }

    /// Returns the sentence about a database that does not work as it should.
    pub(in crate::web) fn of_store_problem(&self, health: &str, english: &str) -> String {
        match self.language {
            Language::English => english.to_owned(),
            Language::Japanese => format!("データベース: {}", self.of_store_health(health)),
        }
    }

    /// Returns the pending writes of an item of a forge. Their names exist in English only.
    pub(in crate::web) fn of_owed(&self, owed: &[String]) -> String {
        match self.language {
            Language::English => owed.join(", "),
            Language::Japanese => format!("{} 件", owed.len()),
        }
    }

    /// Returns whether an English text of a program can stand in the sentences of the page.
    pub(in crate::web) fn is_english(&self) -> bool {
        self.language == Language::English
    }
}

/// Returns a sentence for the place after a colon. A word in capital letters stays.
fn with_small_letter(text: &str) -> String {
    let mut chars = text.chars();
    match (chars.next(), chars.clone().next()) {
        (Some(first), Some(second)) if second.is_lowercase() || second == ' ' => {
            first.to_lowercase().chain(chars).collect()
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::Timestamp;
    use domain::machine::Machine;
    use domain::waiting::WaitFacts;

    #[test]
    fn a_reason_after_a_colon_begins_with_a_small_letter() {
        assert_eq!(with_small_letter("Failed 2 times"), "failed 2 times");
        assert_eq!(with_small_letter("A person stopped it"), "a person stopped it");
        assert_eq!(with_small_letter("SHOP-1 first"), "SHOP-1 first");
        let w = Words::of(Language::English);
        let held = Waiting::of(WaitReason::Start(StartReason::Held));
        assert_eq!(w.of_not_running(&held), "Not running: a person stopped it");
        let facts = WaitFacts { stopped_by: Some("Ann".to_owned()), ..WaitFacts::default() };
        let by_ann = Waiting { facts: Some(Box::new(facts)), ..held };
        assert_eq!(w.of_not_running(&by_ann), "Not running: Ann stopped it");
    }

    #[test]
    fn a_host_is_shown_by_its_name_or_the_end_of_its_id() {
        let w = Words::of(Language::English);
        let host = |id: &str, machine: Option<Machine>| {
            w.of_host(&CoordinatorBody {
                coordinator_id: id.parse().unwrap(),
                heard_at: Timestamp::from_millis(0),
                is_there: true,
                max_concurrent: 1,
                running: 0,
                machine,
            })
        };
        assert_eq!(host("build-1", None), "build-1");
        assert_eq!(host("crd_01a21741d49171c6a8fb32ff3ab905db", None), "Host b905db");
        let machine = Machine { name: "build-2".to_owned(), memory: None, disk: None };
        assert_eq!(host("crd_01a21741d49171c6a8fb32ff3ab905db", Some(machine)), "build-2");
    }
}
