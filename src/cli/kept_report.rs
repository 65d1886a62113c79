//! The report of an agent for which the server or its store stays away. It is left to the
//! coordinator, which delivers it before it reports the end of the agent.

use std::error::Error;
use std::ffi::OsStr;
use std::path::PathBuf;

use serde_json::{Map, Value, json};

use config::Environment;
use domain::{Language, Refusal, limits};
use machine::instance_dir;
use machine::instance_dir::record::{self, KeptReport, Record as _};
use runtime::telemetry::ErrorChain;

/// The tool of the report.
pub(super) const REPORT: &str = "report_completed";
/// The instruction to the agent.
const KEPT: &str = "Your report is kept, and the coordinator delivers it later. Your session ends \
                    here: exit now.";

/// The folder in which the agent of this process may leave its report. Without one, nothing is
/// kept.
#[derive(Debug, Clone, Default)]
pub(super) struct Mailbox(Option<PathBuf>);

impl Mailbox {
    /// Finds the folder for temporary files that the coordinator has made for the launch. It does
    /// not look into another one.
    pub(super) fn of(environment: &Environment) -> Self {
        let launch = environment.variable("AGENT_LAUNCH_ID").and_then(|id| id.parse().ok());
        let name = launch.map(|launch| instance_dir::temporary_name(&launch));
        let folder = environment.variable("TMPDIR").map(PathBuf::from);
        let is_own = |folder: &PathBuf| {
            name.as_ref().is_some_and(|name| folder.file_name() == Some(OsStr::new(name)))
        };
        Self(folder.filter(is_own))
    }

    /// Makes the folder of a launch in `common`.
    #[cfg(test)]
    pub(super) fn made_in(common: &std::path::Path) -> Self {
        let folder = common.join(instance_dir::temporary_name(&"lch_1".parse().unwrap()));
        std::fs::create_dir(&folder).unwrap();
        Self::of(&Environment::new(
            "/",
            [("AGENT_LAUNCH_ID", "lch_1"), ("TMPDIR", folder.to_str().unwrap())],
        ))
    }

    /// Returns whether a report is kept.
    #[cfg(test)]
    pub(super) fn has_report(&self) -> bool {
        self.0.as_ref().is_some_and(|folder| folder.join(KeptReport::FILE).exists())
    }

    /// Keeps the report of a call, and returns the result for the agent. A report that the server
    /// would refuse for its length is refused in the server's words. Returns `None` if the call is
    /// not a report, or if it cannot be kept.
    pub(super) fn keep(&self, tool: &str, arguments: &Value) -> Option<Value> {
        if tool != REPORT {
            return None;
        }
        let report: KeptReport = serde_json::from_value(arguments.clone()).ok()?;
        if let Err(refusal) = check_lengths(&report) {
            return Some(result_of(&json!({
                "success": false, "error": refusal.to_string(), "error_code": refusal.code(),
                "hint": refusal.hint(Language::English),
            })));
        }
        match self.write(&report) {
            Ok(()) => Some(result_of(&json!({ "success": true, "instruction": KEPT }))),
            Err(error) => {
                let reason = ErrorChain(error.as_ref());
                eprintln!("agent-coordinator: could not keep the report: {reason}");
                None
            }
        }
    }

    fn write(&self, report: &KeptReport) -> Result<(), Box<dyn Error + Send + Sync>> {
        let folder = self.0.as_ref().ok_or("TMPDIR is not the folder of a launch")?;
        record::write(folder, report)?;
        // A report that is too large cannot be read.
        if let Err(error) = record::read::<KeptReport>(folder) {
            let _ = std::fs::remove_file(folder.join(KeptReport::FILE));
            return Err(error.into());
        }
        Ok(())
    }

    /// Keeps the report of a request, and returns the answer of JSON-RPC, as [`Mailbox::keep`]
    /// does.
    pub(super) fn answer(&self, request: &Value) -> Option<Value> {
        let call = &request["params"];
        let result = self.keep(call["name"].as_str()?, &call["arguments"])?;
        Some(json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }))
    }
}

/// Returns the arguments of a request that is a report.
pub(super) fn report_of(request: &Value) -> Option<&Map<String, Value>> {
    let call = &request["params"];
    call["arguments"].as_object().filter(|_| call["name"] == REPORT)
}

/// Returns whether the server could not use its store for the report of this request.
pub(super) fn is_put_off(request: &Value, answer: &Value) -> bool {
    report_of(request).is_some() && is_unavailable(&answer["result"])
}

/// Returns the result of a call with this answer.
fn result_of(answer: &Value) -> Value {
    let content = [json!({ "type": "text", "text": answer.to_string() })];
    let is_error = answer["success"] == false;
    json!({ "content": content, "structuredContent": answer, "isError": is_error })
}

