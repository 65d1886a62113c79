//! The report of an agent whose server does not answer. It is left to the coordinator, which
//! delivers it before it reports the end of the agent.

use std::ffi::OsStr;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::config::Environment;
use crate::instance_dir;
use crate::instance_dir::record::{self, KeptReport};

const REPORT: &str = "report_completed";
/// The instruction to the agent.
const KEPT: &str = "The server does not answer. Your report is kept, and the coordinator delivers \
                    it later. Your session ends here: exit now.";

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

    /// Keeps the report of a call, and returns the result for the agent. Returns `None` if the call
    /// is not a report, or if it cannot be kept.
    pub(super) fn keep(&self, tool: &str, arguments: &Value) -> Option<Value> {
        let folder = self.0.as_ref().filter(|_| tool == REPORT)?;
        let report: KeptReport = serde_json::from_value(arguments.clone()).ok()?;
        record::write(folder, &report).ok()?;
        // A report that is too large cannot be read.
        record::read::<KeptReport>(folder).ok()??;
        let answer = json!({ "success": true, "instruction": KEPT });
        let content = [json!({ "type": "text", "text": answer.to_string() })];
        Some(json!({ "content": content, "structuredContent": answer }))
    }

    /// Keeps the report of a request, and returns the answer of JSON-RPC, as [`Mailbox::keep`]
    /// does.
    pub(super) fn answer(&self, request: &Value) -> Option<Value> {
        let call = &request["params"];
        let result = self.keep(call["name"].as_str()?, &call["arguments"])?;
        Some(json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }))
    }
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
        let large = "é".repeat(40_000);
        let large = json!({ "session_token": "sess_1", "result": "success", "summary": large });
        assert_eq!(mailbox.keep(REPORT, &large), None);
    }
}
