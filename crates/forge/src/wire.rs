//! HTTP requests to the API of one host, with its address, token, time limits and repeats.
//!
//! Reads are repeated if an answer was lost. Writes are not, because the forge may have carried
//! them out. Redirects are not followed, but reported. This module knows no endpoint. `client`,
//! `github` and `gitlab` call it.

mod answer;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue, IF_NONE_MATCH};
use reqwest::{Method, RequestBuilder, StatusCode, Url};
use serde::de::DeserializeOwned;
use serde_json::Value;

use self::answer::{is_over_itself, link, linked_page};
use super::gate::Gate;
use super::{Answer, Conditional, ForgeError};
use client::http::http_client;
use domain::Secret;
use domain::forge::pacing::Urgency;
use domain::printable::{excerpt, one_line};

/// The time limit for a question together with its repeats.
const TIMEOUT: Duration = Duration::from_secs(20);
/// The pauses before each repeat of a read.
const PAUSES: [Duration; 2] = [Duration::from_millis(200), Duration::from_millis(800)];
/// The longest body that is read, in bytes.
const MAX_BODY: usize = 16 * 1024 * 1024;

/// The API of a host, with a token for it. Clones share connections and the gate.
#[derive(Clone)]
pub struct Host {
    http: reqwest::Client,
    /// The base URL, without a slash at its end.
    base: String,
    /// The base URL without its scheme, and without the part that is the same at each host of this
    /// forge.
    name: String,
    token: Secret,
    dialect: &'static Dialect,
    /// The time limit for a question together with its repeats.
    timeout: Duration,
    /// The gate that each request passes.
    gate: Arc<Gate>,
    /// The urgency of its writes.
    urgency: Urgency,
}

/// The differences between forges in every request.
pub(super) struct Dialect {
    /// The header of the token, and the text before the token.
    pub token: (&'static str, &'static str),
    pub headers: &'static [(&'static str, &'static str)],
    /// The end of each base URL. It may be left out in the configuration.
    pub suffix: &'static str,
}

/// The reason why a host cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    #[error(
        "`{url}` is not the base URL of an API: expected something like `https://code.example/path`: {problem}"
    )]
    BaseUrl { url: String, problem: &'static str },
    #[error("the token for {host} is empty or has characters that can't be sent")]
    Token { host: String },
    #[error("could not create an HTTP client for {host}")]
    Client {
        host: String,
        #[source]
        source: reqwest::Error,
    },
}

/// An answer below 300, or 304.
pub(super) struct Response {
    request: String,
    pub status: StatusCode,
    pub headers: HeaderMap,
    body: Vec<u8>,
}

/// The path of a request, below the base URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ApiPath(String);

impl ApiPath {
    /// Returns the path of `segments`. Each of these plain texts becomes one segment.
    ///
    /// # Errors
    /// [`ForgeError::Refused`] for a text that cannot be a segment: `labels/..` would name all
    /// labels.
    pub fn new(segments: &[&str]) -> Answer<Self> {
        Self(String::new()).join(segments)
    }

    /// Returns the path with more segments, as in [`ApiPath::new`].
    pub fn join(mut self, segments: &[&str]) -> Answer<Self> {
        for segment in segments {
            if matches!(*segment, "" | "." | "..") {
                let message = format!("`{segment}` can't stand in the path of a request");
                return Err(ForgeError::Refused {
                    status: StatusCode::BAD_REQUEST.as_u16(),
                    message,
                });
            }
            self.0.push('/');
            self.0 += &encoded(segment);
        }
        Ok(self)
    }
}

/// One question.
#[derive(Clone)]
pub(super) struct Ask<'a> {
    method: Method,
    path: ApiPath,
    query: Vec<(&'a str, String)>,
    body: Option<Value>,
    etag: Option<&'a str>,
}

impl<'a> Ask<'a> {
    pub fn new(method: Method, path: ApiPath) -> Self {
        Self { method, path, query: Vec::new(), body: None, etag: None }
    }

    pub fn get(path: ApiPath) -> Self {
        Self::new(Method::GET, path)
    }

    pub fn query(mut self, name: &'a str, value: impl Into<String>) -> Self {
        self.query.push((name, value.into()));
        self
    }

    /// Asks for a page of a list, from 1.
    pub fn page(self, page: u32) -> Self {
        self.query("per_page", PER_PAGE.to_string()).query("page", page.to_string())
    }

    pub fn body(mut self, body: Value) -> Self {
        self.body = Some(body);
        self
    }

    pub fn etag(mut self, etag: Option<&'a str>) -> Self {
        self.etag = etag;
        self
    }
}

