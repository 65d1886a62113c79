//! The problems of a file, each with its line.

use serde::{Deserialize, Serialize};

/// The number of problems that are told.
const MAX_TOLD: usize = 20;

/// A problem of one line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineProblem {
    /// The number of the line. The first one is 1.
    pub line: usize,
    pub message: String,
}

/// The first problems of a file, and the number of further ones.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Problems {
    pub told: Vec<LineProblem>,
    pub n_more: usize,
}

impl Problems {
    /// Adds a problem. After the first ones, it is only counted.
    pub fn add(&mut self, line: usize, message: impl Into<String>) {
        if self.told.len() < MAX_TOLD {
            self.told.push(LineProblem { line, message: message.into() });
        } else {
            self.n_more += 1;
        }
    }

    /// Returns whether there is no problem.
    pub const fn is_empty(&self) -> bool {
        self.told.is_empty()
    }

    /// Returns the problems in the order of their lines.
    #[must_use]
    pub fn sorted(mut self) -> Self {
        self.told.sort_by_key(|problem| problem.line);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_problems_are_counted_and_the_first_are_told() {
        let mut problems = Problems::default();
        assert!(problems.is_empty());
        for line in (1..=25).rev() {
            problems.add(line, "bad");
        }
        let problems = problems.sorted();
        assert_eq!((problems.told.len(), problems.n_more, problems.told[0].line), (20, 5, 6));
    }
}
