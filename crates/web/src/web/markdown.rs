//! Markdown of people and agents as HTML. The texts are not trusted: HTML in them is shown as text,
//! pictures become links, and links lead to web pages, mail addresses and tasks only.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

use linkify::{LinkFinder, LinkKind};
use pulldown_cmark::{
    CowStr, Event, HeadingLevel, LinkType, Options, Parser, Tag, TagEnd, TextMergeStream, html,
};

use domain::{ProjectKey, ShortId};

/// The longest text that is read as Markdown, in bytes. A longer one is shown as it is: a browser
/// would be busy with it for too long.
const MAX_LENGTH: usize = 64 * 1024;

/// A text in HTML.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Markdown(String);

impl fmt::Display for Markdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Safe, because [`Markdown::of`] makes every tag itself.
impl askama::filters::HtmlSafe for Markdown {}

impl Markdown {
    /// Returns a text in HTML. Web addresses in it are links, and so are short ids of tasks whose
    /// project has one of these keys.
    pub(super) fn of(text: &str, keys: &BTreeSet<ProjectKey>) -> Self {
        let options =
            Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
        let is_long = text.len() > MAX_LENGTH;
        let parser = Parser::new_ext(if is_long { "" } else { text }, options);
        // The definition of a link shows nothing, and may be all that was written.
        let hides_lines = parser.reference_definitions().iter().next().is_some();
        if is_long || hides_lines {
            let mut html = "<p class=\"keep-lines\">".to_owned();
            html::push_html(&mut html, std::iter::once(Event::Text(text.into())));
            return Self(html + "</p>");
        }
        let mut html = String::with_capacity(text.len() * 2);
        // For each open link, whether it is shown.
        let mut links = Vec::new();
        let events = parser.filter_map(|event| harmless(event, &mut links));
        let mut is_linked = true;
        let events = TextMergeStream::new(events).flat_map(|event| {
            match &event {
                Event::Start(Tag::Link { .. } | Tag::CodeBlock(_)) => is_linked = false,
                Event::End(TagEnd::Link | TagEnd::CodeBlock) => is_linked = true,
                _ => {}
            }
            match event {
                Event::Text(text) if is_linked => with_links(&text, keys),
                event => vec![event],
            }
        });
        html::push_html(&mut html, events);
        html.truncate(html.trim_end().len());
        // Each `<` of a text is escaped, so these are the tags of links.
        Self(html.replace("<a href=\"", "<a rel=\"noopener noreferrer nofollow\" href=\""))
    }
}

/// Returns the event in a form whose HTML does nothing; `None` if it is left out.
fn harmless<'a>(event: Event<'a>, links: &mut Vec<bool>) -> Option<Event<'a>> {
    Some(match event {
        Event::Html(text) | Event::InlineHtml(text) => Event::Text(text),
        Event::Start(Tag::HtmlBlock) => Event::Start(Tag::Paragraph),
        Event::End(TagEnd::HtmlBlock) => Event::End(TagEnd::Paragraph),
        Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
            // A picture may be in a link, and a link in no other one.
            links.push(is_safe(&dest_url) && !links.contains(&true));
            let link_type = LinkType::Inline;
            let link = Tag::Link { link_type, dest_url, title: "".into(), id: "".into() };
            return (links.last() == Some(&true)).then_some(Event::Start(link));
        }
        Event::End(TagEnd::Link | TagEnd::Image) => {
            return (links.pop() == Some(true)).then_some(Event::End(TagEnd::Link));
        }
        // The page has headings of two levels around the text.
        Event::Start(Tag::Heading { level, .. }) => Event::Start(Tag::Heading {
            level: lower(level),
            id: None,
            classes: Vec::new(),
            attrs: Vec::new(),
        }),
        Event::End(TagEnd::Heading(level)) => Event::End(TagEnd::Heading(lower(level))),
        // People break lines where they want a new line.
        Event::SoftBreak => Event::HardBreak,
        Event::TaskListMarker(true) => Event::Text("☑ ".into()),
        Event::TaskListMarker(false) => Event::Text("☐ ".into()),
        other => other,
    })
}

/// Returns a text as events, with links to the web addresses and to the tasks that it names.
fn with_links(text: &str, keys: &BTreeSet<ProjectKey>) -> Vec<Event<'static>> {
    let mut finder = LinkFinder::new();
    finder.kinds(&[LinkKind::Url]).url_can_be_iri(false);
    let mut events = Vec::new();
    // An address is in ASCII. Texts in Japanese go on behind it without a space.
    for run in text.split_inclusive(|c: char| !c.is_ascii()) {
        for span in finder.spans(run) {
            match span.kind() {
                Some(_) if is_safe(span.as_str()) => {
                    events.extend(link(span.as_str(), span.as_str()));
                }
                _ => push_with_tasks(span.as_str(), keys, &mut events),
            }
        }
    }
    events
}

fn push_with_tasks(text: &str, keys: &BTreeSet<ProjectKey>, events: &mut Vec<Event<'static>>) {
    let mut done = 0;
    for Range { start, end } in words(text) {
        let word = &text[start..end];
        // A short id is written in upper case, so that other words rarely are one.
        let id = word.parse().ok().filter(|id: &ShortId| id.to_string() == word);
        if id.is_some_and(|id| keys.contains(&id.key)) {
            events.push(Event::Text(text[done..start].to_owned().into()));
            events.extend(link(&format!("/ui/tasks/{word}"), word));
            done = end;
        }
    }
    events.push(Event::Text(text[done..].to_owned().into()));
}

