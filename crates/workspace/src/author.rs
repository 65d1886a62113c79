//! The authors of the commits that the daemon makes.

use domain::printable::line;
use machine::sys::user_names;

/// The domain of the addresses. It exists nowhere.
const DOMAIN: &str = "agent-coordinator.invalid";
/// The name of a person who has no other one.
const A_PERSON: &str = "a person";
/// The longest name and the longest beginning of an address, in characters.
const MAX_NAME: usize = 100;

/// The person who merges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Author {
    /// The name of a login or a token.
    Named(String),
    /// A user of this machine who asked on the control socket.
    LocalUser(u32),
}

impl Author {
    /// Returns the name by which the person logs in; an empty one if it is not known.
    pub(super) async fn login(&self) -> String {
        match self {
            Self::Named(name) => line(name).trim().to_owned(),
            Self::LocalUser(uid) => {
                let uid = *uid;
                let found = tokio::task::spawn_blocking(move || user_names::login_of(uid)).await;
                found.ok().flatten().unwrap_or_default()
            }
        }
    }

    /// Returns the name for a commit. It is never empty.
    pub(super) async fn name(&self) -> String {
        let name = match self {
            Self::Named(name) => name.clone(),
            Self::LocalUser(uid) => {
                let uid = *uid;
                let found = tokio::task::spawn_blocking(move || user_names::name_of(uid)).await;
                found.unwrap_or_default()
            }
        };
        readable(&name)
    }
}

/// Returns a name without the characters that git refuses or leaves out in names.
pub(super) fn readable(name: &str) -> String {
    let is_kept = |c: &char| !c.is_control() && !matches!(c, '<' | '>');
    let kept: String = name.chars().filter(is_kept).take(MAX_NAME).collect();
    let is_crud = |c: char| c.is_whitespace() || ".,:;\"\\'".contains(c);
    let kept = kept.trim_matches(is_crud);
    if kept.is_empty() { A_PERSON.to_owned() } else { kept.to_owned() }
}

/// Returns an address in the form of an e-mail address, which no mail reaches.
pub(super) fn address_of(name: &str) -> String {
    let is_safe = |c: char| c.is_ascii_alphanumeric() || "._-+".contains(c);
    let safe = |c: char| if is_safe(c) { c } else { '-' };
    let local: String = name.chars().take(MAX_NAME).map(safe).collect();
    let local = local.trim_matches(['.', '-']).replace("..", ".");
    let local = if local.is_empty() { "person" } else { &local };
    format!("{local}@{DOMAIN}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_commit_has_a_name_that_git_takes() {
        let of = |name: &str| Author::Named(name.to_owned());
        assert_eq!(of("Ann Example").name().await, "Ann Example");
        assert_eq!(of("山田").name().await, "山田");
        assert_eq!(of(" <ann@x>\n.").name().await, "ann@x");
        for empty in ["", " ", "<>", "...", "\u{7}"] {
            assert_eq!(of(empty).name().await, A_PERSON, "{empty:?}");
        }
        let own = Author::LocalUser(nix::unistd::getuid().as_raw()).name().await;
        assert!(!own.is_empty() && !own.contains("local:"), "{own}");
        assert_eq!(Author::LocalUser(4_294_967_000).name().await, "user 4294967000");
    }

    #[test]
    fn an_address_has_the_form_of_an_e_mail_address() {
        for (name, address) in [
            ("agt_one", "agt_one@agent-coordinator.invalid"),
            ("Ann Example", "Ann-Example@agent-coordinator.invalid"),
            ("ann@x.org", "ann-x.org@agent-coordinator.invalid"),
            ("山田", "person@agent-coordinator.invalid"),
            ("..a..b.", "a.b@agent-coordinator.invalid"),
        ] {
            assert_eq!(address_of(name), address);
        }
    }
}
