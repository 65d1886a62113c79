//! YAML text as a small tree in which every value knows its place.
//!
//! Reading into typed structures would stop at the first mistake. A tree lets the sections look at
//! every value and report all mistakes. Limits keep hostile files (deep nesting, alias bombs) from
//! costing time, memory or stack. This module knows no key.

use std::fmt;
use std::ops::Range;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::options::{DuplicateKeyPolicy, NonFiniteFloatPolicy};
use serde_saphyr::{Location, Spanned};

use super::source::Source;

/// The deepest nesting of lists and mappings. The known keys need five levels.
const MAX_DEPTH: usize = 24;
const MAX_NODES: usize = 100_000;
/// The number of parser events that aliases may repeat in all. A configuration never needs more.
const MAX_REPEATED: usize = 10_000;

/// A place in the source, as a range of bytes.
pub(super) type Span = Range<usize>;

/// A value and its place.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub value: Value,
    pub span: Span,
}

#[derive(Debug, Clone)]
pub(super) enum Value {
    /// An empty value, `null` or `~`.
    Nothing,
    /// A text as written, without quotes and escapes: `007` stays `007`.
    Text(String),
    List(Vec<Node>),
    /// The entries in the order of the file. A key may occur more than once.
    Mapping(Vec<Entry>),
}

#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub key: String,
    pub key_span: Span,
    pub value: Node,
}

/// The reason why a text is not YAML that this module reads, with the place if there is one.
#[derive(Debug)]
pub(super) struct NotYaml {
    pub message: String,
    pub span: Option<Span>,
    pub help: Option<String>,
}

/// Reads the one document of `source`. A file without a document is [`Value::Nothing`].
pub(super) fn parse(source: &Source) -> Result<Node, NotYaml> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            flow_nesting_limit: MAX_DEPTH,
            max_nodes: MAX_NODES,
            max_aliases: 1_000,
            max_anchors: 1_000,
            max_documents: 2,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: MAX_REPEATED },
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
        with_snippet: false,
    };
    let raw: Spanned<Raw> = serde_saphyr::from_str_with_options(source.text(), options)
        .map_err(|error| not_yaml(&error, source))?;
    build(raw, source)
}

fn not_yaml(error: &serde_saphyr::Error, source: &Source) -> NotYaml {
    let span = error.location().map(|location| span_of(location, source));
    let text = error.to_string();
    // The report names the place in the same form for all problems.
    let text = text.split(" at line ").next().unwrap_or(&text);
    let (message, help) = if matches!(error, serde_saphyr::Error::MultipleDocuments { .. }) {
        ("expected one YAML document, found a second".to_owned(), None)
    } else if ["budget breached", "alias replay", "recursion limit"]
        .iter()
        .any(|limit| text.starts_with(limit))
    {
        let limits = format!(
            "at most {MAX_DEPTH} levels, {MAX_NODES} values, {MAX_REPEATED} repeated by aliases"
        );
        (format!("nested too deeply or too large: {text}"), Some(limits))
    } else {
        let line = span.as_ref().and_then(|span| source.text()[..span.start].lines().last());
        let is_bare_reference =
            text.contains("flow") && line.is_some_and(|line| line.contains('$'));
        let help = is_bare_reference
            .then(|| "between `{` and `}` a `${…}` must stand in quotes".to_owned());
        (format!("not valid YAML: {text}"), help)
    };
    NotYaml { message, span, help }
}

/// A value as serde returns it. Plain numbers and booleans come without their spelling, which is
/// still in the source.
enum Raw {
    Nothing,
    /// A plain scalar that does not look like a text.
    Plain,
    Text(String),
    List(Vec<Spanned<Raw>>),
    Mapping(Vec<(Spanned<Raw>, Spanned<Raw>)>),
}

fn build(raw: Spanned<Raw>, source: &Source) -> Result<Node, NotYaml> {
    let span = span_of(raw.defined, source);
    let value = match raw.value {
        Raw::Nothing => Value::Nothing,
        Raw::Plain => Value::Text(source.text()[span.clone()].trim().to_owned()),
        Raw::Text(text) => Value::Text(text),
        Raw::List(items) => Value::List(
            items.into_iter().map(|item| build(item, source)).collect::<Result<_, NotYaml>>()?,
        ),
        Raw::Mapping(entries) => Value::Mapping(
            entries
                .into_iter()
                .map(|(key, value)| {
                    let key = build(key, source)?;
                    let Value::Text(text) = key.value else {
                        return Err(NotYaml {
                            message: "expected a text as key".to_owned(),
                            span: Some(key.span),
                            help: None,
                        });
                    };
                    Ok(Entry { key: text, key_span: key.span, value: build(value, source)? })
                })
                .collect::<Result<_, NotYaml>>()?,
        ),
    };
    Ok(Node { value, span })
}