/// Returns whether the server could not use its store.
pub(super) fn is_unavailable(result: &Value) -> bool {
    result["structuredContent"]["error_code"] == "unavailable"
}

/// Checks the texts of a report as the server does.
fn check_lengths(report: &KeptReport) -> Result<(), Refusal> {
    limits::SUMMARY.take_optional(report.summary.as_deref())?;
    limits::NEXT_STEPS.take_optional(report.next_steps.as_deref())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_report_is_kept_and_only_in_the_own_folder_of_the_launch() {
        let common = tempfile::tempdir().unwrap();
        let mailbox = Mailbox::made_in(common.path());
        let own = mailbox.0.clone().unwrap();
        let report = json!({ "session_token": "sess_1", "result": "failed", "summary": "why" });
        for variables in [
            [("AGENT_LAUNCH_ID", "lch_1"), ("TMPDIR", common.path().to_str().unwrap())],
            [("AGENT_LAUNCH_ID", "lch_2"), ("TMPDIR", own.to_str().unwrap())],
            [("AGENT_ID", "agt"), ("TMPDIR", own.to_str().unwrap())],
            [("AGENT_ID", "agt"), ("TMPDIR", "/")],
        ] {
            let other = Mailbox::of(&Environment::new("/", variables));
            assert_eq!(other.keep(REPORT, &report), None, "{variables:?}");
        }
        let request = |tool: &str, arguments: &Value| json!({ "id": 7, "params": { "name": tool, "arguments": arguments } });
        assert_eq!(mailbox.answer(&request("get_my_task", &report)), None);
        for bad in [json!({}), json!({ "session_token": "sess_1", "result": "perhaps" })] {
            assert_eq!(mailbox.answer(&request(REPORT, &bad)), None);
        }
        assert!(std::fs::read_dir(&own).unwrap().next().is_none());
        let answer = mailbox.answer(&request(REPORT, &report)).unwrap();
        assert_eq!(
            (&answer["id"], &answer["result"]["structuredContent"]["success"]),
            (&json!(7), &json!(true))
        );
        let kept: KeptReport = record::read(&own).unwrap().unwrap();
        assert_eq!((kept.session_token.as_str(), kept.summary.as_deref()), ("sess_1", Some("why")));
        // The server takes two texts of this length, but their file would be too large.
        let longest = "語".repeat(20_000);
        let large = json!({
            "session_token": "sess_1", "result": "success", "summary": longest,
            "next_steps": longest,
        });
        assert_eq!(mailbox.keep(REPORT, &large), None);
        assert!(!own.join(KeptReport::FILE).exists(), "it could not be delivered");
    }

    #[test]
    fn a_report_that_the_server_would_refuse_is_refused_in_its_words() {
        let common = tempfile::tempdir().unwrap();
        let mailbox = Mailbox::made_in(common.path());
        for name in ["summary", "next_steps"] {
            let mut report = json!({ "session_token": "sess_1", "result": "success" });
            report[name] = "é".repeat(20_001).into();
            let result = mailbox.keep(REPORT, &report).unwrap();
            let answer = &result["structuredContent"];
            assert_eq!((&result["isError"], &answer["success"]), (&true.into(), &false.into()));
            assert_eq!(answer["error_code"], "too_long");
            let words = format!("`{name}` is 20001 characters long, and at most 20000 are taken");
            assert_eq!(answer["error"], words);
        }
        assert!(std::fs::read_dir(mailbox.0.unwrap()).unwrap().next().is_none());
    }

    #[test]
    fn an_agent_whose_report_cannot_be_kept_is_not_told_that_it_is() {
        let common = tempfile::tempdir().unwrap();
        let mailbox = Mailbox::made_in(common.path());
        std::fs::remove_dir(mailbox.0.as_ref().unwrap()).unwrap();
        let report = json!({ "session_token": "sess_1", "result": "success" });
        assert_eq!(mailbox.keep(REPORT, &report), None);
    }

    #[test]
    fn only_a_report_is_put_off_because_the_store_was_away() {
        let arguments = json!({ "session_token": "sess_1", "result": "success" });
        let answer =
            |code: &str| json!({ "result": { "structuredContent": { "error_code": code } } });
        for (tool, code, expected) in [
            (REPORT, "unavailable", true),
            (REPORT, "subtasks_open", false),
            ("get_my_task", "unavailable", false),
        ] {
            let request = json!({ "id": 1, "params": { "name": tool, "arguments": arguments } });
            assert_eq!(is_put_off(&request, &answer(code)), expected, "{tool}: {code}");
        }
    }
}