/// The greatest page size of both forges.
const PER_PAGE: u32 = 100;
/// The number of pages that are read of lists that are usually short: of comments, of labels.
const MAX_PAGES: u32 = 30;
const _: () = assert!((MAX_PAGES * PER_PAGE) as usize == super::MAX_COMMENTS);

/// The part that is read of a list with more than [`MAX_PAGES`] pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    First,
    Last,
}

impl Host {
    pub(super) fn new(
        base_url: &str,
        token: Secret,
        dialect: &'static Dialect,
        gate: Arc<Gate>,
    ) -> Result<Self, HostError> {
        let wrong =
            |problem| HostError::BaseUrl { url: excerpt(base_url, 200).into_owned(), problem };
        let url = Url::parse(base_url.trim()).map_err(|_| wrong("it is not a URL"))?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(wrong("it must begin with `https://` or `http://`"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            // The URL is not quoted, because it contains a password.
            let url = url.host_str().unwrap_or_default().to_owned();
            return Err(HostError::BaseUrl {
                url,
                problem: "a user or password has no place in it",
            });
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(wrong("it can't have a `?` or `#`"));
        }
        let root = url.as_str().trim_end_matches('/');
        let root = root.strip_suffix(dialect.suffix).unwrap_or(root).trim_end_matches('/');
        let name = root.split_once("://").map_or(root, |(_, rest)| rest).to_owned();
        let http =
            http_client().map_err(|source| HostError::Client { host: name.clone(), source })?;
        let base = format!("{root}{}", dialect.suffix);
        let timeout = TIMEOUT;
        let urgency = Urgency::Work;
        let host = Self { http, base, name, token, dialect, timeout, gate, urgency };
        match host.credentials() {
            Some(_) if !host.token.reveal().is_empty() => Ok(host),
            _ => Err(HostError::Token { host: host.name }),
        }
    }

    /// Returns the base URL without its scheme: `api.github.com`, `code.example/gitlab`.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) const fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    pub(super) const fn set_urgency(&mut self, urgency: Urgency) {
        self.urgency = urgency;
    }

