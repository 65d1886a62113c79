//! Which characters of other people's texts may reach a terminal.

/// Characters that would change how a terminal shows the rest: control characters (ANSI sequences begin with one), and those
/// that reorder text.
pub fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_act_on_is_unprintable() {
        assert!("\u{1b}\n\0\u{9b}\u{202e}\u{7f}".chars().all(is_unprintable));
        assert!(!"aé日🦀 ~".chars().any(is_unprintable));
    }
}
