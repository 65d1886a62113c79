//! The reading of one list of a repository, page by page, so that an unchanged list costs one or
//! two questions. Pure.
//!
//! A list of one page is read as a whole each time, and conditionally. For a longer list, each poll
//! reads the next page, to find missing items, and the changes since the last poll, to find urgent
//! ones.

use std::collections::{BTreeMap, BTreeSet};

use super::{Conditional, Page};
use domain::forge::{ItemFacts, ItemKind};

/// The number of items on a page that may have a next page.
const FULL_PAGE: usize = 100;

/// The identity of an item within its repository.
pub(super) type ItemNumber = (ItemKind, u64);

/// The state of one list.
#[derive(Debug, Default)]
pub(super) struct ListCursor {
    pages: BTreeMap<u32, KnownPage>,
    /// The next page, from 0.
    next: u32,
    /// The items that were seen since the first page was read.
    seen: BTreeSet<ItemNumber>,
    /// The start of the question for changes: the newest `updated_at` so far.
    since: Option<String>,
    /// The tag that makes the question for changes conditional, with the subject of the question.
    changes_etag: Option<(String, String)>,
    is_read_once: bool,
}

#[derive(Debug)]
struct KnownPage {
    etag: Option<String>,
    /// The items without their bodies, which are not needed again.
    items: Vec<ItemFacts>,
    has_more: bool,
}

/// The result of a page.
pub(super) struct Read {
    /// The present items.
    pub(super) items: Vec<ItemFacts>,
    /// All items of the list, if this was its last page.
    pub(super) whole: Option<BTreeSet<ItemNumber>>,
}

impl ListCursor {
    /// Returns the page to ask for, and the tag that makes the question conditional.
    pub(super) fn question(&self) -> (u32, Option<&str>) {
        let page = self.next + 1;
        (page, self.pages.get(&page).and_then(|known| known.etag.as_deref()))
    }

    /// Returns whether the next page must be read at once, because the list is read for the first
    /// time.
    pub(super) fn goes_on(&self) -> bool {
        !self.is_read_once
    }

    /// Returns the start of the question for changes; `None` for a list that is read as a whole
    /// each time.
    pub(super) fn changes_since(&self) -> Option<&str> {
        let is_long = self.pages.len() > 1;
        self.since.as_deref().filter(|_| is_long && self.is_read_once)
    }

    /// Returns the question for changes, and the tag that makes it conditional.
    pub(super) fn changes_question(&self) -> Option<(String, Option<String>)> {
        let since = self.changes_since()?;
        let etag =
            self.changes_etag.as_ref().filter(|(of, _)| of == since).map(|(_, etag)| etag.clone());
        Some((since.to_owned(), etag))
    }

    /// Keeps the tag of the answer to that question, if the next question will be the same.
    pub(super) fn note_answer(&mut self, since: &str, etag: Option<String>) {
        self.changes_etag = etag.map(|etag| (since.to_owned(), etag));
    }

    /// Takes the answer to [`ListCursor::question`].
    pub(super) fn take(&mut self, answer: Conditional<Page>) -> Read {
        let number = self.next + 1;
        if let Conditional::Fresh(Page { mut items, etag, has_more }) = answer {
            for item in &mut items {
                item.body = String::new();
            }
            // An unchanged full page may have a next page by now.
            let has_more = has_more || items.len() >= FULL_PAGE;
            self.pages.insert(number, KnownPage { etag, items, has_more });
        }
        let (items, has_more) = self
            .pages
            .get(&number)
            .map_or((Vec::new(), false), |page| (page.items.clone(), page.has_more));
        let is_all = number == 1 && !has_more;
        if !self.is_read_once || self.since.is_none() || is_all {
            self.note_changes(&items);
        }
        self.seen.extend(items.iter().map(|item| (item.kind, item.number)));
        if has_more {
            self.next = number;
            return Read { items, whole: None };
        }
        self.pages.retain(|known, _| *known <= number);
        self.next = 0;
        self.is_read_once = true;
        Read { items, whole: Some(std::mem::take(&mut self.seen)) }
    }

    /// Returns all items of the list, each in the state when its page was read.
    pub(super) fn items(&self) -> impl Iterator<Item = &ItemFacts> {
        self.pages.values().flat_map(|page| &page.items)
    }

