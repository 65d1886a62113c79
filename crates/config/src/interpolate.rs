//! `${X}`, `${X:-default}`, `${X:?message}`, `$$` and a leading `~/` in the values of a file.
//!
//! Errors never contain a value: neither one from the environment nor the text around it.

use super::environment::Environment;

/// The longest completed value, in bytes. It keeps a small file with long variables from becoming a
/// large configuration.
const MAX_LENGTH: usize = 1024 * 1024;

/// The reason why a value can't be completed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum InterpolationError {
    #[error("environment variable `{0}` is not set")]
    Unset(String),
    #[error("environment variable `{name}` is not set: {message}")]
    Demanded { name: String, message: String },
    #[error("`${{` without its `}}`")]
    Unclosed,
    #[error(
        "`${{…}}` does not hold the name of a variable: expected `${{NAME}}`, `${{NAME:-default}}` or `${{NAME:?message}}`"
    )]
    BadName,
    #[error("`~/` needs the environment variable `HOME`, which is not an absolute path")]
    NoHome,
    #[error("longer than 1 MiB with its variables replaced")]
    TooLong,
}

impl InterpolationError {
    /// Returns the remedy.
    pub fn help(&self) -> Option<String> {
        match self {
            Self::Unset(name) => Some(format!(
                "set it, or write `${{{name}:-default}}`; a literal `$` is written `$$`"
            )),
            Self::Unclosed | Self::BadName => Some("a literal `$` is written `$$`".to_owned()),
            Self::Demanded { .. } | Self::NoHome | Self::TooLong => None,
        }
    }
}

/// Returns `text` with all references replaced. As in a shell, an empty variable counts as unset if
/// the reference has a default or a message.
pub(super) fn interpolate(
    text: &str,
    environment: &Environment,
) -> Result<String, InterpolationError> {
    let mut complete = String::with_capacity(text.len());
    let mut rest = text;
    if let Some(below_home) = text.strip_prefix("~/") {
        let home = environment.folder("HOME").ok_or(InterpolationError::NoHome)?;
        complete.push_str(home.to_str().expect("made from a String").trim_end_matches('/'));
        complete.push('/');
        rest = below_home;
    }
    while let Some(at) = rest.find('$') {
        complete.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            complete.push('$');
            rest = after;
        } else if let Some(reference) = rest.strip_prefix('{') {
            let (reference, after) =
                reference.split_once('}').ok_or(InterpolationError::Unclosed)?;
            complete.push_str(value_of(reference, environment)?);
            rest = after;
            if complete.len() > MAX_LENGTH {
                return Err(InterpolationError::TooLong);
            }
        } else {
            complete.push('$');
        }
    }
    complete.push_str(rest);
    Ok(complete)
}

/// Returns the variables that `text` refers to.
pub(super) fn variables_of(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        loop {
            rest = &rest[rest.find('$')? + 1..];
            if let Some(after) = rest.strip_prefix('$') {
                rest = after;
            } else if let Some(reference) = rest.strip_prefix('{') {
                rest = reference;
                return Some(split_name(reference).0);
            }
        }
    })
}

/// Returns the name at the beginning of a reference, and the rest after it.
fn split_name(reference: &str) -> (&str, &str) {
    let end = reference
        .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .unwrap_or(reference.len());
    reference.split_at(end)
}

fn value_of<'a>(
    reference: &'a str,
    environment: &'a Environment,
) -> Result<&'a str, InterpolationError> {
    let (name, operator) = split_name(reference);
    if name.is_empty() || name.as_bytes()[0].is_ascii_digit() {
        return Err(InterpolationError::BadName);
    }
    let value = environment.variable(name);
    if operator.is_empty() {
        value.ok_or_else(|| InterpolationError::Unset(name.to_owned()))
    } else if let Some(default) = operator.strip_prefix(":-") {
        Ok(value.filter(|value| !value.is_empty()).unwrap_or(default))
    } else if let Some(message) = operator.strip_prefix(":?") {
        value.filter(|value| !value.is_empty()).ok_or_else(|| InterpolationError::Demanded {
            name: name.to_owned(),
            message: message.chars().take(200).collect(),
        })
    } else {
        Err(InterpolationError::BadName)
    }
}

#[cfg(test)]
mod tests {
    use super::InterpolationError as E;
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<&str, E>) {
        let environment = Environment::new(
            "/",
            [("X", "ex"), ("EMPTY", ""), ("HOME", "/home/me"), ("NESTED", "${X}")],
        );
        assert_eq!(interpolate(text, &environment), expected.map(str::to_owned), "{text}");
    }

    #[test]
    fn references_are_replaced_once() {
        check("a ${X}b${X}", Ok("a exbex"));
        check("${EMPTY}", Ok(""));
        check("${NESTED}", Ok("${X}"));
        check("${Y}", Err(E::Unset("Y".to_owned())));
    }

    #[test]
    fn defaults_and_messages_stand_in_for_what_is_empty() {
        check("${X:-no} ${Y:-yes} ${EMPTY:-yes} ${Y:-}", Ok("ex yes yes "));
        check("${X:?no}", Ok("ex"));
        check(
            "${EMPTY:?say so}",
            Err(E::Demanded { name: "EMPTY".to_owned(), message: "say so".to_owned() }),
        );
    }

    #[test]
    fn variables_of_a_text_are_found() {
        let found: Vec<_> = variables_of("${A} $B $${C} $$${D:-x}${E_1:?y}$").collect();
        assert_eq!(found, ["A", "D", "E_1"]);
    }

    #[test]
    fn dollars_of_other_kinds_stay() {
        check("$X $ 5$", Ok("$X $ 5$"));
        check("$${X} $$$$", Ok("${X} $$"));
    }

    #[test]
    fn only_a_leading_tilde_is_the_home_folder() {
        check("~/x/~/y", Ok("/home/me/x/~/y"));
        check("~", Ok("~"));
        check("~you/x", Ok("~you/x"));
        assert_eq!(interpolate("~/x", &Environment::default()), Err(E::NoHome));
    }

    #[test]
    fn malformed_references_are_named_without_their_text() {
        check("${X", Err(E::Unclosed));
        for text in ["${}", "${1}", "${a b}", "${X:+y}", "${X-y}", "${hunter2!}"] {
            check(text, Err(E::BadName));
        }
        assert!(!E::BadName.to_string().contains("hunter2"));
    }
}
