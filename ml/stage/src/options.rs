//! Options by name: one way to turn `(name => value, …)` into a settings struct.
//!
//! The struct is the single source of truth: its serde field names are the valid names and its `Default`
//! gives the defaults, so nothing has to be listed twice.

use crate::{Error, Result};
use serde::{Serialize, de::DeserializeOwned};

/// Options as written, in JSON values (strings, numbers, booleans, arrays).
pub type Options = serde_json::Map<String, serde_json::Value>;

/// Fills a `T` from its defaults and `options`; an unknown name answers with the nearest and the list.
///
/// # Errors
/// [`Error::UnknownOption`] for a name that `T` lacks, [`Error::OptionValue`] for a value of the wrong kind.
pub fn parse_options<T>(what: &str, options: &Options) -> Result<T>
where
    T: Default + Serialize + DeserializeOwned,
{
    let defaults = serde_json::to_value(T::default()).map_err(|e| invalid(what, "", &e))?;
    let serde_json::Value::Object(mut merged) = defaults else {
        return Err(Error::Data { what: what.into(), reason: "settings are not a struct".into() });
    };
    let valid: Vec<String> = merged.keys().cloned().collect();
    for (name, value) in options {
        if !merged.contains_key(name) {
            let nearest = nearest(name, &valid);
            return Err(Error::UnknownOption { what: what.into(), option: name.clone(), nearest, valid });
        }
        // Each value is tried alone, so that the error can name the option.
        let previous = merged.insert(name.clone(), value.clone());
        if let Err(e) = serde_json::from_value::<T>(serde_json::Value::Object(merged.clone())) {
            drop(previous);
            return Err(invalid(what, name, &e));
        }
    }
    serde_json::from_value(serde_json::Value::Object(merged)).map_err(|e| invalid(what, "", &e))
}

fn invalid(what: &str, option: &str, e: &serde_json::Error) -> Error {
    Error::OptionValue { what: what.into(), option: option.into(), reason: e.to_string() }
}

/// The most similar of `valid` to `name`, if any is similar enough to be meant.
pub fn nearest(name: &str, valid: &[String]) -> Option<String> {
    valid
        .iter()
        .map(|v| (strsim::jaro_winkler(&name.to_lowercase(), &v.to_lowercase()), v))
        .filter(|(score, _)| *score > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, v)| v.clone())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::TrainSettings;
    use serde_json::json;

    fn options(value: serde_json::Value) -> Options {
        value.as_object().cloned().unwrap_or_default()
    }

    #[test]
    fn names_fill_the_struct() {
        let s: TrainSettings = parse_options(
            "TRAIN",
            &options(json!({"ranks": 4, "consistency": "async", "learning_rate": 0.5})),
        )
        .unwrap();
        assert_eq!(s.ranks, 4);
        assert_eq!(s.sync.consistency, voxelflow_sync::Consistency::Async);
        assert_eq!(s.sync.optimizer.learning_rate, 0.5);
        assert_eq!(s.minibatch, TrainSettings::default().minibatch);
    }

    #[test]
    fn an_unknown_name_answers_with_the_nearest_and_the_list() {
        let e = parse_options::<TrainSettings>("TRAIN", &options(json!({"learning_rat": 1}))).unwrap_err();
        let text = e.to_string();
        assert!(text.contains("did you mean `learning_rate`?"), "{text}");
        assert!(text.contains("minibatch"), "{text}");
        assert!(e.is_input());
    }

    #[test]
    fn a_wrong_value_names_its_option() {
        let e = parse_options::<TrainSettings>("TRAIN", &options(json!({"epochs": "many"}))).unwrap_err();
        assert_eq!(e.option(), Some("epochs"));
    }
}
