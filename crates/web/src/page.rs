//! Long lists in parts, by `limit` and `cursor`. The cursor is the id of the last item of the part
//! before. If there is more, the header `Link` has the address of the next part.

use axum::Json;
use axum::extract::RawQuery;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::problem::Problem;
use api::MAX_LIMIT;

/// The number of items in a part if the request names no number.
pub(super) const DEFAULT_LIMIT: usize = 100;

/// Returns the number of items in a part.
///
/// # Errors
/// Fails if the number is out of range.
pub(super) fn limit_of(limit: Option<usize>) -> Result<usize, Problem> {
    let limit = limit.unwrap_or(DEFAULT_LIMIT);
    if (1..=MAX_LIMIT).contains(&limit) {
        return Ok(limit);
    }
    let detail = format!("limit must be 1 to {MAX_LIMIT}, not {limit}");
    Err(Problem::new(StatusCode::BAD_REQUEST, "invalid_query", detail))
}

/// One part of a list.
pub(super) struct Page<T> {
    items: Vec<T>,
    /// The cursor of the next part.
    next: Option<String>,
    query: Option<String>,
}

impl<T> Page<T> {
    /// Makes a part of `items`, which are one more than `limit` if there is more.
    pub(super) fn of(
        mut items: Vec<T>,
        limit: usize,
        RawQuery(query): RawQuery,
        id: impl Fn(&T) -> String,
    ) -> Self {
        let has_more = items.len() > limit;
        items.truncate(limit);
        let next = items.last().filter(|_| has_more).map(id);
        Self { items, next, query }
    }

    /// Makes a part of a whole list. It contains everything if neither `limit` nor `cursor` is
    /// given.
    ///
    /// # Errors
    /// Fails if the limit is out of range, or if the cursor is not in the list.
    pub(super) fn cut(
        mut items: Vec<T>,
        limit: Option<usize>,
        cursor: Option<&str>,
        query: RawQuery,
        id: impl Fn(&T) -> String,
    ) -> Result<Self, Problem> {
        if limit.is_none() && cursor.is_none() {
            return Ok(Self { items, next: None, query: None });
        }
        let limit = limit_of(limit)?;
        if let Some(cursor) = cursor {
            let Some(position) = items.iter().position(|item| id(item) == cursor) else {
                let detail = "the cursor does not belong to this list; begin again without it";
                return Err(Problem::new(StatusCode::CONFLICT, "unknown_cursor", detail));
            };
            items.drain(..=position);
        }
        items.truncate(limit.saturating_add(1));
        Ok(Self::of(items, limit, query, id))
    }

    pub(super) fn map<U>(self, change: impl FnMut(T) -> U) -> Page<U> {
        Page {
            items: self.items.into_iter().map(change).collect(),
            next: self.next,
            query: self.query,
        }
    }
}

impl<T: Serialize> IntoResponse for Page<T> {
    fn into_response(self) -> Response {
        let mut response = Json(self.items).into_response();
        let link = self.next.and_then(|next| link_of(self.query.as_deref(), &next));
        if let Some(link) = link {
            response.headers_mut().insert(header::LINK, link);
        }
        response
    }
}

/// Returns the link with the same query and another cursor. Cursors are ids, which need no
/// escaping.
fn link_of(query: Option<&str>, cursor: &str) -> Option<HeaderValue> {
    let kept = query
        .unwrap_or_default()
        .split('&')
        .filter(|part| !part.is_empty() && !part.starts_with("cursor="));
    let query: Vec<&str> = kept.collect();
    let query = if query.is_empty() { String::new() } else { format!("{}&", query.join("&")) };
    HeaderValue::from_str(&format!("<?{query}cursor={cursor}>; rel=\"next\"")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(limit: Option<usize>, cursor: Option<&str>) -> Page<char> {
        let query = RawQuery(Some("cursor=b&status=todo".to_owned()));
        Page::cut("abcde".chars().collect(), limit, cursor, query, char::to_string)
            .unwrap_or_else(|_| panic!("a page"))
    }

    fn check(limit: Option<usize>, cursor: Option<&str>, items: &str, next: Option<&str>) {
        let page = page(limit, cursor);
        assert_eq!(
            (page.items.iter().collect::<String>().as_str(), page.next.as_deref()),
            (items, next)
        );
    }

    #[test]
    fn lists_are_whole_unless_a_part_is_asked_for() {
        check(None, None, "abcde", None);
        check(Some(2), None, "ab", Some("b"));
        check(Some(2), Some("b"), "cd", Some("d"));
        check(Some(2), Some("d"), "e", None);
        check(None, Some("e"), "", None);
        check(Some(5), None, "abcde", None);
    }

    #[test]
    fn the_next_part_is_where_the_link_says() {
        let response = page(Some(1), Some("b")).into_response();
        assert_eq!(response.headers()[header::LINK], "<?status=todo&cursor=c>; rel=\"next\"");
        assert!(page(None, None).into_response().headers().get(header::LINK).is_none());
    }
}
