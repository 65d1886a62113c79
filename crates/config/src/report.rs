//! A report of all problems of a file for a person: the place, the message, the lines of the file,
//! and a remedy.

use std::fmt;
use std::sync::Arc;

use miette::{
    GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteError, MietteSpanContents,
    SourceCode, SourceSpan, SpanContents,
};

use super::source::Source;
use super::tree::Span;

/// The number of problems that are shown in full. The others are counted.
const MAX_SHOWN: usize = 50;
/// The number of problems in a line of a log.
const MAX_ON_ONE_LINE: usize = 3;
/// The longest line in a report, in bytes. Longer lines are cut around the place in question.
const MAX_LINE: usize = 160;

/// One problem.
#[derive(Debug, Clone)]
pub(super) struct Problem {
    /// The expected and the found value, without the place.
    pub message: String,
    /// The place; `None` if it is not in the file.
    pub span: Option<Span>,
    /// The label at the place.
    pub label: Option<String>,
    /// The remedy.
    pub help: Option<String>,
}

impl Problem {
    pub fn new(message: impl Into<String>, span: impl Into<Option<Span>>) -> Self {
        Self { message: message.into(), span: span.into(), label: None, help: None }
    }

    pub fn label(self, label: impl Into<String>) -> Self {
        Self { label: Some(label.into()), ..self }
    }

    pub fn help(self, help: impl Into<String>) -> Self {
        Self { help: Some(help.into()), ..self }
    }
}

/// The name of a file and its text with secrets masked, for reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Transcript {
    name: String,
    text: Arc<str>,
}

impl Transcript {
    /// Makes a transcript. `secrets` are the places of the text that must not be shown.
    pub fn new(source: &Source, secrets: &[Span]) -> Self {
        Self { name: source.name().to_owned(), text: source.masked(secrets).into() }
    }

    pub fn report(&self, mut problems: Vec<Problem>) -> Report {
        problems.sort_by_key(|problem| problem.span.as_ref().map_or(usize::MAX, |span| span.start));
        Report { file: self.clone(), problems }
    }

    /// Returns line and column, both from 1. The column counts characters.
    fn place_of(&self, offset: usize) -> (usize, usize) {
        let before = &self.text[..offset];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    }
}

/// All problems of one file. `Display` is the whole text without colours. Secrets are masked in it.
#[derive(Debug, Clone)]
pub struct Report {
    file: Transcript,
    problems: Vec<Problem>,
}

impl Report {
    /// Returns a report about a file as a whole, such as its size.
    pub(super) fn about(name: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            file: Transcript { name: name.into(), text: "".into() },
            problems: vec![Problem::new(message, None)],
        }
    }

    /// Returns the number of problems.
    pub fn n_problems(&self) -> usize {
        self.problems.len()
    }

    /// Returns the whole text, with the colours of a terminal.
    pub fn colored(&self) -> String {
        let mut text = String::new();
        self.render(&mut text, GraphicalTheme::unicode()).expect("writing to a String can't fail");
        text
    }

    /// Returns the first problems on one line, each with its place and its remedy.
    pub fn on_one_line(&self) -> String {
        let mut lines: Vec<String> = self
            .problems
            .iter()
            .take(MAX_ON_ONE_LINE)
            .map(|problem| {
                let advice = [
                    problem.label.as_deref().filter(|label| *label != "here"),
                    problem.help.as_deref(),
                ];
                let advice: Vec<&str> = advice.into_iter().flatten().collect();
                let heading = ProblemDiagnostic::new(self, problem).heading;
                if advice.is_empty() {
                    heading
                } else {
                    format!("{heading} ({})", advice.join("; "))
                }
            })
            .collect();
        let n_others = self.problems.len().saturating_sub(MAX_ON_ONE_LINE);
        if n_others > 0 {
            lines.push(format!("and {n_others} more"));
        }
        lines.join("; ")
    }

    fn render(&self, f: &mut impl fmt::Write, theme: GraphicalTheme) -> fmt::Result {
        let handler = GraphicalReportHandler::new_themed(theme)
            .with_wrap_lines(false)
            .with_width(1_000)
            .without_primary_span_start()
            .without_syntax_highlighting()
            .without_cause_chain();
        for problem in self.problems.iter().take(MAX_SHOWN) {
            handler.render_report(f, &ProblemDiagnostic::new(self, problem))?;
            f.write_char('\n')?;
        }
        match self.problems.len() {
            1 => write!(f, "1 problem in {}", self.file.name),
            n if n > MAX_SHOWN => {
                write!(f, "{n} problems in {}, the first {MAX_SHOWN} are shown", self.file.name)
            }
            n => write!(f, "{n} problems in {}", self.file.name),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.render(f, GraphicalTheme::unicode_nocolor())
    }
}

