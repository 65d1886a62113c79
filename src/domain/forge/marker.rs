//! The hidden line by which a comment of ours is known again: each comment is posted once, whatever answer was lost.

use super::super::id::ItemId;

const BEGIN: &str = "<!-- agent-coordinator ";
const END: &str = " -->";

/// What a comment of ours is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marker {
    pub item: ItemId,
    /// 0 is the claim of the item; others are counted.
    pub number: u32,
}

impl Marker {
    pub const CLAIM: u32 = 0;

    /// `text` with the marker behind it, where nobody sees it.
    pub fn mark(&self, text: &str) -> String {
        format!("{}\n\n{BEGIN}{} {}{END}", text.trim_end(), self.item, self.number)
    }

    /// The marker of a comment, if it has one: the last line that is one.
    pub fn find(body: &str) -> Option<Self> {
        body.lines().rev().find_map(|line| {
            let (item, number) =
                line.trim().strip_prefix(BEGIN)?.strip_suffix(END)?.split_once(' ')?;
            Some(Self { item: item.parse().ok()?, number: number.parse().ok()? })
        })
    }

    /// Returns a comment without its markers.
    pub fn without(body: &str) -> String {
        let is_marker = |line: &&str| line.trim().starts_with(BEGIN) && line.trim().ends_with(END);
        let kept: Vec<&str> = body.lines().filter(|line| !is_marker(line)).collect();
        kept.join("\n").trim_end().to_owned()
    }
}

/// Text of others as it may stand in a comment of ours: no line of it commands (GitLab's quick actions), and none hides itself or
/// is taken for a marker.
pub fn harmless(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let rest = line.trim_start();
        let indent = &line[..line.len() - rest.len()];
        if rest.starts_with('/') { format!("{indent}\\{rest}") } else { line.to_owned() }
    });
    lines.collect::<Vec<_>>().join("\n").replace("<!--", "&lt;!--")
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
        assert_eq!(Marker::without("Stopped.\n<!-- a note -->"), "Stopped.\n<!-- a note -->");
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
