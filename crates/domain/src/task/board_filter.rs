//! The choice of the tasks that a board shows.

use super::{Priority, Task, TaskSearch, TaskStatus};
use crate::AgentId;

/// The condition that a task on a board must meet.
///
/// A text may contain `assignee:ada`, `priority:high`, `is:blocked`, `is:needs-person` and
/// `is:to-merge` beside words. The last two together choose what meets one of them. A key or a
/// value that is not known is a word.
#[derive(Debug, Clone)]
pub struct BoardFilter {
    words: TaskSearch,
    /// A part of the name or the id of the assignee, in lower case.
    assignee_part: Option<String>,
    pub assignee: Option<AgentId>,
    pub priority: Option<Priority>,
    status: Option<TaskStatus>,
    pub needs_person: bool,
    /// Its result waits for a person.
    pub to_merge: bool,
}

/// The facts about a task that are not in its row.
#[derive(Debug, Clone, Copy, Default)]
pub struct TaskNeeds {
    /// Only a person ends its wait.
    pub person: bool,
    /// Its result waits for a person.
    pub merge: bool,
}

impl BoardFilter {
    /// Returns the filter that a text describes.
    pub fn parse(text: &str) -> Self {
        let mut filter = Self {
            words: TaskSearch::new(""),
            assignee_part: None,
            assignee: None,
            priority: None,
            status: None,
            needs_person: false,
            to_merge: false,
        };
        let words = text.split_whitespace().filter(|word| !filter.take(word));
        let words: Vec<&str> = words.collect();
        filter.words = TaskSearch::new(&words.join(" "));
        filter
    }

    /// Takes a word with a key. Returns false for any other word.
    fn take(&mut self, word: &str) -> bool {
        let Some((key, value)) = word.split_once(':') else {
            return false;
        };
        if key == "assignee" && !value.is_empty() {
            self.assignee_part = Some(normal(value));
            return true;
        }
        let value = value.to_lowercase().replace('-', "_");
        match key {
            "priority" => match value.parse() {
                Ok(priority) => self.priority = Some(priority),
                Err(_) => return false,
            },
            "is" if value == "needs_person" => self.needs_person = true,
            "is" if value == "to_merge" => self.to_merge = true,
            "is" => match value.parse() {
                Ok(status) => self.status = Some(status),
                Err(_) => return false,
            },
            _ => return false,
        }
        true
    }

    /// Returns whether all tasks meet it.
    pub const fn is_empty(&self) -> bool {
        self.words.is_empty()
            && self.assignee_part.is_none()
            && self.assignee.is_none()
            && self.priority.is_none()
            && self.status.is_none()
            && !self.needs_person
            && !self.to_merge
    }

    /// Returns whether a task meets it. `assignee` is the name of its assignee.
    pub fn matches(
        &self,
        task: &Task,
        assignee: Option<&str>,
        needs: impl FnOnce() -> TaskNeeds,
    ) -> bool {
        let is_part_of = |part: &String| {
            let id = task.assignee.as_ref().map(AgentId::as_str);
            let names = id.into_iter().chain(assignee);
            names.map(normal).any(|name| name.contains(part.as_str()))
        };
        self.assignee.as_ref().is_none_or(|agent| task.assignee.as_ref() == Some(agent))
            && self.assignee_part.as_ref().is_none_or(is_part_of)
            && self.priority.is_none_or(|priority| task.priority == priority)
            && self.status.is_none_or(|status| task.status == status)
            && self.words.rank(task, assignee).is_some()
            && (!self.needs_person && !self.to_merge || {
                let needs = needs();
                self.needs_person && needs.person || self.to_merge && needs.merge
            })
    }
}

/// Returns a name in the form in which a part of it is written after `assignee:`, without spaces.
fn normal(name: &str) -> String {
    name.to_lowercase().replace([' ', '_'], "-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::NewTask;
    use crate::time::Timestamp;

    fn task(title: &str, status: TaskStatus, assignee: Option<&str>) -> Task {
        let new = NewTask {
            status,
            priority: Priority::High,
            assignee: assignee.map(|id| id.parse().unwrap()),
            ..NewTask::new("prj".parse().unwrap(), title)
        };
        let at = Timestamp::from_millis(1);
        new.to_task("tsk".parse().unwrap(), "SHOP-1".parse().unwrap(), at).unwrap()
    }

    #[test]
    fn a_text_chooses_by_words_assignee_status_priority_and_need() {
        let task = task("Login page", TaskStatus::InProgress, Some("agt_1"));
        let none = TaskNeeds::default;
        let matches =
            |text: &str| BoardFilter::parse(text).matches(&task, Some("Ada Lovelace"), none);
        for text in ["", "login", "assignee:ada page", "assignee:ada-love", "assignee:agt_1"] {
            assert!(matches(text), "{text}");
        }
        for text in ["is:in-progress", "is:in_progress priority:HIGH", "shop-1 is:in-progress"] {
            assert!(matches(text), "{text}");
        }
        for text in ["logout", "assignee:ben", "is:blocked", "priority:low", "is:needs-person"] {
            assert!(!matches(text), "{text}");
        }
        // A key or a value that is not known is a word.
        assert!(!matches("is:strange") && !matches("size:5"));
        assert!(BoardFilter::parse(" ").is_empty());
        assert!(!BoardFilter::parse("is:blocked").is_empty());
        let needs = |person, merge| move || TaskNeeds { person, merge };
        let finds = |text: &str, person, merge| {
            BoardFilter::parse(text).matches(&task, None, needs(person, merge))
        };
        assert!(finds("is:needs-person", true, false) && !finds("is:needs-person", false, true));
        assert!(finds("is:to-merge", false, true) && !finds("is:to-merge", true, false));
        // Both together are all that waits for a person.
        let both = "is:to-merge is:needs-person";
        assert!(finds(both, true, false) && finds(both, false, true) && !finds(both, false, false));
    }
}
