//! `limits`: the limits beside `max_concurrent`. They are the numbers of agents that may run at
//! once, the free resources that a start needs, the resources of one agent, and the number of rows
//! that one launch may create.

use super::declaration::keys;
use super::kinds::{MIB, TIB, numbers, sizes};
use super::reader::Section;
use domain::creation::CreationLimits;
use domain::plan::StartLimits;

keys! {
    /// Further limits of what is alive at once. Each start waits until none of them is exceeded. A
    /// limit that is lowered ends no agent: no more agents start until enough have ended.
    impl StartLimits in "limits" {
        /// The number of agents in one project. A smaller number leaves room for other projects.
        per_project: numbers(1..=100_000).or_none(), Now;

        /// The number of instances of one agent, in all its projects and chats.
        per_agent: numbers(1..=100_000).or_none(), Now;

        /// The number of agents with the same `ai_type`. A smaller number spares the quota of that
        /// account.
        per_provider: numbers(1..=100_000).or_none(), Now;

        /// The number of slots of `max_concurrent` that tasks never take. Less than
        /// `max_concurrent`. A greater number lets people talk to an agent although all slots are
        /// busy. Chats start before tasks in any case.
        chat_reserve: numbers(0..=100_000), Now;

        /// The free space on the file system of `state_dir` that a start needs. A smaller size
        /// suits small disks. A greater one leaves room for what agents print and build.
        min_free_disk: sizes(1..=1 << 60).or_off().or_empty(), Now;

        /// The memory that a start needs to be available without swapping, as Linux reports it.
        min_free_memory: sizes(1..=1 << 60).or_off().or_empty(), Now;
    }
}

keys! {
    /// The resources of one agent with all its processes. They are limited if the daemon has a
    /// control group with the controllers for that.
    pub struct AgentLimits in "limits" {
        /// The memory of an agent with everything that it starts. A smaller size protects the
        /// machine. With too little, the kernel ends the agent or its tools, and `status` says so.
        /// The limit needs a control group (docs/isolation.md). Without one, the daemon logs a
        /// warning.
        pub memory_per_agent: Option<u64> = None, sizes(16 * MIB..=TIB).or_none(), ToNewStarts;

        /// The processes and threads of an agent with everything that it starts. It needs a control
        /// group, too. A smaller number stops fork bombs sooner. Builds and tests of large projects
        /// need hundreds.
        pub processes_per_agent: Option<u64> = None, numbers(2..=4_000_000).or_none(), ToNewStarts;
    }
}

keys! {
    /// The rows that one launch may create.
    impl CreationLimits in "limits" {
        /// The tasks that one launch of an agent creates, with subtasks. Further ones are refused
        /// with `limit_reached`. A smaller number stops an agent in a loop sooner. A greater one
        /// lets one launch plan larger work.
        tasks_per_launch: numbers(1..=1_000_000), Now;

        /// The direct subtasks of a task when an agent adds one. Subtasks of any origin count.
        /// People may add more.
        subtasks_per_task: numbers(1..=1_000_000), Now;

        /// The messages that one launch of an agent writes in its chat. Its next launch begins
        /// anew.
        messages_per_launch: numbers(1..=1_000_000), Now;
    }
}

/// Notes a reserve for chats that takes all slots.
pub(super) fn check_reserve(
    limits: &StartLimits,
    section: &Section<'_, '_>,
    max_concurrent: usize,
) {
    if limits.chat_reserve >= max_concurrent && limits.chat_reserve > 0 {
        let message = "`limits.chat_reserve` leaves no slot of `max_concurrent` for tasks";
        let help = "raise `max_concurrent` or lower `limits.chat_reserve`";
        section.refuse("chat_reserve", message, help);
    }
}