    fn credentials(&self) -> Option<HeaderValue> {
        let mut value =
            HeaderValue::try_from(format!("{}{}", self.dialect.token.1, self.token.reveal()))
                .ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// Sends a question; a read up to three times. Each request passes the gate right before it is
    /// sent.
    ///
    /// # Errors
    /// [`ForgeError`] for each answer of 300 and above except 304, and for a request that the gate
    /// withholds.
    pub(super) async fn send(&self, ask: Ask<'_>) -> Answer<Response> {
        let request = format!("{} {}", ask.method, excerpt(&ask.path.0, 200));
        let is_read = ask.method == Method::GET;
        if !is_read {
            self.gate.write(self.urgency).await?;
        }
        let answered = tokio::time::timeout(self.timeout, async {
            let pauses: &[Duration] = if is_read { &PAUSES } else { &[] };
            let mut pauses = pauses.iter();
            loop {
                if is_read {
                    self.gate.read()?;
                }
                let answer = self.send_once(&ask, &request).await;
                if let Err(ForgeError::Limited { wait, .. }) = &answer {
                    self.gate.limit(*wait);
                }
                match (answer, pauses.next()) {
                    (Err(ForgeError::Unavailable { message }), Some(pause)) => {
                        tracing::debug!(
                            route = request,
                            host = self.name,
                            reason = message,
                            "no answer; asking again"
                        );
                        tokio::time::sleep(*pause).await;
                    }
                    (answer, _) => return answer,
                }
            }
        });
        answered.await.unwrap_or_else(|_| {
            let wait = humantime::format_duration(self.timeout);
            Err(ForgeError::Unavailable {
                message: format!("no answer to {request} within {wait}"),
            })
        })
    }

    /// Sends a request about an object. Returns `None` if the object is missing.
    pub(super) async fn find(&self, ask: Ask<'_>) -> Answer<Option<Response>> {
        match self.send(ask).await {
            Err(ForgeError::NotFound { .. }) => Ok(None),
            answer => answer.map(Some),
        }
    }

    /// Returns the elements of a list that is usually short: all, or those of a part of its pages.
    pub(super) async fn elements<T: DeserializeOwned>(
        &self,
        list: &Ask<'_>,
        part: Part,
    ) -> Answer<Vec<T>> {
        let mut answer = self.send(list.clone().page(1)).await?;
        let last = match part {
            Part::First => 0,
            Part::Last => linked_page(&answer.headers, "last").unwrap_or(1),
        };
        let mut page = last.saturating_sub(MAX_PAGES) + 1;
        if page > 1 {
            answer = self.send(list.clone().page(page)).await?;
        }
        let mut elements = Vec::new();
        loop {
            elements.extend(answer.json::<Vec<T>>()?);
            // The list may have got longer. It is not followed without end.
            if !answer.has_more() || page >= last.saturating_add(MAX_PAGES) {
                return Ok(elements);
            }
            page += 1;
            answer = self.send(list.clone().page(page)).await?;
        }
    }

    async fn send_once(&self, ask: &Ask<'_>, request: &str) -> Answer<Response> {
        let lost =
            |error: &reqwest::Error| ForgeError::Unavailable { message: self.told(request, error) };
        let mut answer = self.request(ask).send().await.map_err(|error| lost(&error))?;
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(|error| lost(&error))? {
            if body.len() + chunk.len() > MAX_BODY {
                let problem = format!("it is longer than {} MiB", MAX_BODY >> 20);
                return Err(ForgeError::NotUnderstood { request: request.to_owned(), problem });
            }
            body.extend_from_slice(&chunk);
        }
        let status = answer.status();
        let headers = std::mem::take(answer.headers_mut());
        let response = Response { request: request.to_owned(), status, headers, body };
        match status {
            _ if status.is_success() => Ok(response),
            StatusCode::NOT_MODIFIED if ask.etag.is_some() => Ok(response),
            _ => Err(self.refusal(&response)),
        }
    }

    fn request(&self, ask: &Ask<'_>) -> RequestBuilder {
        let mut url = format!("{}{}", self.base, ask.path.0);
        for (n, (name, value)) in ask.query.iter().enumerate() {
            url.push(if n == 0 { '?' } else { '&' });
            url.extend([encoded(name), "=".to_owned(), encoded(value)]);
        }
        let mut request = self.http.request(ask.method.clone(), url);
        for (name, value) in self.dialect.headers {
            request = request.header(*name, *value);
        }
        if let Some(value) = self.credentials() {
            request = request.header(self.dialect.token.0, value);
        }
        if let Some(etag) = ask.etag {
            request = request.header(IF_NONE_MATCH, etag);
        }
        match &ask.body {
            Some(body) => request.header(CONTENT_TYPE, "application/json").body(body.to_string()),
            None => request,
        }
    }

    /// Returns the error in an answer, in a form that may be shown: short, printable, and without
    /// the token.
    fn refusal(&self, response: &Response) -> ForgeError {
        let said = String::from_utf8_lossy(&response.body[..response.body.len().min(64 * 1024)]);
        answer::refusal(
            &response.request,
            response.status,
            &response.headers,
            &said.replace(self.token.reveal(), "(token)"),
        )
    }

    /// Returns an error of the connection without its URL (the request has it), with the innermost
    /// cause: refused, unknown host.
    fn told(&self, request: &str, error: &reqwest::Error) -> String {
        let mut cause: &dyn std::error::Error = error;
        while let Some(source) = cause.source() {
            cause = source;
        }
        let what = if error.is_connect() { "no connection" } else { "the answer was lost" };
        one_line(&format!("{request} at {}: {what}: {cause}", self.name), 300)
    }

    /// Returns the new place if the item at `path`, and not the whole host, has moved.
    pub(super) fn place_of_moved(&self, error: &ForgeError, path: &ApiPath) -> Option<String> {
        let ForgeError::Moved { status: 301 | 308, to } = error else {
            return None;
        };
        is_over_itself(&format!("{}{}", self.base, path.0), to).then(|| to.clone())
    }

    /// Returns the number in a redirect to `/collection/7` of this host, as both forges answer for
    /// a renamed repository.
    pub(super) fn number_of_moved(&self, error: &ForgeError, collection: &str) -> Option<u64> {
        let ForgeError::Moved { to, .. } = error else {
            return None;
        };
        answer::linked_number(&self.base, to, collection)
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("base", &self.base).finish_non_exhaustive()
    }
}

impl Response {
    /// Parses the body.
    ///
    /// # Errors
    /// [`ForgeError::NotUnderstood`], which names the place, without its contents.
    pub fn json<T: DeserializeOwned>(&self) -> Answer<T> {
        let mut json = serde_json::Deserializer::from_slice(&self.body);
        let read = serde_path_to_error::deserialize(&mut json);
        read.map_err(|error| self.not_understood(answer::problem(&error)))
    }

