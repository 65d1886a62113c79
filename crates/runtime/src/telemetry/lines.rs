//! The conversion of one event to one line, as JSON or for people.
//!
//! Field values may come from other programs, so both forms escape characters that a terminal would
//! act on. Tokens of the coordinator are cut to their prefixes. The JSON of `tracing-subscriber`
//! does neither, and it nests the fields of spans.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use domain::Timestamp;
use domain::printable::{self, is_unprintable};
use domain::redact::Redactor;

/// The form of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineForm {
    /// One object per line: timestamp, level, target, message, then all fields by name.
    Json,
    /// Text for people: time, level, message, `name=value`.
    Text,
    /// The form of `Text`, with colours.
    ColoredText,
}

/// Writes each event as one line, in one call of `write`, so that lines of several threads never
/// mix.
pub(super) struct Lines<W> {
    form: LineForm,
    redactor: Redactor,
    writer: W,
}

impl<W> Lines<W> {
    pub fn new(form: LineForm, writer: W) -> Self {
        Self { form, redactor: Redactor::default(), writer }
    }
}

/// Fields by name. A span keeps them for the events inside it.
#[derive(Debug, Clone, Default)]
struct Fields(BTreeMap<&'static str, Value>);

impl<S, W> Layer<S> for Lines<W>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'w> MakeWriter<'w> + 'static,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        for span in context
            .event_scope(event)
            .into_iter()
            .flat_map(tracing_subscriber::registry::Scope::from_root)
        {
            if let Some(of_span) = span.extensions().get::<Fields>() {
                fields.0.extend(of_span.0.iter().map(|(name, value)| (*name, value.clone())));
            }
        }
        event.record(&mut fields);
        let metadata = event.metadata();
        let line = match self.form {
            LineForm::Json => json_line(now(), *metadata.level(), metadata.target(), fields),
            LineForm::Text => text_line(now(), *metadata.level(), fields, Paint::None),
            LineForm::ColoredText => text_line(now(), *metadata.level(), fields, Paint::Ansi),
        };
        // A quoted error may contain a token. Passkeys are not known here.
        let line = self.redactor.redact(line.as_bytes());
        // If the log cannot be written, there is no better place for a report, and the work goes
        // on.
        let _ = self.writer.make_writer_for(metadata).write_all(&line);
    }
}

fn now() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
}

fn json_line(now: Timestamp, level: Level, target: &str, mut fields: Fields) -> String {
    let message = fields.0.remove("message").unwrap_or_else(|| Value::from(""));
    let level = level.as_str().to_ascii_lowercase();
    let head = [
        ("timestamp", Value::from(now.to_string())),
        ("level", Value::from(level)),
        ("target", Value::from(target)),
    ];
    let mut line = String::from("{");
    for (name, value) in
        head.iter().map(|(name, value)| (*name, value)).chain([("message", &message)])
    {
        push_member(&mut line, name, value);
    }
    for (name, value) in &fields.0 {
        // A field cannot replace a member that every line has.
        if !head.iter().any(|(reserved, _)| reserved == name) {
            push_member(&mut line, name, value);
        }
    }
    line.push_str("}\n");
    line
}

fn push_member(line: &mut String, name: &str, value: &Value) {
    if line.len() > 1 {
        line.push(',');
    }
    line.push_str(&printable::json(&format!("{}:{value}", Value::from(name))));
}

#[derive(Clone, Copy)]
enum Paint {
    None,
    Ansi,
}

impl Paint {
    fn over(self, text: &str, code: &str) -> String {
        match self {
            Self::None => text.to_owned(),
            Self::Ansi => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
        }
    }
}

fn text_line(now: Timestamp, level: Level, mut fields: Fields, paint: Paint) -> String {
    let color = match level {
        Level::ERROR => "31",
        Level::WARN => "33",
        Level::INFO => "32",
        Level::DEBUG => "34",
        Level::TRACE => "35",
    };
    let message = fields.0.remove("message").map(|message| plain(&message)).unwrap_or_default();
    let level = paint.over(&format!("{:>5}", level.as_str()), color);
    let mut line = format!("{} {level} {}", paint.over(&now.to_string(), "2"), escaped(&message));
    for (name, value) in &fields.0 {
        let value = escaped(&plain(value));
        let is_bare = !value.is_empty() && !value.contains([' ', '"', '=']);
        let value = if is_bare { value } else { format!("\"{}\"", value.replace('"', "\\\"")) };
        line.push(' ');
        line.push_str(&paint.over(&format!("{name}="), "2"));
        line.push_str(&value);
    }
    line.push('\n');
    line
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn escaped(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut escaped, c| {
        if is_unprintable(c) {
            escaped.extend(c.escape_default());
        } else {
            escaped.push(c);
        }
        escaped
    })
}

