//! Which images are asked for, and what there is to choose from.

use super::name::same_value;
use super::role::hemisphere;
use super::{BidsFile, BidsName, BoldKind, Problem, Role};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The value that stands for names without an entity.
pub const NONE: &str = "none";

/// Values that a message lists.
const LISTED: usize = 12;

/// Entities by the words of the specification, and as they stand in names.
const WORDS: [(&str, &str); 10] = [
    ("subject", "sub"),
    ("session", "ses"),
    ("acquisition", "acq"),
    ("contrast", "ce"),
    ("reconstruction", "rec"),
    ("direction", "dir"),
    ("resolution", "res"),
    ("density", "den"),
    ("description", "desc"),
    ("hemisphere", "hemi"),
];

/// Entities that may be chosen by; `subject`, `session` … are understood too.
pub const ENTITIES: [&str; 16] = [
    "sub", "ses", "task", "acq", "ce", "rec", "dir", "run", "echo", "part", "space", "cohort", "res", "den",
    "hemi", "desc",
];

/// A choice among the images of a dataset: values by entity, and a kind of image.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct BidsQuery {
    filters: BTreeMap<String, Vec<String>>,
    kind: Option<BoldKind>,
}

impl BidsQuery {
    /// Only images whose `entity` has one of `values`, separated by commas; [`NONE`] means names without it.
    /// Values may bring their key (`sub-01`).
    #[must_use]
    pub fn with(mut self, entity: &str, values: &str) -> Self {
        let key = key_of(entity);
        let prefix = format!("{key}-");
        let values = values
            .split(',')
            .map(|v| v.trim().trim_start_matches(&prefix).to_owned())
            .filter(|v| !v.is_empty());
        self.filters.entry(key.to_owned()).or_default().extend(values);
        self
    }

    /// Only images of a kind.
    #[must_use]
    pub fn of_kind(mut self, kind: BoldKind) -> Self {
        self.kind = Some(kind);
        self
    }

    /// Whether an entity was asked for.
    pub(super) fn asks_for(&self, key: &str) -> bool {
        self.filters.contains_key(key)
    }

    /// Whether several values of an entity were asked for.
    pub(super) fn lists_several(&self, key: &str) -> bool {
        self.filters.get(key).is_some_and(|values| values.len() > 1)
    }

    pub(super) fn accepts(&self, name: &BidsName) -> bool {
        self.accepts_kind(name)
            && self.filters.keys().all(|key| self.accepts_value(key, name))
            && self.is_magnitude(name)
    }

    fn accepts_kind(&self, name: &BidsName) -> bool {
        self.kind.is_none_or(|kind| Role::of(name) == Role::Bold(kind))
    }

    fn accepts_value(&self, key: &str, name: &BidsName) -> bool {
        let value = value_of(key, name);
        self.filters.get(key).is_none_or(|wanted| match value {
            Some(value) => wanted.iter().any(|wanted| same_value(key, wanted, value)),
            None => wanted.iter().any(|wanted| wanted == NONE),
        })
    }

    /// Phases and the parts of complex images are read only when they are asked for.
    fn is_magnitude(&self, name: &BidsName) -> bool {
        self.asks_for("part") || matches!(name.get("part"), None | Some("mag"))
    }

    /// Why none of `images` is accepted: the choice that leaves nothing, and what there is instead.
    pub(super) fn nothing_found(&self, images: &[&BidsFile]) -> Problem {
        let of_kind: Vec<&BidsFile> =
            images.iter().copied().filter(|file| self.accepts_kind(&file.name)).collect();
        if let (Some(kind), true) = (self.kind, of_kind.is_empty()) {
            let found: BTreeSet<String> = images
                .iter()
                .filter_map(|file| match Role::of(&file.name) {
                    Role::Bold(kind) => Some(kind.to_string()),
                    _ => None,
                })
                .collect();
            let found = found.into_iter().collect::<Vec<_>>().join(", ");
            return Problem::refused("the dataset", format!("it holds no {kind}; found: {found}"));
        }
        // A value that no image has is the first to be named; else a combination that none has.
        let unknown =
            self.filters.keys().find(|key| !of_kind.iter().any(|file| self.accepts_value(key, &file.name)));
        if let Some(key) = unknown {
            let reason = format!("no image has it; found: {}", self.choices(key, &of_kind));
            return Problem::refused(self.filter_text(key), reason);
        }
        let all: Vec<String> = self.filters.keys().map(|key| self.filter_text(key)).collect();
        let others = |key: &str, file: &BidsFile| {
            self.filters
                .keys()
                .filter(|other| *other != key)
                .all(|other| self.accepts_value(other, &file.name))
        };
        let ways: Vec<String> = self
            .filters
            .keys()
            .map(|key| (key, of_kind.iter().copied().filter(|file| others(key, file)).collect::<Vec<_>>()))
            .filter(|(_, files)| !files.is_empty())
            .map(|(key, files)| format!("with the rest, {key} may be {}", self.choices(key, &files)))
            .collect();
        let ways = if ways.is_empty() { "leave one out".to_owned() } else { ways.join("; ") };
        Problem::refused(all.join(", "), format!("no image has all of them; {ways}"))
    }

    fn filter_text(&self, key: &str) -> String {
        format!("{key} '{}'", self.filters.get(key).map(|values| values.join(",")).unwrap_or_default())
    }

    /// Values of an entity among `files`, those most like what was asked for first.
    fn choices(&self, key: &str, files: &[&BidsFile]) -> String {
        let wanted: Vec<String> =
            self.filters.get(key).into_iter().flatten().map(|v| v.to_lowercase()).collect();
        let values = values_among(key, files.iter().map(|file| &file.name));
        let mut values: Vec<String> = values.into_iter().collect();
        values.sort_by_key(|value| {
            let value = value.to_lowercase();
            !wanted.iter().any(|wanted| value.contains(wanted.as_str()) || wanted.contains(&value))
        });
        list(&values)
    }
}

/// What is asked for as it stands in names: `space-T1w desc-preproc`.
impl fmt::Display for BidsQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |(key, values): (&String, &Vec<String>)| format!("{key}-{}", values.join(","));
        let parts: Vec<String> =
            self.filters.iter().filter(|(_, values)| **values != [NONE]).map(text).collect();
        f.write_str(&parts.join(" "))
    }
}

/// The key that stands in names for a word of the specification; any other word is its own.
pub fn key_of(word: &str) -> &str {
    WORDS.iter().find(|(long, _)| *long == word).map_or(word, |(_, key)| key)
}

/// Value of an entity; the hemisphere also where early names have it in their extension.
pub(super) fn value_of<'n>(key: &str, name: &'n BidsName) -> Option<&'n str> {
    if key == "hemi" { hemisphere(name) } else { name.get(key) }
}

/// Values of an entity, [`NONE`] where a name has it not.
pub(super) fn values_among<'n>(key: &str, names: impl Iterator<Item = &'n BidsName>) -> BTreeSet<String> {
    names.map(|name| value_of(key, name).unwrap_or(NONE).to_owned()).collect()
}

/// The first values, and how many more there are.
pub(super) fn list(values: &[String]) -> String {
    match values.len().saturating_sub(LISTED) {
        0 => values.join(", "),
        more => format!("{} and {more} more", values[..LISTED].join(", ")),
    }
}