    pub fn not_understood(&self, problem: impl Into<String>) -> ForgeError {
        ForgeError::NotUnderstood { request: self.request.clone(), problem: problem.into() }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    pub fn etag(&self) -> Option<String> {
        self.header("etag").map(str::to_owned)
    }

    /// Returns whether there is a page after this one.
    pub fn has_more(&self) -> bool {
        // Only GitLab sends this header.
        match self.header("x-next-page") {
            Some(next) => !next.trim().is_empty(),
            None => link(&self.headers, "next").is_some(),
        }
    }

    /// Returns nothing for an unchanged answer, and otherwise the result of `read`.
    pub fn fresh<T>(&self, read: impl FnOnce(&Self) -> Answer<T>) -> Answer<Conditional<T>> {
        if self.status == StatusCode::NOT_MODIFIED {
            Ok(Conditional::NotModified)
        } else {
            read(self).map(Conditional::Fresh)
        }
    }

    /// Returns the valid elements of a list. The others are left out, and logged once; a caller
    /// that needs one asks for it alone. `take` returns the reason if an element is understood, but
    /// not usable.
    pub fn good_ones<R: DeserializeOwned, T>(
        &self,
        take: impl Fn(R) -> Result<T, &'static str>,
    ) -> Answer<Vec<T>> {
        let all: Vec<Value> = self.json()?;
        let mut good = Vec::with_capacity(all.len());
        let mut n_malformed = 0_usize;
        let mut first_problem = None;
        for value in all {
            match serde_path_to_error::deserialize(value).map(&take) {
                Ok(Ok(element)) => good.push(element),
                Ok(Err(reason)) => {
                    tracing::debug!(route = self.request, reason, "an item is left out");
                }
                Err(error) => {
                    n_malformed += 1;
                    first_problem.get_or_insert(answer::problem(&error));
                }
            }
        }
        if let Some(problem) = first_problem {
            tracing::warn!(
                route = self.request,
                n_malformed,
                problem,
                "a list has malformed items"
            );
        }
        Ok(good)
    }
}

/// Encodes a text as part of a path or query. Only unreserved characters stay as they are.
fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.extend(['%', hex(byte >> 4), hex(byte & 0xf)]);
        }
    }
    encoded
}

fn hex(digit: u8) -> char {
    char::from_digit(u32::from(digit), 16).expect("four bits are a digit").to_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::forge::pacing::Pace;
    use runtime::nudge::Nudge;

    static DIALECT: Dialect =
        Dialect { token: ("private-token", ""), headers: &[], suffix: "/api/v4" };

    fn host(base_url: &str, token: &str) -> Result<Host, HostError> {
        let gate = Gate::new(Pace::unlimited(), Nudge::new());
        Host::new(base_url, Secret::new(token), &DIALECT, Arc::new(gate))
    }

    #[track_caller]
    fn check_base(base_url: &str, expected: Option<(&str, &str)>) {
        let host = host(base_url, "t0ken");
        let got = host.as_ref().ok().map(|host| (host.base.as_str(), host.name()));
        assert_eq!(got, expected, "{base_url}");
    }

    #[test]
    fn a_base_url_is_taken_with_and_without_its_end() {
        check_base("https://code.example", Some(("https://code.example/api/v4", "code.example")));
        check_base(
            "https://code.example/api/v4/",
            Some(("https://code.example/api/v4", "code.example")),
        );
        check_base(
            "http://code.example:81/gitlab/",
            Some(("http://code.example:81/gitlab/api/v4", "code.example:81/gitlab")),
        );
        for wrong in [
            "code.example",
            "ftp://code.example",
            "https://ann:pw@code.example",
            "https://code.example?x",
            "",
        ] {
            check_base(wrong, None);
        }
    }

    #[test]
    fn neither_errors_nor_debug_have_secrets() {
        let error = host("https://ann:pa55word@code.example", "t0ken").expect_err("a password");
        assert!(!format!("{error} {error:?}").contains("pa55word"), "{error}");
        let error = host("https://code.example", "t0\nken").expect_err("a line end");
        assert!(
            !format!("{error} {error:?}").contains("ken\"") && error.to_string().contains("token"),
            "{error}"
        );
        let host = host("https://code.example", "t0ken").expect("a host");
        assert!(!format!("{host:?}").contains("t0ken"));
    }

    #[test]
    fn a_segment_stays_one_segment() {
        let path = |segments: &[&str]| ApiPath::new(segments).map(|path| path.0);
        assert_eq!(
            path(&["a/b", "ü %2F?#+ 🤖"]).as_deref(),
            Ok("/a%2Fb/%C3%BC%20%252F%3F%23%2B%20%F0%9F%A4%96")
        );
        for wrong in ["", ".", ".."] {
            assert!(matches!(path(&["labels", wrong]), Err(ForgeError::Refused { .. })), "{wrong}");
        }
    }
}
