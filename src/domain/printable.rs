//! Which characters of other people's texts may reach a terminal.

/// Characters that would change how a terminal shows the rest: control characters (ANSI sequences begin with one), and those
/// that reorder text.
pub fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// `text` as one line that a terminal can be shown, of at most `most` characters: blanks and what is unprintable become one space.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_act_on_is_unprintable() {
        assert!("\u{1b}\n\0\u{9b}\u{202e}\u{7f}".chars().all(is_unprintable));
        assert!(!"aé日🦀 ~".chars().any(is_unprintable));
    }

    #[test]
    fn a_text_of_others_becomes_one_line() {
        assert_eq!(one_line(" a\n\t b\u{1b}[1mc ", 80), "a b [1mc");
        assert_eq!(one_line("abc def", 7), "abc def");
        assert_eq!(one_line("abc def", 6), "abc d…");
        assert_eq!(one_line("日本語", 2), "日…");
        assert_eq!(one_line("日本", 0), "");
    }
}
