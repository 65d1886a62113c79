//! `limits.…_per_agent` of memory and processes: what the whole tree of one agent may use.

use super::reader::Section;

/// Kept where the daemon has a control group with the controllers for it; unlimited where `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AgentLimits {
    /// In bytes. Beyond it, the kernel ends processes of the tree.
    pub memory: Option<u64>,
    /// Processes and threads. Beyond it, no more are made.
    pub processes: Option<u64>,
}

impl AgentLimits {
    pub(super) fn read(limits: &mut Section<'_, '_>) -> Self {
        let memory = limits.optional("memory_per_agent");
        let processes = limits.optional("processes_per_agent");
        Self {
            memory: memory.and_then(|field| field.size(16 * 1024 * 1024..=1024 * 1024 * 1024 * 1024)),
            processes: processes.and_then(|field| field.integer(2..=4_000_000)).and_then(|n| u64::try_from(n).ok()),
        }
    }
}
