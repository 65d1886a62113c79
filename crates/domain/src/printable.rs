//! Decides which characters of other people's texts may reach a terminal, and how the others are
//! replaced.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Returns a number of bytes in a readable form, such as `12.3 GiB`.
pub fn bytes(n: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    match units.into_iter().find(|(shift, _)| n >> shift > 0) {
        Some((shift, unit)) => {
            let tenths = (u128::from(n) * 10) >> shift;
            format!("{}.{} {unit}", tenths / 10, tenths % 10)
        }
        None => format!("{n} B"),
    }
}

/// Returns a number with what is counted, such as `1 file` or `2 files`.
pub fn counted(n: u32, noun: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{n} {noun}{plural}")
}

/// Returns whether a character would change how a terminal shows the rest: control characters (ANSI
/// sequences begin with one), and characters that reorder text.
pub fn is_unprintable(c: char) -> bool {
    c.is_control() || is_reordering(c) || matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}')
}

/// Returns whether a character invisibly makes a text look like another. Such characters embed,
/// override or isolate a direction of writing (U+202E, for example), or end a line or a paragraph.
/// The marks that right-to-left languages need between words are not among them.
pub fn is_reordering(c: char) -> bool {
    matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns `text` as one printable line of at most `most` characters. Each run of blanks and
/// unprintable characters becomes one space.
pub fn one_line(text: &str, most: usize) -> String {
    let mut line = String::new();
    let mut n = 0;
    let mut is_apart = false;
    for c in text.chars() {
        if c.is_whitespace() || is_unprintable(c) {
            is_apart = n > 0;
            continue;
        }
        n += 1 + usize::from(is_apart);
        if n > most {
            let is_cut = line.pop().is_some();
            line.extend(is_cut.then_some('…'));
            return line;
        }
        line.extend(std::mem::take(&mut is_apart).then_some(' '));
        line.push(c);
    }
    line
}

/// Returns `text` on one line, with a blank in place of each unprintable character.
pub fn line(text: &str) -> Cow<'_, str> {
    shown(text, is_unprintable)
}

/// Does the same for a text of several lines. Line feeds and tabs stay.
pub fn lines(text: &str) -> Cow<'_, str> {
    shown(text, |c| !matches!(c, '\n' | '\t') && is_unprintable(c))
}

fn shown(text: &str, is_hidden: impl Fn(char) -> bool) -> Cow<'_, str> {
    if text.contains(&is_hidden) {
        text.chars().map(|c| if is_hidden(c) { ' ' } else { c }).collect::<String>().into()
    } else {
        text.into()
    }
}

/// Returns a text from outside in the form in which errors quote it. It is one line, and without
/// its middle if it is longer than `most` characters.
pub fn excerpt(text: &str, most: usize) -> Cow<'_, str> {
    let length = text.chars().count();
    if length <= most {
        return line(text);
    }
    let head: String = text.chars().take(most - most / 2).collect();
    let tail: String = text.chars().skip(length - most / 2).collect();
    format!("{} … {}", line(&head), line(&tail)).into()
}

/// Returns JSON with its unprintable characters escaped. They can only stand inside strings. Line
/// ends between its members stay.
pub fn json(text: &str) -> Cow<'_, str> {
    let is_hidden = |c: char| c != '\n' && is_unprintable(c);
    if !text.contains(is_hidden) {
        return text.into();
    }
    let escaped = text.chars().fold(String::with_capacity(text.len() + 16), |mut escaped, c| {
        if is_hidden(c) {
            let _ = write!(escaped, "\\u{:04x}", u32::from(c));
        } else {
            escaped.push(c);
        }
        escaped
    });
    escaped.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_act_on_is_unprintable() {
        assert!("\u{1b}\n\0\u{9b}\u{202e}\u{7f}".chars().all(is_unprintable));
        assert!(!"aé日🦀 ~".chars().any(is_unprintable));
        assert!("\u{2028}\u{202a}\u{202e}\u{2066}\u{2069}".chars().all(is_reordering));
        assert!(!"\u{200e}\u{200f}\u{202f} \nא".chars().any(is_reordering));
    }

    #[test]
    fn only_one_is_no_plural() {
        let files = [0, 1, 2].map(|n| counted(n, "file"));
        assert_eq!(files, ["0 files", "1 file", "2 files"]);
    }

    #[test]
    fn a_text_of_others_becomes_one_line() {
        assert_eq!(one_line(" a\n\t b\u{1b}[1mc ", 80), "a b [1mc");
        assert_eq!(one_line("abc def", 7), "abc def");
        assert_eq!(one_line("abc def", 6), "abc d…");
        assert_eq!(one_line("日本語", 2), "日…");
        assert_eq!(one_line("日本", 0), "");
    }

    #[test]
    fn a_text_is_shown_without_what_a_terminal_would_act_on() {
        assert_eq!(line("a\u{1b}[31m\nb"), "a [31m b");
        assert_eq!(lines("a\u{1b}[31m\nb\t"), "a [31m\nb\t");
        assert!(matches!(lines("a\nb"), Cow::Borrowed(_)));
        assert_eq!(json("{\n \"a\": \"\u{9b}\u{202e}é\"}"), "{\n \"a\": \"\\u009b\\u202eé\"}");
    }

    #[test]
    fn an_excerpt_has_both_ends() {
        assert_eq!(excerpt("short", 5), "short");
        assert_eq!(excerpt("0123456789", 4), "01 … 89");
        assert_eq!(excerpt("日本語の\u{1b}長い文", 5), "日本語 … い文");
        assert_eq!(excerpt("ab", 1), "a … ");
        assert_eq!(excerpt(&"x".repeat(1_000_000), 100).chars().count(), 103);
    }
}
