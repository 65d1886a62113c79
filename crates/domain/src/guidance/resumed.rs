//! The prompt of a launch that continues a conversation.

use std::time::Duration;

use super::{Guidance, authenticate_call};
use crate::conversation::{Cause, Resumed};
use crate::key::InstanceKey;
use crate::secret::Secret;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

impl Guidance {
    /// Returns the prompt of a launch that continues a conversation. `last_call` is the call that
    /// had no result when the conversation was interrupted, as one line. It is the only text that
    /// is not ours.
    pub fn resumed_prompt(
        self,
        key: &InstanceKey,
        passkey: Option<&Secret>,
        resumed: &Resumed,
        last_call: Option<&str>,
    ) -> String {
        let authenticate = authenticate_call(key, passkey);
        let cause = self.cause(resumed.cause);
        let pause = self.pause(resumed.pause);
        let quoted = last_call.map(|call| format!("\"{}\"", call.replace('"', "'")));
        // An agent that reported had no call that was running, unless one is known.
        let has_reported =
            matches!(resumed.cause, Cause::Reported | Cause::Blocked | Cause::Failed);
        let may_have_called = quoted.is_some() || !has_reported;
        let report = match resumed.cause {
            Cause::Exited => self.0.either(
                "You ended without report_completed. If the task is finished, report it now.\n\n",
                "前回は report_completed を呼び出さずに終了しました。タスクが完了している場合は、今すぐ報告してください。\n\n",
            ),
            _ => "",
        };
        let call = if may_have_called {
            let unknown = self.0.either("none is known", "該当する呼び出しは不明");
            let call = quoted.as_deref().unwrap_or(unknown);
            self.0.choose(
                format!(
                    "A call that was running then may have happened, in part or not at all, and this conversation may not show it: {call}. Look first; don't repeat it blindly.\n\n"
                ),
                format!(
                    "中断時に実行中だった呼び出しは、完了した、途中まで行われた、またはまったく行われなかった可能性があり、この会話に表示されないこともあります: {call}。まず状態を確認し、そのまま繰り返さないでください。\n\n"
                ),
            )
        } else {
            String::new()
        };
        self.0.choose(
            format!(
                "\nYou worked on this task before, in this conversation. It was interrupted: {cause}. {pause} have passed; files may have changed since.\n\n\
                 {call}{report}Your session is over. Steps:\n\
                 1. Authenticate with {authenticate}\n\
                 2. Call get_my_task(): it has what is new, comments of people included\n\
                 3. Go on where you were, and report the end with report_completed()\n"
            ),
            format!(
                "\nあなたは以前、この会話でこのタスクに取り組んでいました。会話は中断されました: {cause}。{pause}が経過しています。その間にファイルが変更された可能性があります。\n\n\
                 {call}{report}以前のセッションは終了しています。手順:\n\
                 1. {authenticate} で認証\n\
                 2. get_my_task() で新しい情報（ユーザーのコメントを含む）を取得\n\
                 3. 中断した所から作業を続け、report_completed() で完了報告\n"
            ),
        )
    }

    const fn cause(self, cause: Cause) -> &'static str {
        match cause {
            Cause::Reported => self.0.either(
                "you reported success, and there is more to do",
                "成功が報告された後に、追加の作業が必要になりました",
            ),
            Cause::Blocked => self.0.either(
                "you reported that you were blocked, and people let you go on",
                "ブロックされたと報告された後、ユーザーが再開しました",
            ),
            Cause::Failed => self.0.either(
                "you reported a failure, and people let you go on",
                "失敗が報告された後、ユーザーが再開しました",
            ),
            Cause::Person => {
                self.0.either("a person stopped you", "ユーザーによって停止されました")
            }
            Cause::Shutdown => self.0.either(
                "you were stopped together with the coordinator",
                "コーディネーターの停止に伴って停止されました",
            ),
            Cause::Stopped => self.0.either("you were stopped", "停止されました"),
            Cause::Quota => self.0.either(
                "the quota of your account was used up",
                "アカウントの利用枠を使い切りました",
            ),
            Cause::Login => self
                .0
                .either("the login of your account failed", "アカウントのログインに失敗しました"),
            Cause::Overload => self.0.either(
                "the service of your model was overloaded",
                "モデルのサービスが過負荷でした",
            ),
            Cause::TooLong => self
                .0
                .either("you took too long and were stopped", "制限時間を超えたため停止されました"),
            Cause::Silent => self.0.either(
                "you were silent for too long and were stopped",
                "長時間応答がなかったため停止されました",
            ),
            Cause::Exited => self.0.either("your process ended", "プロセスが終了しました"),
            Cause::Lost => self.0.either(
                "your process or the machine ended without a report",
                "プロセスまたはマシンが報告なしに終了しました",
            ),
        }
    }

    /// Returns a pause in the greatest unit of which it has at least two. A shorter one is told as
    /// two seconds.
    fn pause(self, pause: Duration) -> String {
        let seconds = pause.as_secs();
        let (n, english, japanese) = match seconds {
            s if s >= 2 * DAY => (s / DAY, "days", "日"),
            s if s >= 2 * HOUR => (s / HOUR, "hours", "時間"),
            s if s >= 2 * MINUTE => (s / MINUTE, "minutes", "分"),
            s => (s.max(2), "seconds", "秒"),
        };
        self.0.choose(format!("{n} {english}"), format!("{n}{japanese}"))
    }
}
