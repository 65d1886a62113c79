//! An item as the text of a task. What people wrote is passed on as they wrote it, as much of it as a task takes.

use super::{Comment, ItemFacts, ItemKey};
use crate::domain::forge::marker::Marker;
use crate::domain::limits;
use crate::domain::printable::is_reordering;

/// Of the description, in characters; the rest of it is for comments.
const MAX_BODY: usize = 30_000;
/// Of one comment.
const MAX_COMMENT: usize = 4_000;

/// The title of the task: one line, never empty.
pub fn title(key: &ItemKey, item: &ItemFacts) -> String {
    let line = item.title.replace(char::is_control, " ").replace(is_reordering, "");
    let line = line.trim();
    let title = if line.is_empty() { key.to_string() } else { format!("{line} ({key})") };
    if title.chars().count() <= limits::TITLE.most() {
        return title;
    }
    let room = limits::TITLE.most() - key.to_string().chars().count() - 5;
    format!("{}… ({key})", line.chars().take(room).collect::<String>())
}

/// The description: where it comes from, what it says, and the newest of what was said about it by people.
pub fn description(key: &ItemKey, item: &ItemFacts, comments: &[Comment]) -> String {
    let author = item.author.as_deref().unwrap_or("a deleted account");
    let mut text = format!("{} {key}: {}\nAuthor: {author}\n", key.kind, item.url);
    if !item.labels.is_empty() {
        text.extend(["Labels: ", &item.labels.join(", "), "\n"]);
    }
    text.push('\n');
    text.push_str(&cut(&item.body, MAX_BODY, &item.url));
    let said: Vec<String> = comments
        .iter()
        .filter(|comment| Marker::find(&comment.body).is_none())
        .map(|comment| {
            let author =
                comment.author.as_ref().map_or("a deleted account", |author| author.login.as_str());
            format!(
                "\n\n--- Comment by {author}, {}:\n{}",
                comment.created_at,
                cut(&comment.body, MAX_COMMENT, &item.url)
            )
        })
        .collect();
    let room = limits::DESCRIPTION.most().saturating_sub(text.chars().count() + 100);
    let mut length = 0;
    let n_kept = said.iter().rev().take_while(|comment| {
        length += comment.chars().count();
        length <= room
    });
    let n_left_out = said.len() - n_kept.count();
    if n_left_out > 0 {
        text.extend(["\n\n[", &n_left_out.to_string(), " earlier comments are left out]"]);
    }
    text.extend(said.into_iter().skip(n_left_out));
    limits::DESCRIPTION.cut(&text)
}

fn cut(text: &str, most: usize, url: &str) -> String {
    let length = text.chars().count();
    if length <= most {
        return text.to_owned();
    }
    let kept: String = text.chars().take(most).collect();
    format!(
        "{kept}\n[cut here: {} of {length} characters are left out; all of it is at {url}]",
        length - most
    )
}

#[cfg(test)]
mod tests {
    use super::super::ForgeUser;
    use super::*;

    fn item(title: &str, body: &str) -> ItemFacts {
        let labels = vec!["bug".to_owned(), "coding agent".to_owned()];
        ItemFacts { title: title.to_owned(), body: body.to_owned(), labels, ..ItemFacts::example() }
    }

    fn comment(id: u64, body: &str) -> Comment {
        let author = Some(ForgeUser { id: None, login: "ann".to_owned() });
        Comment { id, author, body: body.to_owned(), created_at: "2026-01-02T03:04:05Z".to_owned() }
    }

    #[test]
    fn a_title_is_one_line_that_names_the_item() {
        assert_eq!(title(&ItemKey::example(), &item(" Log\nin ", "")), "Log in (acme/shop#7)");
        assert_eq!(title(&ItemKey::example(), &item("\u{7}", "")), "acme/shop#7");
        let long = title(&ItemKey::example(), &item(&"語".repeat(900), ""));
        assert!(limits::TITLE.take(&long).is_ok() && long.ends_with("… (acme/shop#7)"), "{long}");
    }

    #[test]
    fn a_description_has_all_that_people_said_and_nothing_of_ours() {
        let ours = comment(2, "Started\n\n<!-- agent-coordinator 019aa 0 -->");
        let text = description(
            &ItemKey::example(),
            &item("Login", "It fails."),
            &[comment(1, "Since Monday."), ours],
        );
        let expected = "issue acme/shop#7: https://forge.example/acme/shop/issues/7\nAuthor: a deleted account\nLabels: bug, coding agent\n\n\
                        It fails.\n\n--- Comment by ann, 2026-01-02T03:04:05Z:\nSince Monday.";
        assert_eq!(text, expected);
    }

    #[test]
    fn what_is_too_long_is_cut_and_says_so() {
        let comments: Vec<Comment> = (0..100).map(|id| comment(id, &"c".repeat(5_000))).collect();
        let text =
            description(&ItemKey::example(), &item("Login", &"b".repeat(1_000_000)), &comments);
        assert!(limits::DESCRIPTION.take(&text).is_ok());
        assert!(text.contains("[cut here: 970000 of 1000000 characters are left out"));
        assert!(
            text.contains("[96 earlier comments are left out]"),
            "{}",
            &text[text.len() - 300..]
        );
    }
}
