//! Taking secrets out of what agents print. Agent CLIs echo the arguments of their tool calls, tokens included.
//!
//! Pure and allocation-free while nothing is found: the keeper runs every output line through it.

use std::borrow::Cow;

use super::secret::{COORDINATOR_TOKEN_PREFIX, OPERATOR_TOKEN_PREFIX, SESSION_TOKEN_PREFIX, TICKET_PREFIX};

const PREFIXES: [&str; 4] = [SESSION_TOKEN_PREFIX, TICKET_PREFIX, COORDINATOR_TOKEN_PREFIX, OPERATOR_TOKEN_PREFIX];
/// What stands in the place of a literal secret such as a passkey.
const MASK: &[u8] = b"[redacted]";
/// Shorter literal secrets would blank out ordinary words.
const MIN_LITERAL: usize = 4;
/// Characters after a prefix that make it a token rather than a word such as `op_count`.
const MIN_TOKEN: usize = 16;

/// `line` with each token of ours cut to its prefix and each of `literals` replaced.
pub fn redact<'a>(line: &'a [u8], literals: &[&[u8]]) -> Cow<'a, [u8]> {
    let mut redacted: Option<Vec<u8>> = None;
    let mut kept_from = 0;
    let mut at = 0;
    while at < line.len() {
        let Some((length, kept, mask)) = find_secret_at(&line[at..], literals) else {
            at += 1;
            continue;
        };
        let text = redacted.get_or_insert_with(|| Vec::with_capacity(line.len()));
        text.extend_from_slice(&line[kept_from..at + kept]);
        text.extend_from_slice(mask);
        at += length;
        kept_from = at;
    }
    match redacted {
        None => Cow::Borrowed(line),
        Some(mut text) => {
            text.extend_from_slice(&line[kept_from..]);
            Cow::Owned(text)
        }
    }
}

/// The secret at the beginning of `rest`: its length, how much of it stays, and what replaces the remainder.
fn find_secret_at(rest: &[u8], literals: &[&[u8]]) -> Option<(usize, usize, &'static [u8])> {
    for literal in literals {
        if literal.len() >= MIN_LITERAL && rest.starts_with(literal) {
            return Some((literal.len(), 0, MASK));
        }
    }
    for prefix in PREFIXES {
        if rest.starts_with(prefix.as_bytes()) {
            let n_token = rest[prefix.len()..]
                .iter()
                .take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
                .count();
            if n_token >= MIN_TOKEN {
                return Some((prefix.len() + n_token, prefix.len(), "…".as_bytes()));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, literals: &[&str], expected: &str) {
        let literals: Vec<&[u8]> = literals.iter().map(|l| l.as_bytes()).collect();
        assert_eq!(String::from_utf8_lossy(&redact(line.as_bytes(), &literals)), expected);
    }

    #[test]
    fn tokens_are_cut_to_their_prefix() {
        check(r#"{"session_token":"sess_0123456789abcdefGHIJ"}"#, &[], r#"{"session_token":"sess_…"}"#);
        check("tkt_0123456789abcdef tkt_0123456789abcdef", &[], "tkt_… tkt_…");
    }

    #[test]
    fn words_with_a_prefix_are_left_alone() {
        check("op_count = 3, sess_id", &[], "op_count = 3, sess_id");
    }

    #[test]
    fn literal_secrets_are_replaced() {
        check("passkey=hunter22!", &["hunter22"], "passkey=[redacted]!");
        check("a b c", &["b"], "a b c");
    }
}
