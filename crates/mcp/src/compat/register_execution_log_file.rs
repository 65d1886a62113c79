//! `register_execution_log_file`, deprecated: an older coordinator names the file of an agent's
//! output. The path belongs to its own machine, and the server does not read it. The end of the
//! output comes with `report_process_exit`.

use super::Deprecated;
use crate::envelope::Coordinator;
use crate::tools::{Done, Effect, NoInput, ToolSpec};
use service::{Service, ServiceError};

static DEPRECATED: Deprecated =
    Deprecated::new(RegisterExecutionLogFile::NAME, "report_process_exit(output_tail)");

pub(super) struct RegisterExecutionLogFile;

impl ToolSpec for RegisterExecutionLogFile {
    const NAME: &'static str = "register_execution_log_file";
    const TEXT: &'static str =
        "Deprecated: use report_process_exit with output_tail. For coordinators: does nothing.";
    const EFFECT: Effect = Effect::Reads;
    const OLDER_ARGUMENTS: &'static [&'static str] =
        &["agent_id", "task_id", "log_file_path", "execution_log_id"];
    type Who = Coordinator;
    type Input = NoInput;
    type Output = Done;

    async fn call(_: &Service, _: Coordinator, _: NoInput) -> Result<Done, ServiceError> {
        DEPRECATED.is_used();
        Ok(Done::DONE)
    }
}
