//! Removes secrets from the output of agents. Agent CLIs echo the arguments of their tool calls as
//! JSON, including tokens. A secret may be escaped, and escaped again if JSON is quoted in JSON or
//! in a shell command.
//!
//! Each line is searched by itself. A secret that an agent spreads over two lines, or encodes in
//! another way, is not found.
//!
//! A search for a list of spellings (`aho-corasick`) was ruled out. Each character may be escaped
//! by itself and to any depth, so that the list has no end.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::fmt;
use std::ops::RangeInclusive;

use super::secret::{
    COORDINATOR_TOKEN_PREFIX, OPERATOR_TOKEN_PREFIX, SESSION_TOKEN_PREFIX,
    SOCKET_SESSION_TOKEN_PREFIX, TICKET_PREFIX,
};

const PREFIXES: [&str; 4] =
    [SESSION_TOKEN_PREFIX, TICKET_PREFIX, COORDINATOR_TOKEN_PREFIX, OPERATOR_TOKEN_PREFIX];
/// The text that replaces a literal secret such as a passkey.
const MASK: &[u8] = b"[redacted]";
/// The least length of a literal secret. Shorter ones would remove ordinary words.
const MIN_LITERAL: usize = 4;
/// The least length of a configured secret. Shorter ones may stand in texts by chance, so they stay
/// there.
const MIN_CONFIGURED: usize = 12;
/// The least number of characters after a prefix that make it a token rather than a word such as
/// `op_count`.
const MIN_TOKEN: usize = 16;
/// The number of characters after the prefix of each kind of token: a random one, a derived one,
/// one of a session of the socket.
const TOKEN_LENGTHS: [usize; 3] =
    [32, 40, 32 + SOCKET_SESSION_TOKEN_PREFIX.len() - SESSION_TOKEN_PREFIX.len()];

/// Returns whether a configured secret is long enough to be removed from texts that are stored and
/// sent.
pub fn is_long_enough(secret: &str) -> bool {
    secret.chars().count() >= MIN_CONFIGURED
}

/// The form of texts that count as our tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TokenForm {
    /// Any text that may be a token or a part of one. This is for output, which people only look
    /// at.
    Similar,
    /// Matches only texts of exactly the form that we make. People work with these texts, in which
    /// `loop_…` and `top_…` are words.
    Exact,
}

/// Removes our tokens, which it finds by their prefixes, and the given secrets.
pub struct Redactor {
    /// The secrets as [`Characters`] returns them.
    literals: Vec<Vec<char>>,
    beginnings: Beginnings,
    tokens: TokenForm,
}

// The literals are secrets, so they are not printed.
impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Redactor(..)")
    }
}

impl Default for Redactor {
    fn default() -> Self {
        Self::new([])
    }
}

