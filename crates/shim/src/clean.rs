//! Reduces an output line to text: no control characters, no terminal sequences, nothing that
//! reorders it, valid UTF-8.

use std::borrow::Cow;
use std::str::Chars;

use domain::printable::is_unprintable;

const ESCAPE: char = '\u{1b}';
const BELL: char = '\u{7}';

/// Returns `line` as plain text. Terminal sequences and other characters that a terminal acts on
/// are removed, except tabs. Bytes that are not valid UTF-8 become `\u{FFFD}`.
pub fn clean(line: &[u8]) -> Cow<'_, [u8]> {
    // Without an early exit inside a part, many bytes are checked in one step.
    let is_plain = |b: u8| (b' '..0x7f).contains(&b) || b == b'\t';
    let are_plain = |part: &[u8]| part.iter().fold(true, |all, &b| all & is_plain(b));
    if line.chunks(256).all(are_plain) {
        return Cow::Borrowed(line);
    }
    let text = String::from_utf8_lossy(line);
    let mut cleaned = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            ESCAPE => skip_sequence(&mut characters),
            '\u{9b}' => skip_until_final(&mut characters),
            '\t' => cleaned.push('\t'),
            _ if is_unprintable(character) => {}
            _ => cleaned.push(character),
        }
    }
    Cow::Owned(cleaned.into_bytes())
}

/// Skips the sequence after an escape: colours and cursor movements, window titles and links, or a
/// single letter.
fn skip_sequence(rest: &mut Chars<'_>) {
    let mut ahead = rest.clone();
    match ahead.next() {
        Some('[') => {
            *rest = ahead;
            skip_until_final(rest);
        }
        Some(']' | 'P' | '_' | '^' | 'X') => {
            // An unterminated string would swallow the line, so a string is removed only if its end
            // is on the same line.
            while let Some(character) = ahead.next() {
                if character == BELL || character == '\u{9c}' {
                    *rest = ahead;
                    return;
                }
                if character == ESCAPE && ahead.clone().next() == Some('\\') {
                    ahead.next();
                    *rest = ahead;
                    return;
                }
            }
        }
        Some('(' | ')' | '#' | '%' | ' ') => {
            ahead.next();
            *rest = ahead;
        }
        Some('0'..='~') => *rest = ahead,
        _ => {}
    }
}

fn skip_until_final(rest: &mut Chars<'_>) {
    let mut ahead = rest.clone();
    while let Some(character) = ahead.next() {
        match character {
            '\u{20}'..='\u{3f}' => *rest = ahead.clone(),
            '\u{40}'..='\u{7e}' => {
                *rest = ahead;
                return;
            }
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &[u8], expected: &str) {
        assert_eq!(String::from_utf8_lossy(&clean(line)), expected);
    }

    #[test]
    fn text_stays_as_it_is() {
        check(b"plain\ttext", "plain\ttext");
        check("エージェント ✓".as_bytes(), "エージェント ✓");
        check(b"", "");
    }

    #[test]
    fn control_characters_are_taken_out() {
        check(b"a\0b\x07c\r\x7f", "abc");
        check("a\u{85}b".as_bytes(), "ab");
        check("a\u{202e}b\u{2066}c".as_bytes(), "abc");
    }

    #[test]
    fn terminal_sequences_are_taken_out() {
        check(b"\x1b[1;31mred\x1b[0m!", "red!");
        check(b"\x1b]0;title\x07text", "text");
        check(b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link");
        check(b"\x1b]never ends", "]never ends");
        check(b"\x1b(Bx\x1b7y", "xy");
        check(b"end\x1b", "end");
        check(b"end\x1b[3", "end");
    }

    #[test]
    fn what_is_no_utf_8_is_marked() {
        check(b"a\xff\xfeb", "a\u{FFFD}\u{FFFD}b");
    }
}