/// Returns the bytes of `location`. They are within the text, even if the parser is wrong.
fn span_of(location: Location, source: &Source) -> Span {
    let span = location.span();
    let text = source.text();
    let known = span.byte_offset().map(|start| {
        let start = usize::try_from(start).unwrap_or(usize::MAX);
        start
            ..start
                .saturating_add(span.byte_len().and_then(|n| usize::try_from(n).ok()).unwrap_or(0))
    });
    let known = known.unwrap_or_else(|| {
        let line = usize::try_from(location.line()).unwrap_or(1);
        let column = usize::try_from(location.column()).unwrap_or(1);
        let at = source.offset_of(line, column);
        at..at
    });
    text.floor_char_boundary(known.start)..text.ceil_char_boundary(known.end.max(known.start))
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Raw, E> {
        Ok(Raw::Plain)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Raw, E> {
        Ok(Raw::Plain)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Raw, E> {
        Ok(Raw::Plain)
    }

    fn visit_i128<E>(self, _: i128) -> Result<Raw, E> {
        Ok(Raw::Plain)
    }

    fn visit_u128<E>(self, _: u128) -> Result<Raw, E> {
        Ok(Raw::Plain)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Raw, E> {
        Ok(Raw::Plain)
    }

    fn visit_str<E>(self, text: &str) -> Result<Raw, E> {
        Ok(Raw::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Raw, E> {
        Ok(Raw::Text(text))
    }

    fn visit_unit<E>(self) -> Result<Raw, E> {
        Ok(Raw::Nothing)
    }

    fn visit_none<E>(self) -> Result<Raw, E> {
        Ok(Raw::Nothing)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Raw, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Raw::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Raw, A::Error> {
        let mut mapping = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            mapping.push(entry);
        }
        Ok(Raw::Mapping(mapping))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the tree in a compact form, each text with the part of the source at its place.
    fn show(node: &Node, source: &Source) -> String {
        let covered = |span: &Span| source.text()[span.clone()].trim_end().to_owned();
        match &node.value {
            Value::Nothing => "-".to_owned(),
            Value::Text(text) => format!("{text}<{}>", covered(&node.span)),
            Value::List(items) => {
                format!(
                    "[{}]",
                    items.iter().map(|item| show(item, source)).collect::<Vec<_>>().join(" ")
                )
            }
            Value::Mapping(entries) => {
                let entry = |e: &Entry| {
                    format!("{}<{}>={}", e.key, covered(&e.key_span), show(&e.value, source))
                };
                format!("{{{}}}", entries.iter().map(entry).collect::<Vec<_>>().join(" "))
            }
        }
    }

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let source = Source::new("file", "/", text);
        let shown = match parse(&source) {
            Ok(node) => show(&node, &source),
            Err(error) => {
                let line = error.span.map_or(0, |span| source.line_of(span.start));
                format!("{line}: {}", error.message)
            }
        };
        assert_eq!(shown, expected, "{text}");
    }

    #[test]
    fn texts_are_as_written() {
        check("a: 007 # c", "{a<a>=007<007>}");
        check("a: 1_000\nb: yes\nc: 1e999", "{a<a>=1_000<1_000> b<b>=yes<yes> c<c>=1e999<1e999>}");
        check("\"a\": 'it''s'", "{a<\"a\">=it's<'it''s'>}");
        check("日本: 語", "{日本<日本>=語<語>}");
        check("a: |\n  x\n  y\n", "{a<a>=x\ny\n<x\n  y>}");
        check("1: [1, true]", "{1<1>=[1<1> true<true>]}");
        check("a: ${X}\nb: ~/x y", "{a<a>=${X}<${X}> b<b>=~/x y<~/x y>}");
    }

    #[test]
    fn nothing_is_found_in_several_forms() {
        check("", "-");
        check("# only a comment\n", "-");
        check("a:\nb: ~\nc: null", "{a<a>=- b<b>=- c<c>=-}");
    }

    #[test]
    fn windows_files_are_files() {
        check("\u{feff}a: 1\r\nb: 2\r\n", "{a<a>=1<1> b<b>=2<2>}");
    }

    #[test]
    fn duplicates_and_aliases_arrive() {
        check("a: 1\na: 2", "{a<a>=1<1> a<a>=2<2>}");
        check(
            "a: &x {b: 1}\nc: *x\nd: {<<: *x}",
            "{a<a>={b<b>=1<1>} c<c>={b<b>=1<1>} d<d>={b<b>=1<1>}}",
        );
    }

    #[test]
    fn what_is_no_yaml_is_refused_with_its_place() {
        check(
            "a: 1\nb: c: d\n",
            "2: not valid YAML: mapping values are not allowed in this context",
        );
        check("a: 1\nb: *nope\n", "2: not valid YAML: alias references unknown anchor");
        check("---\na: 1\n---\nb: 2\n", "4: expected one YAML document, found a second");
        check("? [a]\n: b\n", "1: expected a text as key");
    }

    #[test]
    fn bombs_are_refused_quickly() {
        let row = |name: char, of: char| {
            format!("{name}: &{name} [{}]\n", vec![format!("*{of}"); 10].join(","))
        };
        let aliases = format!("a: &a [{}]\n", ["x"; 10].join(","))
            + &row('b', 'a')
            + &row('c', 'b')
            + &row('d', 'c')
            + &row('e', 'd');
        let blocks: String = (0..200).map(|i| " ".repeat(i) + "a:\n").collect();
        for text in
            ["[".repeat(500_000), "{a: ".repeat(200_000), "- ".repeat(300_000), blocks, aliases]
        {
            let error = parse(&Source::new("file", "/", &text)).expect_err("too much of it");
            assert!(error.message.len() < 300, "{}", error.message);
        }
    }
}
