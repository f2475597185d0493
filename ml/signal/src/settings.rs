//! The settings of cleaning, with nilearn's names and defaults.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// How series are scaled at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Standardize {
    /// Zero mean, unit variance with divisor `T − 1` (written `'zscore_sample'` or `true`).
    #[default]
    ZscoreSample,
    /// Zero mean, unit variance with divisor `T` (`'zscore'`).
    Zscore,
    /// Percent of the voxel's mean (`'psc'`).
    Psc,
    /// As they are (`false`).
    None,
}

impl Serialize for Standardize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::ZscoreSample => serializer.serialize_str("zscore_sample"),
            Self::Zscore => serializer.serialize_str("zscore"),
            Self::Psc => serializer.serialize_str("psc"),
            Self::None => serializer.serialize_bool(false),
        }
    }
}

/// `standardize` as people write it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Flag(bool),
    Name(String),
    Absent(()),
}

impl<'de> Deserialize<'de> for Standardize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = Written::deserialize(deserializer).map_err(|_| {
            serde::de::Error::custom("must be 'zscore_sample', 'zscore', 'psc', true or false")
        })?;
        match written {
            Written::Flag(true) => Ok(Self::ZscoreSample),
            Written::Flag(false) | Written::Absent(()) => Ok(Self::None),
            Written::Name(name) => match name.as_str() {
                "zscore_sample" | "true" => Ok(Self::ZscoreSample),
                "zscore" => Ok(Self::Zscore),
                "psc" => Ok(Self::Psc),
                "false" | "none" => Ok(Self::None),
                other => Err(serde::de::Error::custom(format!(
                    "`{other}` is not one of 'zscore_sample', 'zscore', 'psc', true, false"
                ))),
            },
        }
    }
}

/// How frequencies are removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Filter {
    /// Butterworth of order 5, forwards and backwards. Without cut-offs nothing is filtered.
    #[default]
    Butterworth,
    /// Regression on cosine drifts slower than `high_pass`.
    Cosine,
}

/// How series are cleaned; the names and defaults of `nilearn.signal.clean`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CleanSettings {
    /// Whether the linear trend is removed.
    pub detrend: bool,
    /// How series are scaled.
    pub standardize: Standardize,
    /// The kind of filter.
    pub filter: Filter,
    /// Frequencies under this, in hertz, are removed.
    pub high_pass: Option<f64>,
    /// Frequencies over this, in hertz, are removed.
    pub low_pass: Option<f64>,
    /// Repetition time in seconds; outranks what the data say.
    pub t_r: Option<f64>,
}

impl Default for CleanSettings {
    fn default() -> Self {
        Self {
            detrend: true,
            standardize: Standardize::default(),
            filter: Filter::default(),
            high_pass: None,
            low_pass: None,
            t_r: None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use serde_json::{from_value, json, to_value};

    #[test]
    fn standardize_is_written_as_a_name_or_a_flag() {
        for (written, meant) in [
            (json!("zscore_sample"), Standardize::ZscoreSample),
            (json!(true), Standardize::ZscoreSample),
            (json!("zscore"), Standardize::Zscore),
            (json!("psc"), Standardize::Psc),
            (json!(false), Standardize::None),
            (json!(null), Standardize::None),
        ] {
            assert_eq!(from_value::<Standardize>(written).unwrap(), meant);
            assert_eq!(from_value::<Standardize>(to_value(meant).unwrap()).unwrap(), meant);
        }
    }

    #[test]
    fn an_unknown_scale_answers_with_the_list() {
        for written in [json!("zscored"), json!(3)] {
            let e = from_value::<CleanSettings>(json!({ "standardize": written })).unwrap_err();
            assert!(e.to_string().contains("'psc'"), "{e}");
        }
    }

    #[test]
    fn settings_survive_json() {
        let settings =
            CleanSettings { filter: Filter::Cosine, high_pass: Some(0.008), ..CleanSettings::default() };
        assert_eq!(from_value::<CleanSettings>(to_value(&settings).unwrap()).unwrap(), settings);
    }
}
