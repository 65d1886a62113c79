//! Divides bytes that come in pieces into lines of a limited length.

use super::MAX_LINE;

/// The bytes of an unfinished line, and the number of lines before it.
#[derive(Debug, Default)]
pub struct LineSplitter {
    begun: Vec<u8>,
    n_lines: usize,
}

/// A line is longer than [`MAX_LINE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the line is longer than {} MiB, and no line of an export is", MAX_LINE >> 20)]
pub struct LineTooLong {
    /// The number of the line. The first one is 1.
    pub line: usize,
}

impl LineSplitter {
    /// Takes the next bytes. Hands each line that they complete to `take`, with its number and
    /// without its end.
    ///
    /// # Errors
    /// `LineTooLong`. Nothing more is to be read then.
    pub fn push(
        &mut self,
        mut bytes: &[u8],
        mut take: impl FnMut(usize, &[u8]),
    ) -> Result<(), LineTooLong> {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let (last, rest) = bytes.split_at(end);
            self.check_room(last.len())?;
            self.n_lines += 1;
            if self.begun.is_empty() {
                take(self.n_lines, last);
            } else {
                self.begun.extend_from_slice(last);
                take(self.n_lines, &self.begun);
                self.begun.clear();
            }
            bytes = &rest[1..];
        }
        self.check_room(bytes.len())?;
        self.begun.extend_from_slice(bytes);
        Ok(())
    }

    /// Hands the last line to `take`, if it has no end. Returns the number of lines.
    pub fn finish(self, mut take: impl FnMut(usize, &[u8])) -> usize {
        if self.begun.is_empty() {
            return self.n_lines;
        }
        take(self.n_lines + 1, &self.begun);
        self.n_lines + 1
    }

    const fn check_room(&self, n_more: usize) -> Result<(), LineTooLong> {
        if self.begun.len() + n_more > MAX_LINE {
            return Err(LineTooLong { line: self.n_lines + 1 });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_the_same_in_whatever_pieces_they_come() {
        let text = b"one\n\ntwo three\nlast";
        for size in 1..=text.len() {
            let mut splitter = LineSplitter::default();
            let mut lines = Vec::new();
            let mut take = |n: usize, line: &[u8]| {
                lines.push((n, String::from_utf8(line.to_vec()).unwrap()));
            };
            for piece in text.chunks(size) {
                splitter.push(piece, &mut take).unwrap();
            }
            assert_eq!(splitter.finish(&mut take), 4);
            let expected = ["one", "", "two three", "last"];
            let expected: Vec<_> = (1..).zip(expected.map(str::to_owned)).collect();
            assert_eq!(lines, expected, "{size}");
        }
    }

    #[test]
    fn a_line_without_end_is_refused_before_it_fills_the_memory() {
        let mut splitter = LineSplitter::default();
        splitter.push(b"first\n", |_, _| {}).unwrap();
        let piece = vec![b'x'; MAX_LINE];
        splitter.push(&piece, |_, _| {}).unwrap();
        assert_eq!(splitter.push(b"x", |_, _| {}), Err(LineTooLong { line: 2 }));
        let mut splitter = LineSplitter::default();
        let mut n_taken = 0;
        splitter.push(&piece, |_, _| n_taken += 1).unwrap();
        splitter.push(b"\nx", |_, _| n_taken += 1).unwrap();
        assert_eq!(n_taken, 1);
    }
}
