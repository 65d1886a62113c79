//! `limits`: the limits beside `max_concurrent`. They are the numbers of agents that may run at
//! once, the free resources that a start needs, and the number of tasks that an agent may create.

use super::reader::{Field, Section};
use super::report::Problem;
use crate::domain::creation::CreationLimits;

/// The limits of running agents and of their creations. If a limit is lowered, agents beyond it run
/// on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The number of agents that may live at once in one project; `None` allows any number.
    pub per_project: Option<usize>,
    /// The number of instances of one agent in all its projects; `None` allows any number.
    pub per_agent: Option<usize>,
    /// The number of agents of one provider (`ai_type`); `None` allows any number.
    pub per_provider: Option<usize>,
    /// The number of slots of `max_concurrent` that are kept free for chats. It is less than
    /// `max_concurrent`.
    pub chat_reserve: usize,
    /// The free space on the file system of `state_dir` that a start needs, in bytes; `None` needs
    /// none.
    pub min_free_disk: Option<u64>,
    /// The free memory that a start needs, in bytes; `None` needs none.
    pub min_free_memory: Option<u64>,
    pub agent: AgentLimits,
    pub creation: CreationLimits,
}

/// The limits of the whole process tree of one agent; `None` is unlimited. They hold if the daemon
/// has a control group with the controllers for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AgentLimits {
    /// The memory in bytes. Beyond it, the kernel ends processes of the tree.
    pub memory: Option<u64>,
    /// The number of processes and threads. Beyond it, no more can be created.
    pub processes: Option<u64>,
}

/// The default, which is enough for the outputs of a fleet until a person frees space.
const MIN_FREE_DISK: u64 = 1 << 30;

impl Default for Limits {
    fn default() -> Self {
        Self {
            per_project: None,
            per_agent: None,
            per_provider: None,
            chat_reserve: 0,
            min_free_disk: Some(MIN_FREE_DISK),
            min_free_memory: None,
            agent: AgentLimits::default(),
            creation: CreationLimits::default(),
        }
    }
}

impl Limits {
    pub(super) fn read(mut section: Section<'_, '_>, max_concurrent: usize) -> Self {
        let mut limit = |key| section.optional(key).and_then(|field| field.integer(1..=100_000));
        let (per_project, per_agent, per_provider) =
            (limit("per_project"), limit("per_agent"), limit("per_provider"));
        let reserve = section.field("chat_reserve");
        let span = reserve.as_ref().map(Field::span);
        let chat_reserve = reserve.and_then(|field| field.integer(0..=100_000)).unwrap_or_default();
        if chat_reserve >= max_concurrent && chat_reserve > 0 {
            let problem = Problem::new(
                "`limits.chat_reserve` leaves no slot of `max_concurrent` for tasks",
                span,
            );
            section
                .reader()
                .note(problem.help("raise `max_concurrent` or lower `limits.chat_reserve`"));
        }
        let mut least = |key| section.optional(key).map(|field| field.size_or_off(1..=1 << 60));
        let min_free_disk = least("min_free_disk").unwrap_or(Some(MIN_FREE_DISK));
        let min_free_memory = least("min_free_memory").flatten();
        let agent = AgentLimits::read(&mut section);
        let creation = read_creation(&mut section);
        Self {
            per_project,
            per_agent,
            per_provider,
            chat_reserve,
            min_free_disk,
            min_free_memory,
            agent,
            creation,
        }
    }
}

fn read_creation(limits: &mut Section<'_, '_>) -> CreationLimits {
    let CreationLimits { tasks_per_launch, subtasks_per_task, messages_per_launch } =
        CreationLimits::default();
    let range = 1..=1_000_000;
    CreationLimits {
        tasks_per_launch: limits.integer("tasks_per_launch", tasks_per_launch, range.clone()),
        subtasks_per_task: limits.integer("subtasks_per_task", subtasks_per_task, range.clone()),
        messages_per_launch: limits.integer("messages_per_launch", messages_per_launch, range),
    }
}

impl AgentLimits {
    fn read(limits: &mut Section<'_, '_>) -> Self {
        let memory = limits.optional("memory_per_agent");
        let processes = limits.optional("processes_per_agent");
        Self {
            memory: memory
                .and_then(|field| field.size(16 * 1024 * 1024..=1024 * 1024 * 1024 * 1024)),
            processes: processes
                .and_then(|field| field.integer(2..=4_000_000))
                .and_then(|n| u64::try_from(n).ok()),
        }
    }
}