/// Returns the places of the words of a text, which contain ASCII letters, digits, `-` and `_`.
fn words(text: &str) -> impl Iterator<Item = Range<usize>> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let words = text.split(move |c: char| !is_part(c)).filter(|word| !word.is_empty());
    words.map(move |word| {
        let start = word.as_ptr().addr() - text.as_ptr().addr();
        start..start + word.len()
    })
}

fn link(url: &str, text: &str) -> [Event<'static>; 3] {
    let dest_url = CowStr::from(url.to_owned());
    let link_type = LinkType::Inline;
    let link = Tag::Link { link_type, dest_url, title: "".into(), id: "".into() };
    [Event::Start(link), Event::Text(text.to_owned().into()), Event::End(TagEnd::Link)]
}

/// Returns whether a link may be followed. One that is relative would lead to this daemon.
fn is_safe(url: &str) -> bool {
    let url = url.to_ascii_lowercase();
    ["http://", "https://", "mailto:"].iter().any(|start| url.starts_with(start))
}

const fn lower(level: HeadingLevel) -> HeadingLevel {
    match level {
        HeadingLevel::H1 => HeadingLevel::H3,
        HeadingLevel::H2 => HeadingLevel::H4,
        HeadingLevel::H3 => HeadingLevel::H5,
        _ => HeadingLevel::H6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, html: &str) {
        let html = html.replace("<a href", "<a rel=\"noopener noreferrer nofollow\" href");
        assert_eq!(
            Markdown::of(text, &BTreeSet::from(["SHOP".parse().unwrap()])).to_string(),
            html
        );
    }

    #[test]
    fn texts_have_their_form() {
        check("a *b* `c`\nd", "<p>a <em>b</em> <code>c</code><br />\nd</p>");
        check("# Title", "<h3>Title</h3>");
        check("- [x] one\n- [ ] two", "<ul>\n<li>☑ one</li>\n<li>☐ two</li>\n</ul>");
        check(
            "```rust\nfn a() {}\n```",
            "<pre><code class=\"language-rust\">fn a() {}\n</code></pre>",
        );
        check("[a](https://example.org)", "<p><a href=\"https://example.org\">a</a></p>");
    }

    #[test]
    fn addresses_and_tasks_are_links() {
        check(
            "See https://example.org/a_b?c=1&d=(2), too.",
            "<p>See <a href=\"https://example.org/a_b?c=1&amp;d=(2)\">https://example.org/a_b?c=1&amp;d=(2)</a>, too.</p>",
        );
        check(
            "**SHOP-12**, SHOP-7: UTF-8, SHOP-0, xSHOP-1, shop-1 `SHOP-2`",
            "<p><strong><a href=\"/ui/tasks/SHOP-12\">SHOP-12</a></strong>, <a href=\"/ui/tasks/SHOP-7\">SHOP-7</a>: \
             UTF-8, SHOP-0, xSHOP-1, shop-1 <code>SHOP-2</code></p>",
        );
        check("[SHOP-1](https://example.org)", "<p><a href=\"https://example.org\">SHOP-1</a></p>");
        check(
            "SHOP-12を確認し、https://example.org/aを参照",
            "<p><a href=\"/ui/tasks/SHOP-12\">SHOP-12</a>を確認し、<a href=\"https://example.org/a\">https://example.org/a</a>を参照</p>",
        );
        check("```\nSHOP-1\n```", "<pre><code>SHOP-1\n</code></pre>");
        check("file:///etc/passwd javascript:x", "<p>file:///etc/passwd javascript:x</p>");
        check(
            "<a href=\"x\">",
            "<p>&lt;a href=&quot;x&quot;&gt;</p>".replace("&quot;", "\"").as_str(),
        );
    }

    #[test]
    fn what_is_dangerous_is_text() {
        check("<script>alert(1)</script>", "<p>&lt;script&gt;alert(1)&lt;/script&gt;</p>");
        check("a <b onclick=x>b</b>", "<p>a &lt;b onclick=x&gt;b&lt;/b&gt;</p>");
        check("[a](javascript:alert(1))", "<p>a</p>");
        check("[a](JAVASCRIPT:alert(1)) [b](/ui/do/stop)", "<p>a b</p>");
        check("[a](data:text/html,x) <vbscript:x>", "<p>a vbscript:x</p>");
        check(
            "![a](https://example.org/a.png \"t\")",
            "<p><a href=\"https://example.org/a.png\">a</a></p>",
        );
        check("[TODO]: later", "<p class=\"keep-lines\">[TODO]: later</p>");
        check("[a](http:/ui)", "<p>a</p>");
        check(
            "[![a](http://x/x.png)](https://example.org)",
            "<p><a href=\"https://example.org\">a</a></p>",
        );
        check("[![a](x.png)](https://example.org)", "<p><a href=\"https://example.org\">a</a></p>");
        check(
            "``` \"><script>\nx\n```",
            "<pre><code class=\"language-&quot;&gt;&lt;script&gt;\">x\n</code></pre>",
        );
    }

    #[test]
    fn long_and_hostile_texts_are_shown() {
        let long = "*".repeat(1 << 20);
        assert!(Markdown::of(&long, &BTreeSet::new()).to_string().contains(&long));
        for text in ["*".repeat(MAX_LENGTH), "[".repeat(MAX_LENGTH), "> ".repeat(MAX_LENGTH / 2)] {
            assert!(!Markdown::of(&text, &BTreeSet::new()).to_string().contains("<script"));
        }
        let long = "<".repeat(MAX_LENGTH + 1);
        assert!(Markdown::of(&long, &BTreeSet::new()).to_string().contains("&lt;&lt;"));
    }
}
