//! A JSON object whose values are taken out by name and kind.

use crate::{Error, Result};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::io::Read;

/// A JSON object and where it came from.
pub(super) struct Keys {
    path: String,
    /// Stands before a key in messages, such as `a_comp_cor_00.`.
    within: String,
    map: Map<String, Value>,
}

impl Keys {
    /// Reads one object; `name` is the file's path or URL, for messages.
    pub(super) fn from_reader(mut source: impl Read, name: &str) -> Result<Self> {
        let path = || name.to_owned();
        let mut bytes = Vec::new();
        source.read_to_end(&mut bytes).map_err(|source| Error::Read {
            path: path(),
            offset: bytes.len() as u64,
            source,
        })?;
        let line =
            |line: usize, reason: String| Error::Line { path: path(), line: line.max(1) as u64, reason };
        // Some editors begin UTF-8 with a mark.
        let text = without_nan(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes));
        let value = serde_json::from_slice(&text).map_err(|error| {
            let what = error.to_string();
            let what = what.split(" at line ").next().unwrap_or_default();
            line(error.line(), format!("column {}: not JSON: {what}", error.column()))
        })?;
        match value {
            Value::Object(map) => Ok(Self { path: path(), within: String::new(), map }),
            other => Err(line(1, format!("{} instead of an object of keys", kind(&other)))),
        }
    }

    /// The objects under the keys of this one; values of another kind are passed over.
    pub(super) fn into_objects(self) -> impl Iterator<Item = (String, Self)> {
        let path = self.path;
        self.map.into_iter().filter_map(move |(key, value)| match value {
            Value::Object(map) => {
                let within = format!("{key}.");
                Some((key, Self { path: path.clone(), within, map }))
            }
            _ => None,
        })
    }

    pub(super) fn number(&self, key: &str) -> Result<Option<f64>> {
        self.get(key).map(|value| self.as_number(value, key)).transpose()
    }

    /// A list of numbers, none where one of them is missing.
    pub(super) fn numbers(&self, key: &str) -> Result<Option<Vec<f64>>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let Value::Array(items) = value else { return Err(self.wrong(key, value, "a list of numbers")) };
        if items.iter().any(Value::is_null) {
            return Ok(None);
        }
        let item = |(index, value)| self.as_number(value, &format!("{key}[{index}]"));
        items.iter().enumerate().map(item).collect::<Result<_>>().map(Some)
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<String>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(other) => Err(self.wrong(key, other, "a text")),
        }
    }

    pub(super) fn truth(&self, key: &str) -> Result<Option<bool>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Bool(truth)) => Ok(Some(*truth)),
            Some(other) => Err(self.wrong(key, other, "true or false")),
        }
    }

    pub(super) fn fault(&self, key: &str, reason: String) -> Error {
        Error::Key { path: self.path.clone(), key: format!("{}{key}", self.within), reason }
    }

    /// The value of a key; null says as little as no key.
    fn get(&self, key: &str) -> Option<&Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    fn as_number(&self, value: &Value, key: &str) -> Result<f64> {
        value.as_f64().ok_or_else(|| self.wrong(key, value, "a number"))
    }

    fn wrong(&self, key: &str, value: &Value, expected: &str) -> Error {
        self.fault(key, format!("it is {}, not {expected}", kind(value)))
    }
}

/// The text with null in the place of `NaN`, `Infinity` and `-Infinity`, which JSON lacks and Python's `json` writes;
/// what stands in quotes stays.
pub(crate) fn without_nan(text: &[u8]) -> Cow<'_, [u8]> {
    const WORDS: [&[u8]; 3] = [b"NaN", b"Infinity", b"-Infinity"];
    let mut replaced: Vec<u8> = Vec::new();
    let (mut copied, mut at, mut quoted) = (0, 0, false);
    while let Some(byte) = text.get(at) {
        let word = WORDS.into_iter().find(|word| !quoted && text[at..].starts_with(word));
        match (byte, word) {
            (_, Some(word)) => {
                replaced.extend_from_slice(&text[copied..at]);
                replaced.extend_from_slice(b"null");
                at += word.len();
                copied = at;
                continue;
            }
            (b'\\', _) if quoted => at += 1,
            (b'"', _) => quoted = !quoted,
            _ => {}
        }
        at += 1;
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    replaced.extend_from_slice(&text[copied..]);
    Cow::Owned(replaced)
}

/// A value with its kind, cut to what a message can bear.
fn kind(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(truth) => truth.to_string(),
        Value::Number(number) => format!("the number {number}"),
        Value::String(text) => format!("the text {:?}", text.chars().take(40).collect::<String>()),
        Value::Array(items) => format!("a list of {}", items.len()),
        Value::Object(_) => "an object".into(),
    }
}
