//! The calls of older clients (docs/migration.md): deprecated tools, and tools without the argument
//! that they take now. They are answered, and the log names the replacement once.
//!
//! To end the support of older clients, delete this folder, `service::compat` and `domain::compat`.
//! The compiler then shows the few calls of them.

mod get_pending_tasks;
mod invalidate_session;
mod list_managed_agents;
mod register_execution_log_file;
mod report_execution_complete;
mod report_execution_start;
pub(super) mod without_project;

use std::sync::atomic::{AtomicBool, Ordering};

use super::tools::Tool;

/// Returns the deprecated tools in the order of the list.
pub(super) fn tools() -> [Tool; 6] {
    [
        Tool::of::<list_managed_agents::ListManagedAgents>(),
        Tool::of::<get_pending_tasks::GetPendingTasks>(),
        Tool::of::<report_execution_start::ReportExecutionStart>(),
        Tool::of::<report_execution_complete::ReportExecutionComplete>(),
        Tool::of::<invalidate_session::InvalidateSession>(),
        Tool::of::<register_execution_log_file::RegisterExecutionLogFile>(),
    ]
}

/// A deprecated form of a call, with one static each.
struct Deprecated {
    form: &'static str,
    successor: &'static str,
    is_said: AtomicBool,
}

impl Deprecated {
    const fn new(form: &'static str, successor: &'static str) -> Self {
        Self { form, successor, is_said: AtomicBool::new(false) }
    }

    /// Notes a use of this form. Only the first use logs a warning, because old clients poll.
    fn is_used(&self) {
        if !self.is_said.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                form = self.form,
                successor = self.successor,
                "a client uses a deprecated call"
            );
        }
    }
}
