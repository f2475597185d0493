//! Lines of numbers between white space: EV files, movement regressors, b-values.

use crate::{Error, Result};
use std::io::{BufRead, BufReader, Read};

/// Lines that hold numbers, each with its place in the file; empty lines are passed over.
#[derive(Debug)]
pub(super) struct NumberLines {
    pub path: String,
    pub lines: Vec<(u64, Vec<f64>)>,
}

impl NumberLines {
    /// Reads all lines; `name` is the file's path or URL, for messages.
    pub(super) fn from_reader(source: impl Read, name: &str) -> Result<Self> {
        Self::read(source, name, f64::is_finite)
    }

    /// As [`Self::from_reader`], and NaN is a number too.
    pub(super) fn with_nan(source: impl Read, name: &str) -> Result<Self> {
        Self::read(source, name, |value| !value.is_infinite())
    }

    fn read(source: impl Read, name: &str, is_number: impl Fn(f64) -> bool) -> Result<Self> {
        let mut numbers = Self { path: name.into(), lines: Vec::new() };
        let (mut source, mut text, mut offset) = (BufReader::new(source), Vec::new(), 0);
        for line in 1.. {
            text.clear();
            let length = source.read_until(b'\n', &mut text).map_err(|source| Error::Read {
                path: name.into(),
                offset,
                source,
            })?;
            if length == 0 {
                break;
            }
            offset += length as u64;
            let text = std::str::from_utf8(&text)
                .map_err(|_| numbers.fault(line, "it is not text; this is another kind of file".into()))?;
            let values = text.split_whitespace().enumerate().map(|(index, word)| {
                let value = word.parse::<f64>().ok().filter(|&value| is_number(value));
                value.ok_or_else(|| {
                    numbers.fault(line, format!("value {} is '{word}', not a finite number", index + 1))
                })
            });
            let values = values.collect::<Result<Vec<f64>>>()?;
            if !values.is_empty() {
                numbers.lines.push((line, values));
            }
        }
        Ok(numbers)
    }

    /// Lines of `N` numbers each; `columns` says what they are.
    pub(super) fn into_rows<const N: usize>(self, columns: &str) -> Result<Vec<(u64, [f64; N])>> {
        let row = |(line, values): &(u64, Vec<f64>)| {
            let row = <[f64; N]>::try_from(&values[..]).map_err(|_| {
                self.fault(*line, format!("it has {} number(s), not {N}: {columns}", values.len()))
            })?;
            Ok((*line, row))
        };
        self.lines.iter().map(row).collect()
    }

    pub(super) fn fault(&self, line: u64, reason: String) -> Error {
        Error::Line { path: self.path.clone(), line, reason }
    }
}
