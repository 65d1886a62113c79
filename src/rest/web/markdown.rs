//! Markdown of people and agents as HTML. The texts are not trusted: HTML in them is shown as text,
//! pictures become links, and links lead to web pages and mail addresses only.

use std::fmt;

use pulldown_cmark::{Event, HeadingLevel, LinkType, Options, Parser, Tag, TagEnd, html};

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
    pub(super) fn of(text: &str) -> Self {
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
        html::push_html(&mut html, events);
        html.truncate(html.trim_end().len());
        Self(html)
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
        assert_eq!(Markdown::of(text).to_string(), html);
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
        assert!(Markdown::of(&long).to_string().contains(&long));
        for text in ["*".repeat(MAX_LENGTH), "[".repeat(MAX_LENGTH), "> ".repeat(MAX_LENGTH / 2)] {
            assert!(!Markdown::of(&text).to_string().contains("<script"));
        }
        assert!(Markdown::of(&"<".repeat(MAX_LENGTH + 1)).to_string().contains("&lt;&lt;"));
    }
}
