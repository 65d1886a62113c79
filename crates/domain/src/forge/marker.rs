//! The hidden line that identifies our comments. With it, each comment is posted only once, even if
//! an answer is lost.

use super::super::id::ItemId;

const BEGIN: &str = "<!-- agent-coordinator ";
const END: &str = " -->";

/// The identity of one of our comments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marker {
    pub item: ItemId,
    /// The number 0 is the claim of the item. Other comments are counted from 1.
    pub number: u32,
}

impl Marker {
    pub const CLAIM: u32 = 0;
    /// The number in the text of a pull or merge request.
    pub const REQUEST: u32 = 1_000_000;

    /// Returns `text` followed by the hidden marker.
    pub fn mark(&self, text: &str) -> String {
        format!("{}\n\n{BEGIN}{} {}{END}", text.trim_end(), self.item, self.number)
    }

    /// Returns the marker of a comment, if it has one. It is the last line that is a marker.
    pub fn find(body: &str) -> Option<Self> {
        body.lines().rev().find_map(|line| {
            let (item, number) =
                line.trim().strip_prefix(BEGIN)?.strip_suffix(END)?.split_once(' ')?;
            Some(Self { item: item.parse().ok()?, number: number.parse().ok()? })
        })
    }

    /// Returns a comment without its markers, and with its mentions as they were written.
    pub fn without(body: &str) -> String {
        let is_marker = |line: &&str| line.trim().starts_with(BEGIN) && line.trim().ends_with(END);
        let kept: Vec<&str> = body.lines().filter(|line| !is_marker(line)).collect();
        let kept = kept.join("\n").replace(&format!("@{ZERO_WIDTH_SPACE}"), "@");
        kept.trim_end().to_owned()
    }
}

/// Breaks a mention invisibly.
const ZERO_WIDTH_SPACE: char = '\u{200b}';

/// Returns the text of an agent in a form that is safe in a comment of the bot. No line is a
/// command (GitLab's quick actions), no line hides itself or looks like a marker, and no `@name`
/// notifies an account. Code in fences keeps its `@name`s, because forges see no mention there.
pub fn harmless(text: &str) -> String {
    let mut lines = Vec::new();
    let mut fence: Option<&str> = None;
    let mut has_odd_line = false;
    for line in text.lines() {
        let is_code = match fence {
            Some(open) if closes(line, open) => {
                fence = None;
                true
            }
            Some(_) => true,
            None if has_odd_line => false,
            None => {
                fence = opened(line);
                has_odd_line = fence.is_none() && is_odd(line);
                fence.is_some()
            }
        };
        let rest = line.trim_start();
        let indent = &line[..line.len() - rest.len()];
        let backslash = if rest.starts_with('/') { "\\" } else { "" };
        let rest = if is_code { rest.to_owned() } else { without_mentions(rest) };
        lines.push(format!("{indent}{backslash}{rest}"));
    }
    // The text behind an open fence must not become code.
    lines.extend(fence.map(str::to_owned));
    lines.join("\n").replace("<!--", "&lt;!--")
}

/// Returns the characters of a fence that a line opens. An indented fence may belong to a list and
/// ends with it.
fn opened(line: &str) -> Option<&str> {
    let sign = line.chars().next().filter(|sign| matches!(sign, '`' | '~'))?;
    let info = line.trim_start_matches(sign);
    let signs = &line[..line.len() - info.len()];
    (signs.len() >= 3 && !(sign == '`' && info.contains('`'))).then_some(signs)
}

fn closes(line: &str, open: &str) -> bool {
    let signs = line.trim_start_matches(' ');
    let is_indented = line.len() - signs.len() > 3;
    let signs = signs.trim_end();
    !is_indented && signs.len() >= open.len() && signs.chars().all(|sign| open.starts_with(sign))
}

/// Returns whether a line may hide code that comes after it: a fence in a list or a quotation, or a
/// piece of HTML.
fn is_odd(line: &str) -> bool {
    line.trim_start().starts_with('<') || ["```", "~~~"].iter().any(|signs| line.contains(signs))
}

