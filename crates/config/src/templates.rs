//! Templates: words in braces that stand for a value of a launch, such as `{mcp_socket}` and
//! `{agent_id}`. This module finds them in a text, and finds words that were probably meant to be
//! one. `provider` supplies the values.
//!
//! A text in braces that is neither a template nor nearly one stays unchanged. Therefore JSON and
//! shell patterns need no quoting.

use domain::nearest::nearest;

/// The value that a word in braces stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Template {
    /// The server's MCP endpoint over HTTP.
    McpUrl,
    /// The server's MCP socket.
    McpSocket,
    /// This program. Its `mcp` command is a bridge between standard input and output and the
    /// server.
    Bridge,
    AgentId,
    ProjectId,
    WorkingDirectory,
    /// The folder of the clone that the agent works in.
    Workspace,
    /// The repository of the daemon that the clone borrows from.
    Keep,
    LaunchId,
    /// The text that tells the agent its work.
    Prompt,
    /// The id of the conversation that the CLI begins or continues.
    Conversation,
}

impl Template {
    const ALL: [(&'static str, Self); 11] = [
        ("mcp_url", Self::McpUrl),
        ("mcp_socket", Self::McpSocket),
        ("bridge", Self::Bridge),
        ("agent_id", Self::AgentId),
        ("project_id", Self::ProjectId),
        ("working_directory", Self::WorkingDirectory),
        ("workspace", Self::Workspace),
        ("keep", Self::Keep),
        ("launch_id", Self::LaunchId),
        ("prompt", Self::Prompt),
        ("conversation", Self::Conversation),
    ];

    fn find(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(each, _)| *each == name).map(|(_, template)| *template)
    }

    /// Returns whether `text` contains this template.
    pub fn is_in(self, text: &str) -> bool {
        words(text).any(|word| Self::find(word) == Some(self))
    }
}

/// Returns `text` with each template replaced by its value. Templates in a value are not replaced.
///
/// # Errors
/// Returns the first error of `value`.
pub fn fill<E>(
    text: &str,
    mut value: impl FnMut(Template) -> Result<String, E>,
) -> Result<String, E> {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, word, after)) = split_at_word(rest) {
        filled.push_str(before);
        match Template::find(word) {
            Some(template) => filled.push_str(&value(template)?),
            None => filled.extend(["{", word, "}"]),
        }
        rest = after;
    }
    filled.push_str(rest);
    Ok(filled)
}

/// Returns a word in braces that is nearly a template, and the template that was probably meant.
pub(super) fn find_misspelt(text: &str) -> Option<(&str, &'static str)> {
    let names = Template::ALL.map(|(name, _)| name);
    let mut unknown = words(text).filter(|word| Template::find(word).is_none());
    unknown.find_map(|word| Some((word, nearest(word, names.into_iter())?)))
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (_, word, after) = split_at_word(rest)?;
        rest = after;
        Some(word)
    })
}

/// Returns the text before the first word in braces, the word, and the text after it. A word
/// consists of `a` to `z` and `_`.
fn split_at_word(text: &str) -> Option<(&str, &str, &str)> {
    text.match_indices('{').find_map(|(at, _)| {
        let rest = &text[at + 1..];
        let length = rest.find(|c: char| !c.is_ascii_lowercase() && c != '_')?;
        let is_word = length > 0 && rest[length..].starts_with('}');
        is_word.then(|| (&text[..at], &rest[..length], &rest[length + 1..]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let filled = fill(text, |template| Ok::<_, ()>(format!("<{template:?}>")));
        assert_eq!(filled.as_deref(), Ok(expected));
    }

    #[test]
    fn templates_are_replaced_wherever_they_stand() {
        check("{mcp_url}", "<McpUrl>");
        check("a={agent_id}/{project_id}é{launch_id}", "a=<AgentId>/<ProjectId>é<LaunchId>");
        check(
            r#"{"command":"{bridge}","args":["mcp"]}"#,
            r#"{"command":"<Bridge>","args":["mcp"]}"#,
        );
        check("{{prompt}}", "{<Prompt>}");
    }

    #[test]
    fn other_braces_are_left_as_they_are() {
        for text in [
            "{}",
            "{",
            "}",
            "{a,b}",
            "{x}",
            "{Prompt}",
            r#"{"a":{"b":1}}"#,
            "${HOME}",
            "{ prompt }",
            "{prompt",
        ] {
            check(text, text);
            assert_eq!(find_misspelt(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_nearly_a_template_is_found() {
        assert_eq!(find_misspelt("x={mcp_sokcet}"), Some(("mcp_sokcet", "mcp_socket")));
        assert_eq!(find_misspelt("{prompt} {agent}"), Some(("agent", "agent_id")));
        assert_eq!(find_misspelt("{prompt}"), None);
    }
}
