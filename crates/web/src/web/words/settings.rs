//! The texts of the settings and of the login.

use super::Words;
use domain::Language;
use domain::configuration::Setting;
use domain::credential::{CredentialKind, LinkFault, Role};

impl Words {
    /// Returns the source of a setting.
    pub(in crate::web) fn of_source(&self, setting: &Setting) -> String {
        let Some(line) = setting.line else {
            let (default, file) = self.language.either(("Default", "File"), ("既定値", "ファイル"));
            return if setting.is_default { default } else { file }.to_owned();
        };
        let variables = setting.variables.join(", ");
        match (self.language, variables.as_str()) {
            (Language::English, "") => format!("File,\u{a0}line\u{a0}{line}"),
            (Language::English, names) => {
                format!("File,\u{a0}line\u{a0}{line}, environment {names}")
            }
            (Language::Japanese, "") => format!("ファイル {line} 行目"),
            (Language::Japanese, names) => format!("ファイル {line} 行目、環境変数 {names}"),
        }
    }

    pub(in crate::web) const fn of_login(&self, kind: CredentialKind) -> &'static str {
        let (english, japanese) = match kind {
            CredentialKind::Link => ("Unused link", "未使用リンク"),
            CredentialKind::Cookie => ("Browser", "ブラウザー"),
            CredentialKind::Token => ("Token", "トークン"),
        };
        self.language.either(english, japanese)
    }

    pub(in crate::web) const fn of_role(&self, role: Role) -> &'static str {
        match role {
            Role::Operator => self.operator,
            Role::Viewer => self.viewer,
        }
    }

    /// Returns the question before a login is revoked.
    pub(in crate::web) fn of_revoke_question(&self, kind: CredentialKind, name: &str) -> String {
        let what = self.of_login(kind);
        match self.language {
            Language::English => format!("Revoke permanently? {what} · {name}"),
            Language::Japanese => format!("失効させますか？ {what} · {name}"),
        }
    }

    /// Returns the heading about a login link that is not valid, and what to do.
    pub(in crate::web) const fn of_link_fault(
        &self,
        fault: LinkFault,
    ) -> (&'static str, &'static str) {
        let (english, japanese) = match fault {
            LinkFault::Used => (
                ("This link was already used", "Each link opens one session. Ask for a new one."),
                (
                    "このリンクは使用済みです",
                    "リンクは 1 回だけ使えます。新しいリンクを取得してください。",
                ),
            ),
            LinkFault::Expired => (
                ("This link has expired", "A link is valid for ten minutes. Ask for a new one."),
                (
                    "このリンクは有効期限切れです",
                    "リンクの有効期間は 10 分です。新しいリンクを取得してください。",
                ),
            ),
            LinkFault::Unknown => (
                (
                    "This link is not valid here",
                    "It is incomplete, or it belongs to another server. Ask for a new one.",
                ),
                (
                    "このリンクではログインできません",
                    "リンクの一部が欠けているか、別のサーバーのものです。新しいリンクを取得してください。",
                ),
            ),
        };
        self.language.either(english, japanese)
    }
}

macro_rules! texts {
    ($($name:ident: $english:literal, $japanese:literal;)+) => {
        impl Words {
            $(pub(in crate::web) const fn $name(&self) -> &'static str {
                self.language.either($english, $japanese)
            })+
        }
    };
}

texts! {
    log_in_here: "Log in to agent-coordinator", "agent-coordinator にログイン";
    logins_heading: "People and logins", "利用者とログイン";
    logins_hint: "A link for another person, or a token for a script:", "他の人へのリンク、スクリプト用のトークン:";
    setting: "Setting", "設定項目";
    value: "Value", "値";
    comes_from_source: "Source", "設定元";
    role: "Role", "権限";
    last_used: "Last used", "最終利用";
    expires: "Expires", "有効期限";
    never: "never", "なし";
    revoke: "Revoke…", "失効させる…";
    this_browser: "this browser", "このブラウザー";
    secret: "secret", "非表示";
}