impl Fields {
    fn insert(&mut self, field: &Field, value: Value) {
        // `r#type` is a field with the name `type`.
        self.0.insert(field.name().trim_start_matches("r#"), value);
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.insert(field, Value::from(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.insert(field, Value::from(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.insert(field, Value::from(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.insert(field, Value::from(value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.insert(field, Value::from(value));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.insert(field, Value::from(super::ErrorChain(value).to_string()));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.insert(field, Value::from(format!("{value:?}")));
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use tracing::{info, info_span, warn};
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[derive(Clone, Default)]
    struct Memory(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Memory {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no test panics while it holds the lock").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Returns the output of `log` without the timestamp, which differs.
    fn lines(form: LineForm, log: impl FnOnce()) -> String {
        let memory = Memory::default();
        let writer = memory.clone();
        let subscriber =
            tracing_subscriber::registry().with(Lines::new(form, move || writer.clone()));
        tracing::subscriber::with_default(subscriber, log);
        let bytes = memory.0.lock().expect("no test panics while it holds the lock").clone();
        let text = String::from_utf8(bytes).expect("text was written");
        let without_time = |line: &str| {
            let from = line.find("20").expect("a year of this century");
            let to = from + "2025-01-06T10:00:00.007Z".len();
            [&line[..from], &line[to..], "\n"].concat()
        };
        text.lines().map(without_time).collect()
    }

    #[test]
    fn json_lines_have_all_fields_at_the_top() {
        let text = lines(LineForm::Json, || {
            let launch = info_span!("launch", launch_id = "lch_1", agent_id = %"agt_a", pid = tracing::field::Empty);
            let _entered = launch.enter();
            launch.record("pid", 42);
            let _inner = info_span!("call", tool = "get_my_task").entered();
            info!(is_first = true, timestamp = "mine", "agent started");
        });
        insta::assert_snapshot!(text, @r#"{"timestamp":"","level":"info","target":"agent_coordinator_runtime::telemetry::lines::tests","message":"agent started","agent_id":"agt_a","is_first":true,"launch_id":"lch_1","pid":42,"tool":"get_my_task"}"#);
    }

    #[test]
    fn text_lines_are_for_people() {
        let text = lines(LineForm::Text, || {
            let _span = info_span!("launch", agent_id = "agt_a").entered();
            warn!(
                error = "it broke: no \"such\" file",
                retry_in_ms = 5,
                empty = "",
                "forge did not answer"
            );
        });
        insta::assert_snapshot!(text, @r#"  WARN forge did not answer agent_id=agt_a empty="" error="it broke: no \"such\" file" retry_in_ms=5"#);
    }

    #[test]
    fn what_a_terminal_would_act_on_is_escaped() {
        let evil = "a\u{1b}[31mred\nfake line \u{202e}\u{9b}";
        for form in [LineForm::Json, LineForm::Text] {
            let text = lines(form, || info!(title = evil, "task {evil}"));
            assert!(!text.trim_end_matches('\n').contains(is_unprintable), "{text:?}");
            assert_eq!(text.lines().count(), 1);
        }
        let text = lines(LineForm::Json, || info!(title = evil, "task"));
        let line: Value = serde_json::from_str(&text).expect("a JSON line");
        assert_eq!(line["title"], evil);
    }

    #[test]
    fn a_token_is_cut_to_its_prefix() {
        let text = lines(LineForm::Json, || {
            info!(error = "no such thing: `sess_0123456789abcdef`", "it broke");
        });
        assert!(text.contains(r#""error":"no such thing: `sess_…`""#), "{text}");
    }

    #[test]
    fn colors_are_only_ours() {
        let text = lines(LineForm::ColoredText, || info!(title = "\u{1b}[31m", "task"));
        assert_eq!(text.matches('\u{1b}').count(), 6, "{text:?}");
    }
}
