//! The search for tasks by words.
//!
//! It is no question to the store: the engines compare letters in different ways.

use std::cmp::Reverse;

use super::Task;
use crate::time::Timestamp;

/// The number of words that count. More of them find nothing that these do not find.
const MAX_WORDS: usize = 8;

/// The words that a task must contain, in lower case. They may be parts of words.
#[derive(Debug, Clone)]
pub struct TaskSearch {
    words: Vec<String>,
    whole: String,
}

/// The place of a task among those that were found; a smaller one comes first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    kind: RankKind,
    is_closed: bool,
    since: Reverse<Timestamp>,
    id: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum RankKind {
    ShortId,
    Title,
    Words,
}

impl TaskSearch {
    /// Returns the search for all words of a text. Without a word, all tasks are found.
    pub fn new(text: &str) -> Self {
        let words = text.split_whitespace().take(MAX_WORDS).map(str::to_lowercase);
        let words: Vec<String> = words.collect();
        Self { whole: words.join(" "), words }
    }

    /// Returns whether all tasks are found.
    pub const fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Returns the rank of a task; `None` if it lacks a word. The words are sought in its title,
    /// its description, its ids, and in the id and the name `assignee` of its assignee.
    pub fn rank(&self, task: &Task, assignee: Option<&str>) -> Option<Rank> {
        let short_id = task.short_id.to_string().to_lowercase();
        let title = task.title.to_lowercase();
        let mut texts = vec![title.clone(), short_id.clone(), task.id.as_str().to_lowercase()];
        texts.extend(task.assignee.iter().map(|id| id.as_str().to_lowercase()));
        texts.extend(assignee.map(str::to_lowercase));
        let has = |word: &String| texts.iter().any(|text| text.contains(word));
        let missing: Vec<&String> = self.words.iter().filter(|word| !has(word)).collect();
        if !missing.is_empty() {
            let description = task.description.to_lowercase();
            if !missing.iter().all(|word| description.contains(word.as_str())) {
                return None;
            }
        }
        let kind = if short_id == self.whole {
            RankKind::ShortId
        } else if title.contains(&self.whole) {
            RankKind::Title
        } else {
            RankKind::Words
        };
        Some(Rank {
            kind,
            is_closed: !task.status.is_open(),
            since: Reverse(task.status_since),
            id: task.id.to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::{NewTask, TaskStatus};

    fn task(n: u32, title: &str, description: &str, status: TaskStatus) -> Task {
        let new = NewTask {
            description: description.to_owned(),
            status,
            assignee: Some("agt_7".parse().unwrap()),
            ..NewTask::new("prj".parse().unwrap(), title)
        };
        let at = Timestamp::from_millis(i64::from(n));
        let short_id = format!("SHOP-{n}").parse().unwrap();
        new.to_task(format!("tsk_{n}").parse().unwrap(), short_id, at).unwrap()
    }

    #[test]
    fn each_word_is_found_anywhere_and_the_closest_tasks_come_first() {
        let tasks = [
            task(1, "Ärger mit 100% CSS", "the login page", TaskStatus::Done),
            task(2, "Login page", "css", TaskStatus::Todo),
            task(3, "Login page", "", TaskStatus::Done),
            task(4, "login PAGE", "", TaskStatus::Todo),
            task(12, "Other", "shop-1", TaskStatus::Todo),
        ];
        let found = |text: &str| {
            let search = TaskSearch::new(text);
            let ranked =
                tasks.iter().filter_map(|task| Some((search.rank(task, Some("Ann"))?, task)));
            let mut ranked: Vec<_> = ranked.collect();
            ranked.sort_by(|(one, _), (other, _)| one.cmp(other));
            ranked.iter().map(|(_, task)| task.short_id.number).collect::<Vec<u32>>()
        };
        assert_eq!(found("login page"), [4, 2, 3, 1]);
        assert_eq!(found("PAGE css"), [2, 1]);
        assert_eq!(found("shop-1"), [1, 12]);
        assert_eq!(found("ärger 100%"), [1]);
        assert_eq!(found("ann tsk_2"), [2]);
        assert_eq!(found("agt_7 other"), [12]);
        assert_eq!(found("nothing like this"), [] as [u32; 0]);
        assert_eq!(found(" "), [12, 4, 2, 3, 1], "all, the open ones first");
    }
}