    /// Stores the changes.
    pub(super) fn note_changes(&mut self, items: &[ItemFacts]) {
        let newest =
            items.iter().map(|item| item.updated_at.as_str()).filter(|at| !at.is_empty()).max();
        if newest > self.since.as_deref() {
            self.since = newest.map(str::to_owned);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::issue;

    fn item(number: u64, updated_at: &str) -> ItemFacts {
        ItemFacts { body: "long".to_owned(), ..issue(number, updated_at) }
    }

    fn page(items: Vec<ItemFacts>, etag: &str, has_more: bool) -> Conditional<Page> {
        Conditional::Fresh(Page { items, etag: Some(etag.to_owned()), has_more })
    }

    #[test]
    fn a_short_list_is_read_as_a_whole_each_time() {
        let mut cursor = ListCursor::default();
        assert_eq!(cursor.question(), (1, None));
        let read = cursor.take(page(vec![item(7, "t1")], "e1", false));
        assert_eq!(read.whole, Some(BTreeSet::from([(ItemKind::Issue, 7)])));
        assert_eq!(cursor.question(), (1, Some("e1")));
        assert_eq!(cursor.changes_since(), None);
        let again = cursor.take(Conditional::NotModified);
        assert_eq!((again.items.len(), again.whole.map(|whole| whole.len())), (1, Some(1)));
    }

    #[test]
    fn a_long_list_is_read_page_by_page_with_the_changes_beside_it() {
        let mut cursor = ListCursor::default();
        assert!(cursor.take(page(vec![item(1, "t5")], "e1", true)).whole.is_none());
        assert!(cursor.goes_on());
        assert_eq!(cursor.question(), (2, None));
        assert_eq!(
            cursor.take(page(vec![item(2, "t3")], "e2", false)).whole.map(|whole| whole.len()),
            Some(2)
        );
        assert!(!cursor.goes_on());
        assert_eq!((cursor.question(), cursor.changes_since()), ((1, Some("e1")), Some("t5")));
        cursor.note_changes(&[item(2, "t9"), item(3, "t8")]);
        assert_eq!(cursor.changes_since(), Some("t9"));
        assert!(cursor.take(Conditional::NotModified).whole.is_none());
        assert_eq!(cursor.items().map(|item| item.number).collect::<Vec<_>>(), [1, 2]);
        // The list has become shorter.
        assert_eq!(
            cursor.take(page(Vec::new(), "e3", false)).whole.map(|whole| whole.len()),
            Some(1)
        );
    }

    #[test]
    fn a_list_that_was_shortened_to_a_page_is_short() {
        let mut cursor = ListCursor::default();
        cursor.take(page(vec![item(1, "t")], "e1", true));
        cursor.take(page(vec![item(2, "t")], "e2", false));
        cursor.take(page(vec![item(1, "t")], "e4", false));
        assert_eq!(cursor.changes_since(), None);
        assert_eq!(cursor.question(), (1, Some("e4")));
    }

    #[test]
    fn changes_are_asked_for_from_the_first_item_on_and_conditionally() {
        let mut cursor = ListCursor::default();
        cursor.take(page(Vec::new(), "e1", false));
        cursor.take(page(vec![item(1, "t4")], "e2", false));
        cursor.take(page(vec![item(1, "t4")], "e3", true));
        cursor.take(page(vec![item(2, "t2")], "e4", false));
        assert_eq!(cursor.changes_question(), Some(("t4".to_owned(), None)));
        cursor.note_answer("t4", Some("c1".to_owned()));
        assert_eq!(cursor.changes_question(), Some(("t4".to_owned(), Some("c1".to_owned()))));
        cursor.note_changes(&[item(2, "t5")]);
        assert_eq!(
            cursor.changes_question(),
            Some(("t5".to_owned(), None)),
            "another question has another answer"
        );
    }

    #[test]
    fn a_full_page_that_is_unchanged_may_have_one_after_it() {
        let mut cursor = ListCursor::default();
        let full: Vec<ItemFacts> = (0..100).map(|number| item(number, "t")).collect();
        assert!(cursor.take(page(full, "e1", false)).whole.is_none());
        assert_eq!(cursor.question(), (2, None));
        assert_eq!(
            cursor.take(page(Vec::new(), "e2", false)).whole.map(|whole| whole.len()),
            Some(100)
        );
        assert!(cursor.take(Conditional::NotModified).whole.is_none());
        assert_eq!(
            cursor.take(page(vec![item(100, "t")], "e3", false)).whole.map(|whole| whole.len()),
            Some(101)
        );
    }
}
