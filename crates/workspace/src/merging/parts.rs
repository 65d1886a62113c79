//! The parts of a commit, as its text has them.

/// The parts of a commit but its signature.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Parts {
    pub(super) tree: String,
    pub(super) parents: Vec<String>,
    pub(super) author: Person,
    pub(super) committer: Person,
    pub(super) message: Vec<u8>,
    /// Its text is in another encoding than UTF-8.
    pub(super) is_encoded: bool,
}

/// A person in a commit: the name, the address, and the time with its zone.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Person {
    pub(super) name: String,
    pub(super) address: String,
    pub(super) time: String,
}

impl Parts {
    /// Reads the text of a commit.
    pub(super) fn parse(raw: &[u8]) -> Self {
        let end = raw.windows(2).position(|two| two == b"\n\n").unwrap_or(raw.len());
        let (head, message) = raw.split_at(end);
        let mut parts = Self {
            message: message.strip_prefix(b"\n\n").unwrap_or(message).to_vec(),
            is_encoded: std::str::from_utf8(head).is_err(),
            ..Self::default()
        };
        for line in String::from_utf8_lossy(head).lines() {
            match line.split_once(' ') {
                Some(("tree", tree)) => tree.clone_into(&mut parts.tree),
                Some(("parent", parent)) => parts.parents.push(parent.to_owned()),
                Some(("author", author)) => parts.author = Person::parse(author),
                Some(("committer", committer)) => parts.committer = Person::parse(committer),
                Some(("encoding", _)) => parts.is_encoded = true,
                // A signature, and its further lines.
                _ => {}
            }
        }
        parts
    }
}

impl Person {
    fn parse(text: &str) -> Self {
        let (name, rest) = text.split_once(" <").unwrap_or((text, ""));
        let (address, time) = rest.split_once("> ").unwrap_or((rest, ""));
        Self { name: name.to_owned(), address: address.to_owned(), time: time.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_is_the_same_with_and_without_a_signature() {
        let raw = b"tree 1\nparent 2\nparent 3\nauthor Ann Lee <a@b> 5 +0100\n\
            committer Bo <b@c> 6 +0000\n\nm\n\nparent 4\n";
        let signed = b"tree 1\nparent 2\nparent 3\nauthor Ann Lee <a@b> 5 +0100\n\
            committer Bo <b@c> 6 +0000\ngpgsig -----BEGIN\n parent 5\n -----END\n\n\
            m\n\nparent 4\n";
        let parts = Parts::parse(raw);
        assert_eq!(parts, Parts::parse(signed));
        assert_eq!(parts.parents, ["2", "3"]);
        assert_eq!(parts.message, b"m\n\nparent 4\n");
        let Person { name, address, time } = &parts.author;
        assert_eq!([name, address, time], ["Ann Lee", "a@b", "5 +0100"]);
        assert_ne!(parts, Parts::parse(b"tree 1\nparent 2\n\nm\n"));
    }

    #[test]
    fn another_encoding_is_known() {
        let is_encoded = |raw: &[u8]| Parts::parse(raw).is_encoded;
        assert!(!is_encoded("tree 1\nauthor \u{c4} <a@b> 5 +0100\n\nm".as_bytes()));
        assert!(is_encoded(b"tree 1\nauthor \xc4 <a@b> 5 +0100\n\nm"));
        assert!(is_encoded(b"tree 1\nencoding latin1\n\nm"));
    }
}
