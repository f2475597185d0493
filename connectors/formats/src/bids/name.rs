//! File names of BIDS: `sub-01_task-rest_space-T1w_desc-preproc_bold.nii.gz`, and what they say.

use crate::{Error, Result};
use std::fmt;

/// Entities whose value is a number, so that `run-1` and `run-01` are the same run.
const NUMBERS: [&str; 6] = ["run", "echo", "split", "inv", "flip", "chunk"];

/// A file name, taken apart: entities, a suffix and an extension.
///
/// Unknown entities are kept; one that is there twice is an error. The first releases of fMRIPrep put the suffix
/// of the source in the middle (`sub-01_task-rest_bold_space-T1w_preproc.nii.gz`): it is the
/// [`source_suffix`](Self::source_suffix). Written out again ([`fmt::Display`]) the name is what was read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BidsName {
    entities: Vec<(String, String)>,
    /// A suffix in the middle, and the number of entities before it.
    source_suffix: Option<(usize, String)>,
    suffix: String,
    extension: String,
}

impl BidsName {
    /// Reads the last part of a path.
    ///
    /// # Errors
    /// [`Error::BidsName`] with the part of the name that is wrong.
    pub fn parse(name: &str) -> Result<Self> {
        let wrong = |reason: String| Error::BidsName { name: name.into(), reason };
        if name.contains('/') {
            return Err(wrong("it is a path: give its last part".into()));
        }
        let (front, last) = name.rsplit_once('_').map_or((None, name), |(front, last)| (Some(front), last));
        let (stem, extension) = last.split_at(last.find('.').unwrap_or(last.len()));
        if stem.is_empty() {
            return Err(wrong("nothing stands before the extension".into()));
        }
        let mut read = Self {
            entities: Vec::new(),
            source_suffix: None,
            suffix: String::new(),
            extension: extension.into(),
        };
        for part in front.into_iter().flat_map(|front| front.split('_')) {
            if !read.take_entity(part).map_err(wrong)? {
                read.take_source_suffix(part).map_err(wrong)?;
            }
        }
        if !read.take_entity(stem).map_err(wrong)? {
            stem.clone_into(&mut read.suffix);
        }
        Ok(read)
    }

    /// The name with the suffix of the raw image that a derivative was made from. Sidecars of raw images say less
    /// than it, and so apply.
    pub(super) fn as_raw(&self) -> Self {
        let suffix = self.source_suffix().unwrap_or(&self.suffix).to_owned();
        Self {
            entities: self.entities.clone(),
            source_suffix: None,
            suffix,
            extension: self.extension.clone(),
        }
    }

    /// Keeps `key-value`; false when `part` has no hyphen.
    fn take_entity(&mut self, part: &str) -> Result<bool, String> {
        let Some((key, value)) = part.split_once('-') else { return Ok(false) };
        if key.is_empty() || value.is_empty() || !key.chars().all(|c| c.is_ascii_alphanumeric()) {
            return Err(format!("`{part}` is no `key-value`"));
        }
        if let Some(other) = self.get(key) {
            return Err(format!("it has `{key}-` twice, as `{other}` and `{value}`"));
        }
        self.entities.push((key.into(), value.into()));
        Ok(true)
    }

    fn take_source_suffix(&mut self, part: &str) -> Result<(), String> {
        if part.is_empty() || self.entities.is_empty() || self.source_suffix.is_some() {
            return Err(format!("`{part}` is no `key-value`"));
        }
        self.source_suffix = Some((self.entities.len(), part.into()));
        Ok(())
    }

    /// Value of an entity by its key in names: `sub`, `ses`, `task` …
    pub fn get(&self, key: &str) -> Option<&str> {
        self.entities.iter().find(|(k, _)| k == key).map(|(_, value)| value.as_str())
    }

