//! The message of a commit by which a result comes into a project's repository.

use std::fmt::Write as _;

use crate::ShortId;
use crate::printable::{line, lines, one_line};

/// The most subjects of squashed commits, and the most of their authors, that a message lists.
const MAX_LISTED: usize = 100;
/// The longest subject and the longest name in a message, in characters.
const MAX_LENGTH: usize = 200;
/// The addresses of this domain belong to no person: the commits of agents have them by default.
const NO_ADDRESS: &str = ".invalid";
/// The words with which git names the commit that a revert undoes.
pub const REVERTS: &str = "This reverts commit ";

/// The facts about a task for the message of a merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergeMessage {
    pub task: ShortId,
    pub title: String,
    /// The last summary of the agent.
    pub summary: Option<String>,
}

/// A commit of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultCommit {
    pub author: Signature,
    pub subject: String,
}

/// The name and the address of an author.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Signature {
    pub name: String,
    pub address: String,
}

impl Signature {
    /// Parses the form `Name <address>`, with anything after it. Returns `None` for another form.
    pub fn parse(text: &str) -> Option<Self> {
        let (name, rest) = text.split_once('<')?;
        let (address, _) = rest.split_once('>')?;
        let [name, address] = [name, address].map(|part| part.trim().to_owned());
        (!name.is_empty() && !address.is_empty()).then_some(Self { name, address })
    }

    /// Returns whether a login seems to be of the same person.
    fn is_of(&self, login: &str) -> bool {
        let local = self.address.split('@').next().unwrap_or_default();
        [&self.name, &self.address, local].iter().any(|it| it.eq_ignore_ascii_case(login))
    }
}

impl MergeMessage {
    /// Returns the message for a commit of `author`, made for the person with this login. The
    /// subjects of `commits` are listed if one commit stands for all of them.
    pub fn of(
        &self,
        author: &Signature,
        login: &str,
        commits: &[ResultCommit],
        is_squashed: bool,
    ) -> String {
        let mut message = format!("Merge {}: {}\n", self.task, line(&self.title));
        let summary = self.summary.as_deref().map(harmless).filter(|summary| !summary.is_empty());
        if let Some(summary) = summary {
            let _ = write!(message, "\n{summary}\n");
        }
        if is_squashed && !commits.is_empty() {
            message.push('\n');
            for commit in commits.iter().take(MAX_LISTED) {
                let _ = writeln!(message, "* {}", one_line(&commit.subject, MAX_LENGTH));
            }
            let n_more = commits.len().saturating_sub(MAX_LISTED);
            if n_more > 0 {
                let _ = writeln!(message, "* and {n_more} more commits");
            }
        }
        let _ = writeln!(message, "\nTask: {}", self.task);
        if !login.is_empty() && !author.is_of(login) {
            let _ = writeln!(message, "Merged-by: {login}");
        }
        let mut named = vec![author.address.as_str()];
        for Signature { name, address } in commits.iter().map(|commit| &commit.author) {
            let is_named = named.iter().any(|it| it.eq_ignore_ascii_case(address));
            if !is_named && !address.ends_with(NO_ADDRESS) && named.len() <= MAX_LISTED {
                let [name, shown] = [name, address].map(|it| one_line(it, MAX_LENGTH));
                let _ = writeln!(message, "Co-authored-by: {name} <{shown}>");
                named.push(address);
            }
        }
        message
    }
}

/// Returns the text of an agent for the body of a message. An agent must not sign in the name of a
/// person. So the lines that git would read as trailers are indented, and those that say what is
/// reverted.
fn harmless(summary: &str) -> String {
    let shown = lines(summary.trim());
    let harmless = shown.lines().map(|line| {
        let indent = if is_read_by_git(line) { "    " } else { "" };
        format!("{indent}{}", line.trim_end())
    });
    harmless.collect::<Vec<_>>().join("\n")
}

/// Returns whether git takes a line of a message for more than text. The names of trailers consist
/// of letters, digits and hyphens (`git-interpret-trailers`(1)).
fn is_read_by_git(line: &str) -> bool {
    let name = line.split_once(':').map(|(name, _)| name.trim_end());
    let is_name = |name: &str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    name.is_some_and(is_name)
        || ["---", "(cherry picked from commit ", REVERTS].iter().any(|it| line.starts_with(it))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signature(text: &str) -> Signature {
        Signature::parse(text).unwrap()
    }

    fn commit(author: &str, subject: &str) -> ResultCommit {
        ResultCommit { author: signature(author), subject: subject.to_owned() }
    }

    fn message(summary: Option<&str>) -> MergeMessage {
        MergeMessage {
            task: "SHOP-3".parse().unwrap(),
            title: "Add a cart".to_owned(),
            summary: summary.map(str::to_owned),
        }
    }

    #[test]
    fn a_message_says_what_was_done_for_which_task_and_by_whom() {
        let ann = signature("Ann Example <ann@example.org>");
        let commits = [
            commit("Robo <robo@example.com>", "cart: add it"),
            commit("dev <dev@agent-coordinator.invalid>", "cart: test it"),
            commit("Robo <robo@example.com>", "Signed-off-by: Bo <bo@example.org>"),
            commit("Ann <ann@example.org>", "cart: say it"),
        ];
        let squashed = message(Some("The cart is there.")).of(&ann, "bo", &commits, true);
        assert_eq!(
            squashed,
            "Merge SHOP-3: Add a cart\n\nThe cart is there.\n\n* cart: add it\n* cart: test it\n\
             * Signed-off-by: Bo <bo@example.org>\n* cart: say it\n\n\
             Task: SHOP-3\nMerged-by: bo\nCo-authored-by: Robo <robo@example.com>\n"
        );
        let merged = message(None).of(&ann, "ann", &commits[1..2], false);
        assert_eq!(merged, "Merge SHOP-3: Add a cart\n\nTask: SHOP-3\n");
    }

    #[test]
    fn a_long_list_of_subjects_is_cut() {
        let ann = signature("Ann <ann@example.org>");
        let commits = vec![commit("Ann <ann@example.org>", "more"); MAX_LISTED + 2];
        let text = message(None).of(&ann, "", &commits, true);
        assert_eq!(text.matches("* more\n").count(), MAX_LISTED);
        assert!(text.contains("* and 2 more commits\n"), "{text}");
    }

    #[test]
    fn a_summary_cannot_sign() {
        for line in [
            "Signed-off-by: Bo <bo@example.org>",
            "Reviewed-by : Bo",
            "Task: SHOP-9",
            "(cherry picked from commit 1234567)",
            "This reverts commit 1234567.",
            "---",
        ] {
            assert_eq!(harmless(&format!("Done.\n\n{line}")), format!("Done.\n\n    {line}"));
        }
        for line in ["see http://example.org", "  - a: b", "One thing: done", "日本語: よし"] {
            assert_eq!(harmless(line), line.trim());
        }
        assert_eq!(harmless("a\u{1b}[31mb\r\nSigned-off-by: x"), "a [31mb\n    Signed-off-by: x");
    }

    #[test]
    fn a_signature_has_a_name_and_an_address() {
        let ann = Signature { name: "Ann B".to_owned(), address: "a@b".to_owned() };
        assert_eq!(Signature::parse("Ann B <a@b> 1700000000 +0100"), Some(ann));
        for text in ["", "Ann", "<a@b>", "Ann <>", "Ann <a@b"] {
            assert_eq!(Signature::parse(text), None, "{text}");
        }
    }
}
