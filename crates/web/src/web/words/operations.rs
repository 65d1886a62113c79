//! The texts about the store and the forges.

use super::Words;
use domain::Language;
use domain::machine::{Machine, Space};
use domain::store_state::{Spread, span};

impl Words {
    /// Returns the banner about a configuration file with mistakes.
    pub(in crate::web) const fn file_rejected(&self) -> &'static str {
        self.language.either(
            "The configuration file has mistakes and is not in use.",
            "設定ファイルに誤りがあるため、使われていません。",
        )
    }

    /// Returns the mark of a provider whose program is not installed.
    pub(in crate::web) const fn not_installed(&self) -> &'static str {
        self.language.either("Not installed", "未インストール")
    }

    /// Returns the text for the health of the store.
    pub(in crate::web) fn of_store_health(&self, health: &str) -> &'static str {
        let (english, japanese) = match health {
            "ok" => ("answers", "正常"),
            "slow" => ("slow", "低速"),
            "stuck" => ("stuck", "停滞"),
            _ => ("fails", "異常"),
        };
        self.language.either(english, japanese)
    }

    /// Returns the text for a figure of the store.
    pub(in crate::web) fn of_store_figure(&self, name: &str, spread: Spread) -> String {
        let (english, japanese) = match name {
            "statement" => ("statement", "文"),
            "lock" => ("lock", "ロック待ち"),
            _ => ("transaction", "トランザクション"),
        };
        let name = self.language.either(english, japanese);
        format!("{name} {} ({} {})", span(spread.median), self.at_most, span(spread.max))
    }

    /// Returns the part of the tokens of today that models read from a cache.
    pub(in crate::web) fn of_cached(&self, percent: u64) -> String {
        match self.language {
            Language::English => format!("{percent} % read from cache"),
            Language::Japanese => format!("{percent} % がキャッシュから"),
        }
    }

    /// Returns the change of a figure against an hour ago.
    pub(in crate::web) fn in_last_hour(&self, change: &str) -> String {
        match self.language {
            Language::English => format!("{change} in the last hour"),
            Language::Japanese => format!("1 時間で {change}"),
        }
    }

    /// Returns the parts of a machine's memory and disk that are in use; empty if neither is known.
    pub(in crate::web) fn of_machine(&self, machine: &Machine) -> String {
        let part = |space: Option<Space>, english, japanese| {
            let name = self.language.either(english, japanese);
            space.map(|space| format!("{name} {} %", space.used_percent()))
        };
        let parts = part(machine.memory, "memory", "メモリー").into_iter().chain(part(
            machine.disk,
            "disk",
            "ディスク",
        ));
        parts.collect::<Vec<_>>().join(self.language.either(", ", "、"))
    }

    /// Returns the text for the health of a forge.
    pub(in crate::web) fn of_forge_health(&self, health: &str) -> &'static str {
        let (english, japanese) = match health {
            "ok" => ("answers", "正常"),
            "unauthorized" => ("rejects the token", "トークン無効"),
            "limited" => ("rate-limited", "制限中"),
            "unavailable" => ("does not answer", "応答なし"),
            _ => ("not checked yet", "未確認"),
        };
        self.language.either(english, japanese)
    }

    /// Returns the text for the state of the work on an item of a forge.
    pub(in crate::web) fn of_item_state(&self, state: &str) -> &'static str {
        let (english, japanese) = match state {
            "waiting" => ("waiting", "待機中"),
            "preparing" => ("being prepared", "準備中"),
            "claiming" => ("being claimed", "取得中"),
            "processing" => ("in progress", "処理中"),
            "blocked" => ("blocked", "ブロック"),
            "failed" => ("failed", "失敗"),
            "pausing" => ("being paused", "一時停止処理中"),
            "paused" => ("paused", "一時停止"),
            "stopping" => ("being stopped", "停止処理中"),
            "done" => ("done", "完了"),
            "stopped" => ("stopped", "停止"),
            "expired" => ("expired", "期限切れ"),
            _ => ("elsewhere", "他で処理中"),
        };
        self.language.either(english, japanese)
    }
}