    /// Keys and values, as they stand in the name.
    pub fn entities(&self) -> impl Iterator<Item = (&str, &str)> {
        self.entities.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// What the file holds: `bold`, `mask`, `events`; empty where the name ends with an entity.
    pub fn suffix(&self) -> &str {
        &self.suffix
    }

    /// The suffix in the middle of early derivative names: `bold` of `…_bold_confounds.tsv`.
    pub fn source_suffix(&self) -> Option<&str> {
        self.source_suffix.as_ref().map(|(_, suffix)| suffix.as_str())
    }

    /// From the first dot of the last part on: `.nii.gz`, `.func.gii`, `.dtseries.nii`; empty where there is none.
    pub fn extension(&self) -> &str {
        &self.extension
    }

    /// Whether every entity of `self` that `counts` is one of `other` with the same value.
    pub(super) fn says_no_more_than(&self, other: &Self, counts: impl Fn(&str) -> bool) -> bool {
        self.entities()
            .filter(|(key, _)| counts(key))
            .all(|(key, value)| other.get(key).is_some_and(|theirs| same_value(key, value, theirs)))
    }

    /// Keys that stand in one name alone, or in both with different values.
    pub(super) fn differences<'n>(&'n self, other: &'n Self) -> Vec<&'n str> {
        let differs = |from: &'n Self, to: &'n Self| {
            from.entities()
                .filter(|(key, value)| to.get(key).is_none_or(|theirs| !same_value(key, value, theirs)))
                .map(|(key, _)| key)
                .collect::<Vec<_>>()
        };
        let mut keys = differs(self, other);
        keys.extend(differs(other, self));
        keys.sort_unstable();
        keys.dedup();
        keys
    }
}

/// Whether two values of an entity mean the same: numbers may have leading zeros.
pub(super) fn same_value(key: &str, a: &str, b: &str) -> bool {
    let number = |value: &str| value.bytes().all(|b| b.is_ascii_digit());
    a == b
        || (NUMBERS.contains(&key)
            && number(a)
            && number(b)
            && a.trim_start_matches('0') == b.trim_start_matches('0'))
}

/// The `key-value` parts of any file name, also of one that follows the convention only in places.
pub fn entities_in(name: &str) -> impl Iterator<Item = (&str, &str)> {
    let (front, last) = name.split_at(name.rfind('_').map_or(0, |at| at + 1));
    let last = &last[..last.find('.').unwrap_or(last.len())];
    front
        .split('_')
        .chain([last])
        .filter_map(|part| part.split_once('-'))
        .filter(|(key, value)| !key.is_empty() && !value.is_empty())
}

impl fmt::Display for BidsName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<String> = self.entities().map(|(key, value)| format!("{key}-{value}")).collect();
        if let Some((at, suffix)) = &self.source_suffix {
            parts.insert(*at, suffix.clone());
        }
        if !self.suffix.is_empty() {
            parts.push(self.suffix.clone());
        }
        write!(f, "{}{}", parts.join("_"), self.extension)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_name_is_taken_apart() {
        let text =
            "sub-01_ses-a_task-x_acq-2mm_run-02_space-MNI152NLin2009cAsym_res-2_desc-preproc_bold.nii.gz";
        let name = BidsName::parse(text).unwrap();
        assert_eq!(
            ["sub", "ses", "acq", "run", "res", "echo"].map(|key| name.get(key)),
            [Some("01"), Some("a"), Some("2mm"), Some("02"), Some("2"), None]
        );
        assert_eq!((name.suffix(), name.extension(), name.source_suffix()), ("bold", ".nii.gz", None));
        assert_eq!(name.to_string(), text);
    }