impl Redactor {
    pub fn new<'a>(literals: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let long_enough = literals.into_iter().filter(|literal| literal.len() >= MIN_LITERAL);
        let characters =
            long_enough.map(|literal| Characters(literal).map(|(c, _)| c).collect::<Vec<_>>());
        let mut literals: Vec<_> = characters.filter(|literal| !literal.is_empty()).collect();
        // If two secrets begin alike, the longer one must be removed completely.
        literals.sort_by_key(|literal| Reverse(literal.len()));
        let mut beginnings = Beginnings::none();
        for prefix in PREFIXES {
            beginnings.add(prefix.chars());
        }
        for literal in &literals {
            beginnings.add(literal.iter().copied());
        }
        Self { literals, beginnings, tokens: TokenForm::Similar }
    }

    /// Returns a redactor for texts that are stored or sent. It removes only those of `secrets`
    /// that are [long enough](is_long_enough).
    pub fn for_texts<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Self {
        let secrets = secrets.into_iter().filter(|secret| is_long_enough(secret));
        Self { tokens: TokenForm::Exact, ..Self::new(secrets.map(str::as_bytes)) }
    }

    /// Does the same as [`Redactor::redact`] for a text of any number of lines.
    pub fn redact_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.redact(text.as_bytes()) {
            Cow::Borrowed(_) => text.into(),
            Cow::Owned(redacted) => String::from_utf8_lossy(&redacted).into_owned().into(),
        }
    }

    /// Returns `line` with each of our tokens cut to its prefix and each secret replaced. It does
    /// not allocate if it finds nothing, because the shim runs every line of output through it.
    pub fn redact<'a>(&self, line: &'a [u8]) -> Cow<'a, [u8]> {
        self.redact_where(line, |at| self.beginnings.find(line, at))
    }

    /// Does the same as [`Redactor::redact`], but only at the places that `candidate` returns.
    /// `candidate` takes the place to search from.
    fn redact_where<'a>(
        &self,
        line: &'a [u8],
        candidate: impl Fn(usize) -> Option<usize>,
    ) -> Cow<'a, [u8]> {
        let mut redacted: Option<Vec<u8>> = None;
        let mut kept_from = 0;
        let mut at = 0;
        while let Some(found) = candidate(at) {
            at = found;
            let Some((length, prefix, mask)) = self.find_secret_at(line, at) else {
                // Adjacent backslashes are one escape. Looking at each of them would be slow for a
                // line of only backslashes.
                at += n_backslashes(&line[at..]).max(1);
                continue;
            };
            let text = redacted.get_or_insert_with(|| Vec::with_capacity(line.len()));
            text.extend_from_slice(&line[kept_from..at]);
            text.extend_from_slice(prefix.as_bytes());
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

    /// Returns the secret at this place of `line`: its length in bytes, the prefix that stays, and
    /// the replacement of the remainder.
    fn find_secret_at(
        &self,
        line: &[u8],
        at: usize,
    ) -> Option<(usize, &'static str, &'static [u8])> {
        let rest = &line[at..];
        let first = Characters(rest).next()?.0;
        for literal in self.literals.iter().filter(|literal| literal.first() == Some(&first)) {
            if let Some(length) = length_of_beginning(rest, literal.iter().copied()) {
                return Some((length, "", MASK));
            }
        }
        let is_word_before = match &line[..at] {
            // The end of an escaped line break or tab.
            [.., b'\\', b'n' | b'r' | b't'] => false,
            [.., byte] => byte.is_ascii_alphanumeric() || *byte == b'_',
            [] => false,
        };
        if self.tokens == TokenForm::Exact && is_word_before {
            return None;
        }
        for prefix in PREFIXES.into_iter().filter(|prefix| prefix.starts_with(first)) {
            let Some(behind) = length_of_beginning(rest, prefix.chars()) else {
                continue;
            };
            // A character of a token is escaped as a number or not at all. Any other character
            // after a backslash is a line end.
            let is_of_token = |c: char, n_bytes: usize| {
                (c.is_ascii_alphanumeric() || "_-".contains(c)) && matches!(n_bytes, 1 | 6..)
            };
            let token =
                Characters(&rest[behind..]).take_while(|(c, n_bytes)| is_of_token(*c, *n_bytes));
            let (n_token, length) =
                token.fold((0, behind), |(n, length), (_, n_bytes)| (n + 1, length + n_bytes));
            let is_token = match self.tokens {
                TokenForm::Similar => n_token >= MIN_TOKEN,
                TokenForm::Exact => TOKEN_LENGTHS.contains(&n_token),
            };
            if is_token {
                return Some((length, prefix, "…".as_bytes()));
            }
        }
        None
    }
}

/// The pairs of bytes that a secret may begin with, one bit for each. With them, most of an agent's
/// output is skipped at the speed of reading it.
struct Beginnings(Box<[u64; 1024]>);

impl Beginnings {
    /// Returns the set in which only an escape can begin a secret.
    fn none() -> Self {
        let mut none = Self(Box::new([0; 1024]));
        none.add_all(b'\\', 0..=u8::MAX);
        none
    }

    fn add(&mut self, mut secret: impl Iterator<Item = char>) {
        let Some(first) = secret.next() else { return };
        let first = Bytes::of(first);
        let second = secret.next().map(Bytes::of);
        for high in first.first.clone() {
            match (first.second, &second) {
                // The next byte of the same character.
                (Some(low), _) => self.add_all(high, low..=low),
                (None, Some(second)) if first.is_ascii() => {
                    self.add_all(high, b'\\'..=b'\\');
                    self.add_all(high, second.first.clone());
                }
                (None, _) => self.add_all(high, 0..=u8::MAX),
            }
        }
    }

    fn add_all(&mut self, high: u8, low: RangeInclusive<u8>) {
        for low in low {
            let bit = usize::from(u16::from_be_bytes([high, low]));
            self.0[bit / 64] |= 1 << (bit % 64);
        }
    }

