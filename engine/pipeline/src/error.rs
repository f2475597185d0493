//! What is wrong with a pipeline file, shown at its line with a caret.

use crate::{
    relation::OperatorFailure,
    source::{Source, Span},
};
use datafusion::error::DataFusionError;
use std::{error, fmt};
use voxelflow_dataset::StageError;

/// Result of this crate.
pub type Result<T, E = PipelineError> = std::result::Result<T, E>;

/// What is wrong, where, and what to do.
///
/// ```text
/// error: unknown option `lamda` of dist_dca, did you mean `lambda`?
///   --> file.vf:7:34
///    |
///  7 | TRAIN MODEL dca USING dist_dca (lamda => 0.006)
///    |                                 ^^^^^
///    = help: the options are: lambda, layers
/// ```
#[derive(Debug)]
pub struct PipelineError {
    report: Box<Report>,
}

#[derive(Debug)]
struct Report {
    message: String,
    help: Option<String>,
    file: String,
    line: usize,
    column: usize,
    source_line: String,
    /// Characters to underline, at least one.
    width: usize,
    input: bool,
    cause: Option<DataFusionError>,
}

impl PipelineError {
    pub(crate) fn new(source: &Source, span: Span, message: impl Into<String>) -> Self {
        let (line, column) = source.line_column(span.start);
        let source_line = source.line(line).to_string();
        let length = source_line.chars().count();
        let column = column.min(length + 1);
        // A span over several lines is underlined on its first.
        let spanned = source.slice(span).lines().next().unwrap_or_default().chars().count();
        let width = spanned.min((length + 1).saturating_sub(column)).max(1);
        let report = Report {
            message: message.into(),
            help: None,
            file: source.name().to_string(),
            line,
            column,
            source_line,
            width,
            input: true,
            cause: None,
        };
        Self { report: Box::new(report) }
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.report.help = Some(help.into());
        self
    }

    pub(crate) fn caused_by(mut self, cause: DataFusionError) -> Self {
        self.report.cause = Some(cause);
        self
    }

    pub(crate) fn not_input(mut self) -> Self {
        self.report.input = false;
        self
    }

    /// What is wrong, one line as a rule.
    pub fn message(&self) -> &str {
        &self.report.message
    }

    /// What to do.
    pub fn help_text(&self) -> Option<&str> {
        self.report.help.as_deref()
    }

    /// The file's name, as given to [`Source::new`].
    pub fn file(&self) -> &str {
        &self.report.file
    }

    /// The line, from 1.
    pub fn line(&self) -> usize {
        self.report.line
    }

    /// The column of the caret, from 1, in characters; at most one past the line's last.
    pub fn column(&self) -> usize {
        self.report.column
    }

    /// The line's text.
    pub fn source_line(&self) -> &str {
        &self.report.source_line
    }

    /// True when what the user wrote, not the machine, is at fault (exit code 2).
    pub fn is_input(&self) -> bool {
        self.report.input
    }

    /// The error of the plan that is behind this one.
    pub fn cause(&self) -> Option<&DataFusionError> {
        self.report.cause.as_ref()
    }

    /// What a stage refused, if a stage did; its `source` is the stage's own error.
    pub fn stage_error(&self) -> Option<&StageError> {
        let DataFusionError::External(refusal) = self.cause()?.find_root() else { return None };
        let operator = refusal.downcast_ref::<OperatorFailure>().map(|failure| &failure.error);
        operator.or_else(|| refusal.downcast_ref::<StageError>())
    }
}

impl fmt::Display for PipelineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let r = &self.report;
        let number = r.line.to_string();
        let margin = " ".repeat(number.len());
        // Tabs are kept, so that the caret stands under its text however wide they are drawn.
        let indent: String =
            r.source_line.chars().take(r.column - 1).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        writeln!(f, "error: {}", r.message)?;
        writeln!(f, " {margin}--> {}:{}:{}", r.file, r.line, r.column)?;
        writeln!(f, " {margin} |")?;
        writeln!(f, " {number} | {}", r.source_line)?;
        write!(f, " {margin} | {indent}{}", "^".repeat(r.width))?;
        for line in r.help.iter().flat_map(|help| help.lines()) {
            write!(f, "\n {margin} = help: {line}")?;
        }
        Ok(())
    }
}

impl error::Error for PipelineError {
    // The cause's words are already in the message: only what lies behind it is a further source.
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        self.report.cause.as_ref().and_then(error::Error::source)
    }
}

/// `, did you mean `x`?`, or nothing.
pub(crate) fn did_you_mean(name: &str, valid: &[String]) -> String {
    nearest(name, valid).map(|n| format!(", did you mean `{n}`?")).unwrap_or_default()
}

/// The most similar of `valid`, if any is similar enough to be meant.
pub(crate) fn nearest<'v>(name: &str, valid: &'v [String]) -> Option<&'v str> {
    let name = name.to_lowercase();
    valid
        .iter()
        .map(|v| (strsim::jaro_winkler(&name, &v.to_lowercase()), v))
        .filter(|(score, _)| *score > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, v)| v.as_str())
}

/// `what are: a, b, c`, cut after twenty; `none` where there are none.
pub(crate) fn listed(what: &str, none: &str, valid: &[String]) -> String {
    const SHOWN: usize = 20;
    if valid.is_empty() {
        return none.to_string();
    }
    let shown = valid.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    let more = valid.len().saturating_sub(SHOWN);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{what} are: {shown}{rest}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn an_error_shows_its_line_with_a_caret() {
        let text = "SELECT 1;\n\tTRAIN MODEL dca USING dist_dca (lamda => 0.006);\n";
        let source = Source::new("file.vf", text);
        let start = text.find("lamda").unwrap();
        let e = PipelineError::new(&source, Span { start, end: start + 5 }, "unknown option `lamda`")
            .help("a\nb");
        let expected = "error: unknown option `lamda`\n  --> file.vf:2:34\n   |\n 2 | \tTRAIN MODEL dca USING dist_dca \
            (lamda => 0.006);\n   | \t                                ^^^^^\n   = help: a\n   = help: b";
        assert_eq!(e.to_string(), expected);
        assert!(e.is_input());
    }

    #[test]
    fn the_nearest_name_is_only_offered_when_it_is_near() {
        let valid = ["lambda".to_string(), "layers".to_string()];
        assert_eq!(nearest("lamda", &valid), Some("lambda"));
        assert_eq!(nearest("voxel", &valid), None);
        assert_eq!(listed("the options", "there are none", &valid), "the options are: lambda, layers");
        assert_eq!(listed("the options", "there are none", &[]), "there are none");
    }
}