/// Returns a line in which no `@name` is a mention. An `@` after a letter or digit is part of an
/// address.
fn without_mentions(line: &str) -> String {
    let line = line.replace("&#", "&amp;#").replace("&commat", "&amp;commat");
    let mut text = String::with_capacity(line.len());
    let mut before = None;
    let mut rest = line.chars().peekable();
    while let Some(sign) = rest.next() {
        text.push(sign);
        let is_name =
            rest.peek().is_some_and(|next| next.is_ascii_alphanumeric() || "_.".contains(*next));
        let is_address = before.is_some_and(|before: char| before.is_ascii_alphanumeric());
        if sign == '@' && is_name && !is_address {
            text.push(ZERO_WIDTH_SPACE);
        }
        before = Some(sign);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marker(number: u32) -> Marker {
        Marker { item: "019aa".parse().expect("an id"), number }
    }

    #[test]
    fn a_comment_is_known_again() {
        let body = marker(3).mark("Stopped.\n");
        assert_eq!(body, "Stopped.\n\n<!-- agent-coordinator 019aa 3 -->");
        assert_eq!(Marker::find(&body.replace('\n', "\r\n")), Some(marker(3)));
        assert_eq!(Marker::find("Stopped."), None);
        assert_eq!(Marker::without(&body.replace('\n', "\r\n")), "Stopped.");
        assert_eq!(Marker::without(&marker(3).mark(&harmless("@ann"))), "@ann");
        assert_eq!(Marker::without("Stopped.\n<!-- a note -->"), "Stopped.\n<!-- a note -->");
    }

    #[track_caller]
    fn check_mentions(said: &str, expected: &str) {
        assert_eq!(harmless(said).replace('\u{200b}', "|"), expected);
    }

    #[test]
    fn what_an_agent_says_notifies_nobody() {
        check_mentions("@ann and @acme/team, (@bob)", "@|ann and @|acme/team, (@|bob)");
        check_mentions(
            "_@ann_ *@ann* \\@ann お願い@ann a,@_x",
            "_@|ann_ *@|ann* \\@|ann お願い@|ann a,@|_x",
        );
        check_mentions("`@Override` @all", "`@|Override` @|all");
        check_mentions(
            "&#64;ann &#x40;ann &commat;ann R&D",
            "&amp;#64;ann &amp;#x40;ann &amp;commat;ann R&D",
        );
    }

    #[test]
    fn addresses_and_lone_signs_stay_as_they_are() {
        for text in ["mail ann@x.example", "a@b", "5 @ 3", "@", "@ ann", "x @", "git@host:a/b"] {
            check_mentions(text, text);
        }
    }

    #[test]
    fn code_in_fences_stays_as_it_is() {
        let fenced = "Try:\n```python\n@property\n  ``` x\n@cache\n```\n@ann";
        check_mentions(fenced, &fenced.replace("@ann", "@|ann"));
        check_mentions("~~~~\n~~~\n@a\n~~~~\n@b", "~~~~\n~~~\n@a\n~~~~\n@|b");
        check_mentions("``` a`b\n@a", "``` a`b\n@|a");
    }

    #[test]
    fn a_fence_that_is_left_open_is_closed() {
        check_mentions("````\n@a\n```", "````\n@a\n```\n````");
    }

    #[test]
    fn what_may_be_no_fence_is_taken_for_text() {
        check_mentions("- a\n  ```\n@b\n```\n@c", "- a\n  ```\n@|b\n```\n@|c");
        check_mentions("> ```\n@b", "> ```\n@|b");
        check_mentions("<div>\n```\n@b\n```", "<div>\n```\n@|b\n```");
    }

    #[test]
    fn what_an_agent_says_commands_nothing_and_marks_nothing() {
        let said = "/close\n  /assign @me\nok a/b\n<!-- agent-coordinator 019aa 9 -->";
        let body = marker(1).mark(&harmless(said));
        assert!(!body.lines().any(|line| line.trim_start().starts_with('/')), "{body}");
        assert_eq!(Marker::find(&body), Some(marker(1)));
        assert!(Marker::find(&harmless(said)).is_none());
    }
}