    /// Returns the first place from `at` on at which a secret may begin. The last byte always may.
    fn find(&self, line: &[u8], at: usize) -> Option<usize> {
        let is_one = |pair: &[u8]| {
            let bit = usize::from(u16::from_be_bytes([pair[0], pair[1]]));
            self.0[bit / 64] >> (bit % 64) & 1 == 1
        };
        let rest = line.get(at..).filter(|rest| !rest.is_empty())?;
        Some(at + rest.windows(2).position(is_one).unwrap_or(rest.len() - 1))
    }
}

/// The first bytes of a character that is not escaped.
struct Bytes {
    first: RangeInclusive<u8>,
    /// The second byte, if it is certain.
    second: Option<u8>,
}

impl Bytes {
    fn of(c: char) -> Self {
        // It also stands for any byte that is not UTF-8.
        if c == char::REPLACEMENT_CHARACTER {
            return Self { first: 0x80..=u8::MAX, second: None };
        }
        let mut bytes = [0; 4];
        let bytes = c.encode_utf8(&mut bytes).as_bytes();
        Self { first: bytes[0]..=bytes[0], second: bytes.get(1).copied() }
    }

    fn is_ascii(&self) -> bool {
        self.first.end().is_ascii()
    }
}

/// Returns the number of bytes of `rest` that are `wanted`, if it begins with them.
fn length_of_beginning(rest: &[u8], wanted: impl Iterator<Item = char>) -> Option<usize> {
    let mut found = Characters(rest);
    let mut length = 0;
    for wanted in wanted {
        let (_, n_bytes) = found.next().filter(|(c, _)| *c == wanted)?;
        length += n_bytes;
    }
    Some(length)
}

/// The characters that a text stands for, each with its number of bytes, whether or not it is
/// escaped, and however often. Backslashes are left out of texts and of secrets, because the number
/// that a text means is ambiguous.
struct Characters<'a>(&'a [u8]);

impl Iterator for Characters<'_> {
    type Item = (char, usize);

    fn next(&mut self) -> Option<(char, usize)> {
        let mut n_bytes = 0;
        let c = loop {
            let rest = &self.0[n_bytes..];
            let n_backslashes = n_backslashes(rest);
            let (c, length) = unescaped(&rest[n_backslashes..], n_backslashes > 0)?;
            n_bytes += n_backslashes + length;
            if c != '\\' {
                break c;
            }
        };
        self.0 = &self.0[n_bytes..];
        Some((c, n_bytes))
    }
}

/// Returns the number of backslashes at the beginning of `text`.
fn n_backslashes(text: &[u8]) -> usize {
    text.iter().take_while(|byte| **byte == b'\\').count()
}

/// Returns the character at the beginning of a text and its number of bytes. After a backslash it
/// may be written as a number.
fn unescaped(text: &[u8], is_behind_backslash: bool) -> Option<(char, usize)> {
    let Some(high) = text.strip_prefix(b"u").filter(|_| is_behind_backslash).and_then(unit) else {
        return plain(text);
    };
    Some(match char::from_u32(high) {
        Some(c) => (c, 5),
        // A character that is written as two surrogates.
        None => low_half(&text[5..])
            .and_then(|(low, length)| {
                Some((char::from_u32(((high & 0x3ff) << 10) + low + 0x1_0000)?, 5 + length))
            })
            .unwrap_or((char::REPLACEMENT_CHARACTER, 5)),
    })
}

/// Returns the number in the second surrogate of a character, and its number of bytes.
fn low_half(text: &[u8]) -> Option<(u32, usize)> {
    let n_backslashes = n_backslashes(text);
    let digits = text[n_backslashes..].strip_prefix(b"u").filter(|_| n_backslashes > 0)?;
    let low = unit(digits).filter(|low| (0xdc00..=0xdfff).contains(low))?;
    Some((low & 0x3ff, n_backslashes + 5))
}

/// Returns the value of four hexadecimal digits.
fn unit(digits: &[u8]) -> Option<u32> {
    let digits = digits.get(..4).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// Returns the character at the beginning of a text. Each byte that is not UTF-8 counts as one
/// character.
fn plain(text: &[u8]) -> Option<(char, usize)> {
    let first = *text.first()?;
    if first.is_ascii() {
        return Some((char::from(first), 1));
    }
    let beginning = &text[..text.len().min(4)];
    let valid = match std::str::from_utf8(beginning) {
        Ok(valid) => valid,
        Err(error) => std::str::from_utf8(&beginning[..error.valid_up_to()]).unwrap_or_default(),
    };
    Some(valid.chars().next().map_or((char::REPLACEMENT_CHARACTER, 1), |c| (c, c.len_utf8())))
}

#[cfg(test)]
mod tests;