/// A problem in the form that miette needs.
#[derive(Debug)]
struct ProblemDiagnostic<'a> {
    /// The heading `file:line:column: message`, which can be searched like a compiler's.
    heading: String,
    problem: &'a Problem,
    excerpt: Option<Excerpt>,
}

impl<'a> ProblemDiagnostic<'a> {
    fn new(report: &Report, problem: &'a Problem) -> Self {
        let (heading, excerpt) = match &problem.span {
            None => (format!("{}: {}", report.file.name, problem.message), None),
            Some(span) => {
                let (line, column) = report.file.place_of(span.start);
                let heading = format!("{}:{line}:{column}: {}", report.file.name, problem.message);
                (heading, Some(Excerpt::around(&report.file.text, span, line)))
            }
        };
        Self { heading, problem, excerpt }
    }
}

impl fmt::Display for ProblemDiagnostic<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.heading)
    }
}

impl std::error::Error for ProblemDiagnostic<'_> {}

impl miette::Diagnostic for ProblemDiagnostic<'_> {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.problem.help.as_ref().map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.excerpt.as_ref().map(|excerpt| excerpt as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let excerpt = self.excerpt.as_ref()?;
        let span = excerpt.span.start..excerpt.span.end;
        Some(Box::new(std::iter::once(LabeledSpan::new_with_span(
            self.problem.label.clone(),
            span,
        ))))
    }
}

/// The lines around a problem: at most one before and one after. Long lines are cut, because a file
/// may have one line of a megabyte.
#[derive(Debug)]
struct Excerpt {
    text: String,
    /// The number of the first line in the file, from 0.
    first_line: usize,
    /// The place in `text`, within one line.
    span: Span,
}

impl Excerpt {
    fn around(text: &str, span: &Span, line: usize) -> Self {
        let start = text[..span.start].rfind('\n').map_or(0, |at| at + 1);
        let end = text[span.start..].find('\n').map_or(text.len(), |at| span.start + at);
        let (cut, at) = cut_around(text[start..end].trim_end_matches('\r'), span.start - start);
        let within = at..(at + (span.end.min(end) - span.start)).min(cut.len());

        let before = start
            .checked_sub(1)
            .map(|end| &text[text[..end].rfind('\n').map_or(0, |at| at + 1)..end]);
        let after = text
            .get(end + 1..)
            .filter(|rest| !rest.is_empty())
            .and_then(|rest| rest.lines().next());
        let mut excerpt = String::new();
        let mut first_line = line - 1;
        if let Some(before) = before.filter(|line| line.len() <= MAX_LINE) {
            excerpt.push_str(before.trim_end_matches('\r'));
            excerpt.push('\n');
            first_line -= 1;
        }
        let shift = excerpt.len();
        excerpt.push_str(&cut);
        excerpt.push('\n');
        if let Some(after) = after.filter(|line| line.len() <= MAX_LINE) {
            excerpt.push_str(after);
            excerpt.push('\n');
        }
        Self { text: excerpt, first_line, span: shift + within.start..shift + within.end }
    }
}

/// Returns the part of `line` around `at`, and the offset of `at` in that part.
fn cut_around(line: &str, at: usize) -> (String, usize) {
    if line.len() <= MAX_LINE {
        return (line.to_owned(), at.min(line.len()));
    }
    let at = at.min(line.len());
    let from = line.floor_char_boundary(at.saturating_sub(MAX_LINE / 3));
    let to = line.ceil_char_boundary((from + MAX_LINE).min(line.len()));
    let head = if from > 0 { "…" } else { "" };
    let tail = if to < line.len() { "…" } else { "" };
    (format!("{head}{}{tail}", &line[from..to]), head.len() + at - from)
}

impl SourceCode for Excerpt {
    fn read_span<'a>(
        &'a self,
        span: &SourceSpan,
        context_lines_before: usize,
        context_lines_after: usize,
    ) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        let contents =
            self.text.as_str().read_span(span, context_lines_before, context_lines_after)?;
        Ok(Box::new(MietteSpanContents::new(
            contents.data(),
            *contents.span(),
            contents.line() + self.first_line,
            contents.column(),
            contents.line_count(),
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_cut_around_the_place() {
        let line = format!("{}HERE{}", "a".repeat(5_000), "é".repeat(5_000));
        let (cut, at) = cut_around(&line, 5_000);
        assert!(cut.len() < MAX_LINE + 10, "{}", cut.len());
        assert!(cut[at..].starts_with("HERE"));
    }
}
