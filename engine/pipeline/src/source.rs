//! A pipeline file's text and places in it: from the line and column that parsers count to the byte span
//! that everything else uses, and back for people.

use datafusion::sql::sqlparser::tokenizer;

/// A piece of the file, in byte offsets; `end` is one past the last byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// First byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
}

impl Span {
    /// The smallest span that holds both.
    pub fn to(self, other: Self) -> Self {
        Self { start: self.start.min(other.start), end: self.end.max(other.end) }
    }
}

/// The text of a pipeline file and its name.
#[derive(Debug)]
pub struct Source {
    name: String,
    text: String,
    /// Byte offset at which each line starts; never empty.
    line_starts: Vec<usize>,
}

impl Source {
    /// `name` is what errors call the text: a path, or for example `<command line>`.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        let text = text.into();
        let line_starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { name: name.into(), text, line_starts }
    }

    /// What errors call the text.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The whole text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The text of a span; empty where the span does not lie on character borders.
    pub fn slice(&self, span: Span) -> &str {
        self.text.get(span.start..span.end).unwrap_or_default()
    }

    /// Line and column of a byte offset, both from 1; the column counts characters.
    pub fn line_column(&self, offset: usize) -> (usize, usize) {
        let line = self.line_starts.partition_point(|start| *start <= offset).max(1);
        let start = self.line_starts.get(line - 1).copied().unwrap_or_default();
        let before = self.text.get(start..offset.min(self.text.len())).unwrap_or_default();
        (line, before.chars().count() + 1)
    }

    /// The text of line `number` (from 1), without its end; empty for a line that does not exist.
    pub fn line(&self, number: usize) -> &str {
        let Some(start) = number.checked_sub(1).and_then(|n| self.line_starts.get(n)) else { return "" };
        let end = self.line_starts.get(number).map_or(self.text.len(), |next| next - 1);
        let line = self.text.get(*start..end).unwrap_or_default();
        line.strip_suffix('\r').unwrap_or(line)
    }

    /// Byte offset of a line and column as parsers count them (both from 1), clamped to the text.
    pub(crate) fn offset(&self, line: u64, column: u64) -> usize {
        let last = self.line_starts.len();
        let line = usize::try_from(line).unwrap_or(last).clamp(1, last);
        let start = self.line_starts.get(line - 1).copied().unwrap_or_default();
        let end = self.line_starts.get(line).copied().unwrap_or(self.text.len());
        let rest = self.text.get(start..end).unwrap_or_default();
        let skip = usize::try_from(column.saturating_sub(1)).unwrap_or(rest.len());
        start + rest.char_indices().nth(skip).map_or(rest.len(), |(at, _)| at)
    }

    /// The span that the tokenizer reports; `None` for its "nowhere".
    pub(crate) fn span(&self, span: tokenizer::Span) -> Option<Span> {
        if span.start.line == 0 {
            return None;
        }
        let start = self.offset(span.start.line, span.start.column);
        let end = self.offset(span.end.line, span.end.column).max(start);
        Some(Span { start, end })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn lines_and_columns_count_characters() {
        let source = Source::new("f.vf", "-- größe\r\nSELECT é, x;\n");
        let x = source.text().find('x').unwrap();
        assert_eq!(source.line_column(x), (2, 11));
        assert_eq!(source.offset(2, 11), x);
        assert_eq!(source.line(1), "-- größe");
        assert_eq!(source.line(3), "");
        assert_eq!(source.line(9), "");
    }

    #[test]
    fn places_outside_the_text_are_clamped() {
        let source = Source::new("f.vf", "ab\ncd");
        assert_eq!(source.offset(9, 9), 5);
        assert_eq!(source.offset(1, 99), 3);
        assert_eq!(source.line_column(99), (2, 3));
        assert_eq!(source.offset(0, 0), 0);
    }
}
