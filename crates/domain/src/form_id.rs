//! The ids that the server makes with the forms of its pages, so that a form that is sent twice
//! acts once.
//!
//! ```text
//!  form    <unique>:<time>:<seal>       for one person and one form, for FORM_LIFE
//!  thing   tsk_<unique>-<digest>        of the content with which the form was sent
//! ```
//!
//! The seal is a keyed hash over the person, the form and the time, so that no table of forms is
//! needed. The thing that a form makes has the unique part of the form and a digest of the content
//! in its id. Thus the same content meets the thing that it made, and other content is recognised,
//! also after the thing was changed.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use super::id::is_id;
use super::refusal::Refusal;
use super::secret::Secret;
use super::time::Timestamp;

/// The time for which a form can be sent.
pub const FORM_LIFE: Duration = Duration::from_hours(24);

/// The longest unique part. The id of a thing has a prefix and a digest beside it.
const MAX_UNIQUE: usize = 40;

/// The number of bytes of a digest in the id of a thing.
const DIGEST_BYTES: usize = 6;

/// The id of one form for one person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormId {
    unique: String,
    made_at: Timestamp,
    seal: Secret,
}

/// The reason why a form is refused. Nothing was done, and what was written can be sent with a new
/// id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormFault {
    /// It was made for another person or another form, or not here.
    #[error("this form was not made for you; send it again to do it in your name")]
    Foreign,
    #[error("this form is older than a day; if it was not sent before, send it again")]
    Expired,
    /// It was sent with other content, and made a thing with this name.
    #[error(
        "this form was sent before with other content and made {made}; sent again, it makes another"
    )]
    Sent { made: String },
}

/// A form whose id was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedForm {
    unique: String,
    /// The form, as its id was made for it.
    form: String,
}

/// The id of the thing that a form makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MadeByForm<T> {
    pub id: T,
    /// The beginning of the ids of all things that this form could make.
    pub stem: String,
    /// The form, as its id was made for it.
    form: String,
}

/// A thing that a form or another request made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sent<T> {
    /// It was sent for the first time.
    First(T),
    /// It was sent before with the same content. This is the thing as it is now.
    Again(T),
}

impl FormFault {
    /// Returns the word that programs branch on.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Foreign => "form_foreign",
            Self::Expired => "form_expired",
            Self::Sent { .. } => "form_sent",
        }
    }

    /// Returns the Japanese text, which does not name the thing that was made.
    pub const fn japanese(&self) -> &'static str {
        match self {
            Self::Foreign => {
                "このフォームは別の人のために作られたものです。もう一度送信すると、あなたの操作として実行されます"
            }
            Self::Expired => {
                "このフォームは作成から 1 日以上たっています。まだ送信していない場合は、もう一度送信してください"
            }
            Self::Sent { .. } => {
                "このフォームは別の内容ですでに送信されています。もう一度送信すると、もう 1 件作成します"
            }
        }
    }
}

impl FormId {
    /// Makes the id of a form. `unique` is a text in the grammar of ids that no other form has.
    pub fn new(key: &Secret, unique: String, person: &str, form: &str, now: Timestamp) -> Self {
        let seal = seal_of(key, &unique, person, form, now);
        Self { unique, made_at: now, seal }
    }

    /// Checks that the id was made for this form of this person, less than a day ago.
    ///
    /// # Errors
    /// `Foreign`, `Expired`.
    pub fn check(
        &self,
        key: &Secret,
        person: &str,
        form: &str,
        now: Timestamp,
    ) -> Result<CheckedForm, FormFault> {
        if self.seal != seal_of(key, &self.unique, person, form, self.made_at) {
            return Err(FormFault::Foreign);
        }
        if now.since(self.made_at) >= FORM_LIFE {
            return Err(FormFault::Expired);
        }
        Ok(CheckedForm { unique: self.unique.clone(), form: form.to_owned() })
    }
}

impl CheckedForm {
    /// Returns the id of the thing that the form makes if it has this content. `content` has the
    /// values of all fields in a fixed order.
    pub fn thing<T: FromStr>(&self, prefix: &str, content: &[impl AsRef<str>]) -> MadeByForm<T> {
        let stem = format!("{prefix}{}-", self.unique);
        let digest = Sha256::digest(joined(content).as_bytes());
        let digest = digest.iter().take(DIGEST_BYTES);
        let id = digest.fold(stem.clone(), |id, byte| id + &format!("{byte:02x}"));
        let id = id.parse().ok().expect("a prefix, an id and digits are an id");
        MadeByForm { id, stem, form: self.form.clone() }
    }
}

impl<T: PartialEq + fmt::Display> MadeByForm<T> {
    /// Returns whether the form made its thing before. `things` has the ids and the names of the
    /// things that exist.
    ///
    /// # Errors
    /// `FormRefused` if the form made a thing with other content.
    pub fn has_made<'a, N: Into<String>>(
        &self,
        things: impl IntoIterator<Item = (&'a T, N)>,
    ) -> Result<bool, Refusal>
    where
        T: 'a,
    {
        let mut things = things.into_iter();
        match things.find(|(id, _)| id.to_string().starts_with(&self.stem)) {
            None => Ok(false),
            Some((id, _)) if *id == self.id => Ok(true),
            Some((_, name)) => Err(self.refused(name)),
        }
    }

    /// Returns the refusal of a form that made a thing of this name with other content.
    pub fn refused(&self, made: impl Into<String>) -> Refusal {
        let fault = FormFault::Sent { made: made.into() };
        Refusal::FormRefused { form: self.form.clone(), fault }
    }
}

