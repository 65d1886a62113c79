//! Every text an agent reads, in English and Japanese. The Japanese ones are the specifications' wording where they give one.
//!
//! Titles, descriptions and messages are other people's data: they travel as fields and are never part of an instruction.

use std::fmt::Write as _;
use std::path::Path;

use super::key::InstanceKey;
use super::language::Language;
use super::launch::ReportResult;
use super::secret::Secret;

/// The texts of one language.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guidance(Language);

impl Guidance {
    pub const fn new(language: Language) -> Self {
        Self(language)
    }

    const fn either(self, english: &'static str, japanese: &'static str) -> &'static str {
        match self.0 {
            Language::English => english,
            Language::Japanese => japanese,
        }
    }

    /// After `authenticate` (seed 004).
    pub const fn authenticated(self) -> &'static str {
        self.either(
            "Call get_my_task to fetch the details of your task.",
            "get_my_task を呼び出してタスク詳細を取得してください",
        )
    }

    /// After `get_my_task` with a task (seed 004).
    pub const fn task_given(self) -> &'static str {
        self.either(
            "When the task is finished, call report_completed.",
            "タスクを完了したら report_completed を呼び出してください",
        )
    }

    /// After `get_my_task` without one (seed 004).
    pub const fn no_task(self) -> &'static str {
        self.either("There is no task assigned to you at present.", "現在割り当てられたタスクはありません")
    }

    /// After `report_completed` (seed 004 for success).
    pub const fn reported(self, result: ReportResult) -> &'static str {
        match result {
            ReportResult::Success => self.either(
                "The task is completed. Your session ends here: exit now.",
                "タスクが完了しました。セッションを終了します。",
            ),
            ReportResult::Failed | ReportResult::Blocked => self.either(
                "Your report is recorded. Your session ends here: exit now.",
                "報告を記録しました。セッションを終了します。",
            ),
        }
    }

    /// After `update_task_status` to done, while other work remains (seed 001).
    pub const fn work_remains(self) -> &'static str {
        self.either(
            "Check the state of your remaining tasks with get_my_task_progress and go on with the work that is needed.",
            "get_my_task_progress で残りのタスク状況を確認し、必要な作業を続けてください。",
        )
    }

    /// After `update_task_status` to done, when nothing remains (seed 001).
    pub const fn all_work_done(self) -> &'static str {
        self.either(
            "All tasks assigned to you are finished. Call report_completed.",
            "担当タスクが全て完了しました。report_completed を呼び出してください。",
        )
    }

    /// After `logout`.
    pub const fn logged_out(self) -> &'static str {
        self.either("Your session has ended: exit now.", "セッションを終了しました。プロセスを終了してください。")
    }

    /// What an agent CLI is started with (seed 004). Without `passkey` it names the variable that holds it, because an
    /// argument list is readable by everyone on the machine.
    pub fn prompt(self, key: &InstanceKey, working_directory: &Path, passkey: Option<&Secret>) -> String {
        let InstanceKey { agent, project, .. } = key;
        let directory = working_directory.display();
        let mut text = format!("\nAgent ID: {agent}\nProject ID: {project}\n");
        let shown = match (passkey, self.0) {
            (Some(passkey), _) => passkey.reveal(),
            (None, Language::English) => "the value of the environment variable AGENT_PASSKEY",
            (None, Language::Japanese) => "環境変数 AGENT_PASSKEY の値",
        };
        let argument = passkey.map_or("$AGENT_PASSKEY", Secret::reveal);
        let call = format!(r#"authenticate(agent_id="{agent}", passkey="{argument}", project_id="{project}")"#);
        let written = match self.0 {
            Language::English => write!(
                text,
                "Passkey: {shown}\n\n\
                 Steps:\n\
                 1. Authenticate with {call}\n\
                 2. The system_prompt of the answer is your role. Act according to it\n\
                 3. Fetch your task with get_my_task()\n\
                 4. Carry out the task (current directory: {directory})\n\
                 5. Report the end with report_completed()\n"
            ),
            Language::Japanese => write!(
                text,
                "Passkey: {shown}\n\n\
                 手順:\n\
                 1. {call} で認証\n\
                 2. 返された system_prompt があなたの役割です。その役割に従って行動してください\n\
                 3. get_my_task() でタスク取得\n\
                 4. タスク実行（カレントディレクトリ: {directory}）\n\
                 5. report_completed() で完了報告\n"
            ),
        };
        written.expect("writing to a string can't fail");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::super::key::Purpose;
    use super::*;

    fn key() -> InstanceKey {
        InstanceKey::new("agt_x".parse().expect("an id"), "prj_a".parse().expect("an id"), Purpose::Task)
    }

    #[test]
    fn the_japanese_prompt_is_the_seeds() {
        let prompt = Guidance::new(Language::Japanese).prompt(&key(), Path::new("/proj_a"), Some(&Secret::new("k")));
        insta::assert_snapshot!(prompt, @r#"

        Agent ID: agt_x
        Project ID: prj_a
        Passkey: k

        手順:
        1. authenticate(agent_id="agt_x", passkey="k", project_id="prj_a") で認証
        2. 返された system_prompt があなたの役割です。その役割に従って行動してください
        3. get_my_task() でタスク取得
        4. タスク実行（カレントディレクトリ: /proj_a）
        5. report_completed() で完了報告
        "#);
    }

    #[test]
    fn the_prompt_names_the_variable_instead_of_the_passkey() {
        let prompt = Guidance::new(Language::English).prompt(&key(), Path::new("/proj_a"), None);
        insta::assert_snapshot!(prompt, @r#"

        Agent ID: agt_x
        Project ID: prj_a
        Passkey: the value of the environment variable AGENT_PASSKEY

        Steps:
        1. Authenticate with authenticate(agent_id="agt_x", passkey="$AGENT_PASSKEY", project_id="prj_a")
        2. The system_prompt of the answer is your role. Act according to it
        3. Fetch your task with get_my_task()
        4. Carry out the task (current directory: /proj_a)
        5. Report the end with report_completed()
        "#);
    }
}
