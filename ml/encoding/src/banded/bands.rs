//! Bands: which features belong to which, and where their columns lie.
//!
//! ```text
//!   bands => {'motion': 'motion_*', 'words': ['embedding', 'length']}      delays [1, 2]
//!   motion_x₁ motion_y₁ motion_x₂ motion_y₂ │ embedding[0]₁ … length₁ embedding[0]₂ … length₂
//! ```
//! A feature's delayed copies are of its band. Bands stand in the order of their names.

use crate::delays::Delayed;
use faer::Mat;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use voxelflow_ridge::Scalar;

/// What the option `bands` says: names of bands, and which features are theirs.
pub(crate) type Patterns = BTreeMap<String, Features>;

/// Names of features, in which `*` stands for anything. A column of lists has its features `name[0]`, `name[1]`, …; its
/// name alone means all of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Features {
    /// One name.
    One(String),
    /// Several.
    Several(Vec<String>),
}

impl Features {
    fn has(&self, feature: &str) -> bool {
        let patterns = match self {
            Self::One(pattern) => std::slice::from_ref(pattern),
            Self::Several(patterns) => patterns,
        };
        let column = feature.split_once('[').map_or(feature, |(column, _)| column);
        patterns.iter().any(|pattern| matches(pattern, feature) || matches(pattern, column))
    }
}

/// Whether `pattern`, in which `*` stands for anything, is `name`.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((before, rest)) => name.strip_prefix(before).is_some_and(|name| {
            let starts = name.char_indices().map(|(at, _)| at).chain([name.len()]);
            starts.into_iter().any(|at| matches(rest, &name[at..]))
        }),
    }
}

/// The bands of a table of features.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bands {
    /// Names.
    pub names: Vec<String>,
    /// Of each band the numbers of its features.
    features: Vec<Vec<usize>>,
}

impl Bands {
    /// # Errors
    /// Why not: features of no band or of two, a band without features.
    pub fn of(patterns: &Patterns, features: &[String]) -> Result<Self, String> {
        let names: Vec<String> = patterns.keys().cloned().collect();
        let mut own = vec![Vec::new(); names.len()];
        for (number, feature) in features.iter().enumerate() {
            let bands: Vec<usize> = patterns
                .values()
                .enumerate()
                .filter(|(_, band)| band.has(feature))
                .map(|(band, _)| band)
                .collect();
            match bands.as_slice() {
                [band] => own[*band].push(number),
                [] => {
                    return Err(format!(
                        "feature `{feature}` is in no band; name it in one, or leave it out of FEATURES"
                    ));
                }
                [one, other, ..] => {
                    let (one, other) = (&names[*one], &names[*other]);
                    return Err(format!(
                        "feature `{feature}` is in two bands, {one} and {other}; name it in one"
                    ));
                }
            }
        }
        if let Some(empty) = own.iter().position(Vec::is_empty) {
            return Err(format!(
                "band {} has no feature; the features are {}",
                names[empty],
                listed(features)
            ));
        }
        Ok(Self { names, features: own })
    }

    /// Columns of each band, of features with so many delays.
    pub fn sizes(&self, delays: usize) -> Vec<usize> {
        self.features.iter().map(|own| own.len() * delays.max(1)).collect()
    }

    /// The columns of the bands, one band after the other, among those of all features of the first delay, then of the
    /// next.
    pub fn order(&self, delays: usize) -> Vec<usize> {
        let p: usize = self.features.iter().map(Vec::len).sum();
        let band = |own: &Vec<usize>| -> Vec<usize> {
            (0..delays.max(1)).flat_map(|delay| own.iter().map(move |feature| delay * p + feature)).collect()
        };
        self.features.iter().flat_map(band).collect()
    }

    /// `found` with its columns band by band.
    pub fn arranged<T: Scalar>(&self, found: &Delayed<T>, delays: usize) -> Delayed<T> {
        let (Delayed { x, origin }, order) = (found, self.order(delays));
        let origin = order.iter().map(|column| origin[*column]).collect();
        Delayed { x: Mat::from_fn(x.nrows(), order.len(), |i, j| x[(i, order[j])]), origin }
    }
}

/// The first of many names.
fn listed(names: &[String]) -> String {
    const SHOWN: usize = 12;
    let more = if names.len() > SHOWN { ", …" } else { "" };
    names.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ") + more
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn bands(patterns: Value, features: &[&str]) -> Result<Bands, String> {
        let features: Vec<String> = features.iter().map(|name| (*name).to_owned()).collect();
        Bands::of(&serde_json::from_value(patterns).unwrap(), &features)
    }

    #[test]
    fn every_feature_and_its_delayed_copies_are_of_one_band() {
        let names = ["length", "motion_x", "embedding[0]", "motion_y", "embedding[1]"];
        let found = bands(json!({"words": ["embedding", "length"], "motion": "motion_*"}), &names).unwrap();
        assert_eq!(found.names, ["motion", "words"]);
        assert_eq!((found.sizes(0), found.sizes(2)), (vec![2, 3], vec![4, 6]));
        assert_eq!(found.order(1), [1, 3, 0, 2, 4]);
        assert_eq!(found.order(2), [1, 3, 6, 8, 0, 2, 4, 5, 7, 9]);
        let x = Mat::from_fn(2, 5, |i, j| (10 * i + j) as f64);
        let found = found.arranged(&Delayed { x, origin: vec![0., 1., 2., 3., 4.] }, 1);
        assert_eq!(found.x, Mat::from_fn(2, 5, |i, j| (10 * i + [1, 3, 0, 2, 4][j]) as f64));
        assert_eq!(found.origin, [1., 3., 0., 2., 4.]);
    }

    #[test]
    fn what_is_in_no_band_or_in_two_is_named() {
        let names = ["face", "house", "scene"];
        let said = |patterns| bands(patterns, &names).unwrap_err();
        assert!(said(json!({"a": "face", "b": "house"})).contains("`scene` is in no band"));
        assert!(
            said(json!({"a": "*s*", "b": "face", "c": "scene"})).contains("`scene` is in two bands, a and c")
        );
        let empty = said(json!({"a": "*", "b": "word_*"}));
        assert_eq!(empty, "band b has no feature; the features are face, house, scene");
    }

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, name) in [("*", ""), ("a*", "a"), ("*a", "bca"), ("a*c*e", "abcde"), ("é*", "éa")] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("", "a"), ("a", "ab"), ("a*", "ba"), ("*a", "ab"), ("a*c*e", "abde")] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }
}