    #[test]
    fn extensions_of_several_parts_stay_whole() {
        for (text, suffix, extension) in [
            ("sub-1_hemi-L_bold.func.gii", "bold", ".func.gii"),
            ("sub-1_space-fsLR_den-91k_bold.dtseries.nii", "bold", ".dtseries.nii"),
            ("task-rest_bold.json", "bold", ".json"),
            ("sub-1_task-rest_bold_space-fsaverage5.L.func.gii", "", ".L.func.gii"),
            ("participants.tsv", "participants", ".tsv"),
            ("sub-1_meg", "meg", ""),
        ] {
            let name = BidsName::parse(text).unwrap();
            assert_eq!((name.suffix(), name.extension()), (suffix, extension), "{text}");
            assert_eq!(name.to_string(), text);
        }
    }

    #[test]
    fn early_derivative_names_have_the_suffix_of_their_source_inside() {
        let name = BidsName::parse("sub-01_task-rest_bold_space-T1w_preproc.nii.gz").unwrap();
        assert_eq!(
            (name.source_suffix(), name.suffix(), name.get("space")),
            (Some("bold"), "preproc", Some("T1w"))
        );
    }

    #[test]
    fn unknown_entities_are_kept() {
        assert_eq!(BidsName::parse("sub-1_xyz-9_bold.nii").unwrap().get("xyz"), Some("9"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, says) in [
            ("sub-01_sub-02_bold.nii", "`sub-` twice"),
            ("sub-01_run-1_run-1_bold.nii", "`run-` twice"),
            ("sub-_bold.nii", "`sub-`"),
            ("-01_bold.nii", "`-01`"),
            ("ds003_sub-01_mc.nii.gz", "`ds003`"),
            ("sub-01__bold.nii", "``"),
            ("sub-01_a_b_bold.nii", "`b`"),
            ("sub-01_.nii", "before the extension"),
            ("", "before the extension"),
            ("func/sub-01_bold.nii", "path"),
        ] {
            let e = BidsName::parse(text).unwrap_err();
            assert!(e.is_input() && e.to_string().contains(says), "{e}");
        }
    }

    #[test]
    fn numbers_may_have_leading_zeros_and_labels_may_not() {
        assert!(same_value("run", "1", "01") && same_value("run", "0", "00"));
        assert!(
            !same_value("sub", "1", "01") && !same_value("run", "1a", "01a") && !same_value("run", "1", "10")
        );
    }

    #[test]
    fn any_name_gives_the_entities_it_has() {
        let found: Vec<_> = entities_in("ds003_sub-01_x-_task-a-b.nii.gz").collect();
        assert_eq!(found, [("sub", "01"), ("task", "a-b")]);
        assert_eq!(entities_in("functional.nii").count(), 0);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused_and_comes_back_as_it_was(text in "\\PC{0,40}") {
            if let Ok(name) = BidsName::parse(&text) {
                prop_assert_eq!(name.to_string(), text);
            }
        }

        #[test]
        fn anything_like_a_name_comes_back_as_it_was(text in "([a-c]{0,2}-?[0-9.]{0,2}_){0,4}[a-c]{0,3}(\\.[a-z]{1,3}){0,2}") {
            let _ = entities_in(&text).count();
            if let Ok(name) = BidsName::parse(&text) {
                prop_assert_eq!(name.to_string(), text);
            }
        }

        #[test]
        fn every_proper_name_is_read(
            values in proptest::collection::btree_map("[a-z]{2,6}", "[A-Za-z0-9+]{1,8}", 1..6),
            suffix in "[A-Za-z0-9]{1,8}",
            extension in prop::sample::select(vec!["", ".nii", ".nii.gz", ".func.gii", ".dtseries.nii", ".tsv"]),
        ) {
            let parts: Vec<String> = values.iter().map(|(key, value)| format!("{key}-{value}")).collect();
            let text = format!("{}_{suffix}{extension}", parts.join("_"));
            let name = BidsName::parse(&text).unwrap();
            for (key, value) in &values {
                prop_assert_eq!(name.get(key), Some(value.as_str()));
            }
            prop_assert_eq!((name.suffix(), name.extension()), (suffix.as_str(), extension));
            prop_assert_eq!(name.to_string(), text);
        }
    }
}
