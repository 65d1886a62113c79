//! Cuts output into lines while it is read.

use super::MAX_LINE;

/// The incomplete line of a reader.
#[derive(Debug)]
pub struct Lines {
    start: Vec<u8>,
    /// The line is too long already.
    is_skipped: bool,
    /// The length of the longest line that is not skipped, in bytes.
    most: usize,
}

impl Default for Lines {
    fn default() -> Self {
        Self::up_to(MAX_LINE)
    }
}

impl Lines {
    /// Returns a reader that skips lines of more than `most` bytes.
    pub const fn up_to(most: usize) -> Self {
        Self { start: Vec::new(), is_skipped: false, most }
    }

    /// Calls `on_line` with each line that ends in `piece`, without its line end. It skips lines
    /// that are too long.
    pub fn push(&mut self, mut piece: &[u8], mut on_line: impl FnMut(&str)) {
        while let Some(end) = piece.iter().position(|&byte| byte == b'\n') {
            let line = &piece[..end];
            let rest = &piece[end + 1..];
            if self.start.is_empty() && !self.is_skipped {
                self.take(line, &mut on_line);
            } else {
                self.extend(line);
                self.finish(&mut on_line);
            }
            piece = rest;
        }
        self.extend(piece);
    }

    /// Calls `on_line` with the last line if it has no line end.
    pub fn finish(&mut self, mut on_line: impl FnMut(&str)) {
        if !self.is_skipped && !self.start.is_empty() {
            self.take(&self.start, &mut on_line);
        }
        // This also frees the memory of a long line.
        *self = Self::up_to(self.most);
    }

    fn extend(&mut self, bytes: &[u8]) {
        self.is_skipped |= self.start.len() + bytes.len() > self.most;
        if self.is_skipped {
            self.start = Vec::new();
        } else {
            self.start.extend_from_slice(bytes);
        }
    }

    fn take(&self, line: &[u8], on_line: &mut impl FnMut(&str)) {
        if line.len() <= self.most {
            on_line(&String::from_utf8_lossy(line));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines_of(pieces: &[&[u8]]) -> Vec<String> {
        let mut lines = Lines::default();
        let mut found = Vec::new();
        for piece in pieces {
            lines.push(piece, |line| found.push(line.to_owned()));
        }
        lines.finish(|line| found.push(line.to_owned()));
        found
    }

    #[test]
    fn a_line_that_is_too_long_is_skipped_however_it_comes() {
        let long = vec![b'x'; MAX_LINE + 1];
        assert_eq!(lines_of(&[&long, b"\nshort\n"]), ["short"]);
        assert_eq!(lines_of(&[&[long.as_slice(), b"\nshort"].concat()]), ["short"]);
        assert_eq!(lines_of(&[&long[1..], b"\n"]).len(), 1);
    }

    proptest! {
        #[test]
        fn lines_are_the_same_however_they_are_read(text in "[ab\n]{0,60}", cuts in proptest::collection::vec(0_usize..60, 0..8)) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).chain([0, text.len()]).collect();
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &text.as_bytes()[cut[0]..cut[1]]).collect();
            prop_assert_eq!(lines_of(&pieces), lines_of(&[text.as_bytes()]));
        }
    }
}
