//! The checks in `task show`.

use super::error::CliError;
use super::output::{or_dash, plain, print_line, print_table, table};
use super::task::print_indented;
use api::tasks::CheckBody;
use domain::check::{CONFLICT, CheckResult};

/// Prints the checks, and the output of the last one that failed. It prints the output of a
/// conflict only while the result has that conflict.
pub(super) fn print(checks: &[CheckBody], has_conflict: bool) -> Result<(), CliError> {
    let mut rows = table(&["CHECK", "ROUND", "RESULT", "EXIT", "SECONDS", "COMMIT", "LAUNCH"]);
    for check in checks {
        let seconds = |millis: u64| format!("{}.{}", millis / 1000, millis % 1000 / 100);
        let short = |commit: &String| commit.chars().take(12).collect::<String>();
        rows.add_row([
            plain(&check.name),
            check.round.to_string(),
            check.result.to_string(),
            or_dash(check.exit_code),
            or_dash(check.duration_ms.map(seconds)),
            or_dash(check.commit.as_ref().map(short)),
            or_dash(check.launch_id.as_ref()),
        ]);
    }
    print_table(&rows, "")?;
    let failed = checks.iter().rev().find(|check| check.result == CheckResult::Failed);
    let is_over = |check: &CheckBody| check.name == CONFLICT && !has_conflict;
    match failed.filter(|check| !check.output.is_empty() && !is_over(check)) {
        Some(check) => {
            print_line(&format!("\noutput of {}:", plain(&check.name)))?;
            print_indented(&check.output)
        }
        None => Ok(()),
    }
}
