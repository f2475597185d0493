//! What tables carry in their Arrow schema: values as JSON, each under a key of its own.

use crate::{Error, Result};
use arrow::datatypes::Schema;
use serde::{Serialize, de::DeserializeOwned};
use std::collections::HashMap;

fn failed(key: &str, e: &serde_json::Error) -> Error {
    Error::Data { what: format!("schema metadata {key}"), reason: e.to_string() }
}

/// The value that `schema` carries under `key`; none where it carries none.
///
/// # Errors
/// [`Error::Data`] for a text that is no such value.
pub(crate) fn carried<T: DeserializeOwned>(schema: &Schema, key: &str) -> Result<Option<T>> {
    let text = schema.metadata().get(key);
    text.map(|text| serde_json::from_str(text)).transpose().map_err(|e| failed(key, &e))
}

/// The metadata that carry `value` under `key`.
///
/// # Errors
/// [`Error::Data`] for what cannot be written as JSON.
pub(crate) fn carrying<T: Serialize + ?Sized>(key: &str, value: &T) -> Result<HashMap<String, String>> {
    let text = serde_json::to_string(value).map_err(|e| failed(key, &e))?;
    Ok(HashMap::from([(key.to_owned(), text)]))
}