impl<T> Sent<T> {
    /// Returns the thing, also if it was made before.
    pub fn thing(self) -> T {
        match self {
            Self::First(thing) | Self::Again(thing) => thing,
        }
    }
}

impl fmt::Display for FormId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{:x}:{}", self.unique, self.made_at.as_millis(), self.seal.reveal())
    }
}

/// A text that is not an id of a form is like one of another form.
impl FromStr for FormId {
    type Err = FormFault;

    fn from_str(text: &str) -> Result<Self, FormFault> {
        let mut parts = text.splitn(3, ':');
        let unique = parts.next().filter(|unique| is_id(unique) && unique.len() <= MAX_UNIQUE);
        let made_at = parts.next().and_then(|millis| i64::from_str_radix(millis, 16).ok());
        let seal = parts.next().map(Secret::new);
        let (Some(unique), Some(made_at), Some(seal)) = (unique, made_at, seal) else {
            return Err(FormFault::Foreign);
        };
        Ok(Self { unique: unique.to_owned(), made_at: Timestamp::from_millis(made_at), seal })
    }
}

fn seal_of(key: &Secret, unique: &str, person: &str, form: &str, at: Timestamp) -> Secret {
    key.derive("", &joined(&["form", form, person, unique, &at.as_millis().to_string()]))
}

/// Returns the texts as one text, which differs for each list of texts.
fn joined(texts: &[impl AsRef<str>]) -> String {
    texts
        .iter()
        .map(AsRef::as_ref)
        .fold(String::new(), |all, text| all + &format!("{}:{text}", text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TaskId;
    use crate::id::MAX_ID_LENGTH;

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);

    fn key() -> Secret {
        Secret::new("a key")
    }

    fn form() -> FormId {
        FormId::new(&key(), "0199".to_owned(), "ann", "task of shop", NOW)
    }

    fn thing(content: &[&str]) -> MadeByForm<TaskId> {
        let checked = form().check(&key(), "ann", "task of shop", NOW);
        checked.unwrap().thing(TaskId::PREFIX, content)
    }

    #[test]
    fn an_id_is_valid_for_its_person_and_its_form_for_a_day() {
        let id: FormId = form().to_string().parse().unwrap();
        assert_eq!(id, form());
        let check = |person, form, now| id.check(&key(), person, form, now).map(drop);
        assert_eq!(check("ann", "task of shop", NOW), Ok(()));
        assert_eq!(check("ann", "task of shop", NOW + FORM_LIFE / 2), Ok(()));
        assert_eq!(check("ann", "task of shop", NOW + FORM_LIFE), Err(FormFault::Expired));
        assert_eq!(check("ben", "task of shop", NOW), Err(FormFault::Foreign));
        assert_eq!(check("ann", "task of blog", NOW), Err(FormFault::Foreign));
        // A form for which two texts could be taken as one.
        assert_eq!(check("p", "task of shoann", NOW), Err(FormFault::Foreign));
        let of_another_server =
            id.check(&Secret::new("other"), "ann", "task of shop", NOW).map(drop);
        assert_eq!(of_another_server, Err(FormFault::Foreign));
    }

    #[test]
    fn an_id_that_was_changed_or_made_elsewhere_is_foreign() {
        let check = |text: &str| {
            let id = text.parse::<FormId>();
            id.and_then(|id| id.check(&key(), "ann", "task of shop", NOW)).map(drop)
        };
        let text = form().to_string();
        assert_eq!(check(&text), Ok(()));
        for text in [
            String::new(),
            "tsk_1".to_owned(),
            "0199:f4240:".to_owned(),
            text.replace("0199", "0198"),
            text.replace(":f4240:", ":f4241:"),
            text.replace(":f4240:", ":-f4240:"),
            format!("{text}0"),
            text.replace("0199", "../x"),
            text.replace("0199", &"x".repeat(41)),
            text.to_uppercase(),
        ] {
            assert_eq!(check(&text), Err(FormFault::Foreign), "{text}");
        }
    }

    #[test]
    fn the_same_content_makes_the_same_id_and_any_other_content_another_one() {
        let first = thing(&["Title", "", "ann"]);
        assert_eq!(first, thing(&["Title", "", "ann"]));
        for other in [&["Title", "ann", ""][..], &["Title", "", "ann", ""], &["Titl", "e", "ann"]] {
            let other = thing(other);
            assert_ne!(other.id, first.id);
            assert!(other.id.as_str().starts_with(&first.stem));
        }
        let longest = CheckedForm { unique: "x".repeat(MAX_UNIQUE), form: String::new() };
        let thing: MadeByForm<TaskId> = longest.thing(TaskId::PREFIX, &["x"]);
        assert!(thing.id.as_str().len() < MAX_ID_LENGTH);
    }

    #[test]
    fn a_form_that_made_its_thing_is_repeated_or_refused() {
        let (first, other) = (thing(&["one"]), thing(&["two"]));
        let unlike: TaskId = "tsk_0199".parse().unwrap();
        assert_eq!(first.has_made([(&unlike, "SHOP-1")]), Ok(false));
        assert_eq!(first.has_made([(&unlike, "SHOP-1"), (&first.id, "SHOP-2")]), Ok(true));
        let refusal = other.has_made([(&first.id, "SHOP-2")]).unwrap_err();
        assert_eq!(refusal.code(), "form_sent");
        assert!(refusal.to_string().contains("made SHOP-2"), "{refusal}");
    }

    #[test]
    fn the_seal_of_an_id_is_not_printed_by_mistake() {
        assert!(!format!("{:?}", form()).contains(form().seal.reveal()));
    }
}
