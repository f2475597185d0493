//! Which group goes where: decided by the groups and the seed alone.
//!
//! Groups are put in an order that only the seed decides (by a hash of their values), stratum by stratum. Parts are
//! then cut from it: shares are rounded over all groups, so that 0.2 of 10 subjects are 2, and handed on from stratum to
//! stratum, so that each has its share to within one group. Folds take turns.

use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fmt;

/// How groups are divided.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Division {
    /// Shares of the groups; the others are for training.
    Shares { test: f64, validation: f64 },
    /// Folds of the same number of groups, to within one.
    Folds(u32),
}

impl fmt::Display for Division {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shares { test, validation } => write!(f, "test {test}, validation {validation}"),
            Self::Folds(folds) => write!(f, "{folds} folds"),
        }
    }
}

/// Where a group goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Part {
    Train,
    Validation,
    Test,
    Fold(u32),
}

/// A group: its values, and those of the columns that are to be as frequent in every part.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Group {
    pub values: Vec<String>,
    pub stratum: Vec<String>,
}

impl Group {
    /// The first eight bytes of blake3 over the seed and the values, each behind its length.
    fn hash(&self, seed: u64) -> u64 {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&seed.to_le_bytes());
        for value in &self.values {
            hasher.update(&(value.len() as u64).to_le_bytes()).update(value.as_bytes());
        }
        let mut first = [0; 8];
        hasher.finalize_xof().fill(&mut first);
        u64::from_le_bytes(first)
    }
}

/// The part of each of `groups`, whatever their order.
///
/// # Errors
/// Parts that would be without a group.
pub(super) fn assign(groups: &[Group], division: Division, seed: u64) -> Result<Vec<Part>> {
    let mut order: Vec<usize> = (0..groups.len()).collect();
    order.sort_by_cached_key(|i| {
        let group = &groups[*i];
        (group.stratum.clone(), group.hash(seed), group.values.clone())
    });
    let strata: Vec<usize> =
        order.chunk_by(|a, b| groups[*a].stratum == groups[*b].stratum).map(<[usize]>::len).collect();
    let parts = match division {
        Division::Folds(folds) => folded(groups.len(), folds)?,
        Division::Shares { test, validation } => shared(&strata, test, validation)?,
    };
    let mut of_groups = vec![Part::Train; groups.len()];
    order.into_iter().zip(parts).for_each(|(group, part)| of_groups[group] = part);
    Ok(of_groups)
}

fn folded(groups: usize, folds: u32) -> Result<Vec<Part>> {
    if groups < folds as usize {
        let reason = format!("{folds} folds of {} leave folds empty", counted(groups));
        return Err(Error::Split { reason });
    }
    Ok((0..folds).cycle().take(groups).map(Part::Fold).collect())
}

fn counted(groups: usize) -> String {
    format!("{groups} group{}", if groups == 1 { "" } else { "s" })
}

/// Parts of groups in their order, by the number of groups of each stratum.
fn shared(strata: &[usize], test: f64, validation: f64) -> Result<Vec<Part>> {
    let groups: usize = strata.iter().sum();
    let whole = |share: f64| (groups as f64 * share).round() as usize;
    let (tests, validations) = (whole(test), whole(validation));
    let lacks = |part: &str, share: f64| {
        let reason = format!(
            "{part} => {share} of {} is none; take a larger share, folds, or groups that are more (by => …)",
            counted(groups)
        );
        Err(Error::Split { reason })
    };
    if tests == 0 && test > 0.0 {
        return lacks("test", test);
    }
    if validations == 0 && validation > 0.0 {
        return lacks("validation", validation);
    }
    if tests + validations >= groups {
        let reason = format!("of {} none is left to train on; take smaller shares", counted(groups));
        return Err(Error::Split { reason });
    }
    let tests = handed_on(strata, tests);
    let others: Vec<usize> = strata.iter().zip(&tests).map(|(all, test)| all - test).collect();
    let validations = handed_on(&others, validations);
    let parts = others.iter().zip(tests.iter().zip(&validations)).flat_map(|(others, (test, validation))| {
        let part = |part, n: usize| std::iter::repeat_n(part, n);
        part(Part::Test, *test)
            .chain(part(Part::Validation, *validation))
            .chain(part(Part::Train, others - validation))
    });
    Ok(parts.collect())
}

/// `wanted` dealt out over `strata` in proportion; what rounding leaves goes to the next one.
fn handed_on(strata: &[usize], wanted: usize) -> Vec<usize> {
    let all: usize = strata.iter().sum::<usize>().max(1);
    let mut before = 0;
    let up_to = |groups: usize| (2 * groups * wanted + all) / (2 * all);
    let dealt = strata.iter().map(|groups| {
        let given = up_to(before + groups) - up_to(before);
        before += groups;
        given
    });
    dealt.collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn subjects(n: usize) -> Vec<Group> {
        (0..n).map(|i| Group { values: vec![format!("{i:02}")], stratum: Vec::new() }).collect()
    }

    fn count(parts: &[Part]) -> BTreeMap<Part, usize> {
        parts.iter().fold(BTreeMap::new(), |mut counts, part| {
            *counts.entry(*part).or_default() += 1;
            counts
        })
    }

    #[test]
    fn a_fifth_of_ten_subjects_are_two() {
        let shares = Division::Shares { test: 0.2, validation: 0.1 };
        for seed in 0..50 {
            let counts = count(&assign(&subjects(10), shares, seed).unwrap());
            assert_eq!(counts, BTreeMap::from([(Part::Train, 7), (Part::Validation, 1), (Part::Test, 2)]));
        }
        let first = assign(&subjects(10), shares, 1).unwrap();
        assert!((2..20).any(|seed| assign(&subjects(10), shares, seed).unwrap() != first));
    }

    #[test]
    fn a_split_stays_as_it_is() {
        // Splits are compared over years: neither the hash nor the order may change.
        let parts = assign(&subjects(10), Division::Shares { test: 0.3, validation: 0.0 }, 7).unwrap();
        let test: Vec<usize> = (0..10).filter(|i| parts[*i] == Part::Test).collect();
        assert_eq!(test, [0, 2, 3]);
    }

    #[test]
    fn what_would_be_empty_is_refused() {
        let words = |n, division| assign(&subjects(n), division, 0).unwrap_err().to_string();
        let shares = |test, validation| Division::Shares { test, validation };
        assert!(words(2, shares(0.2, 0.0)).contains("test => 0.2 of 2 groups is none"));
        assert!(words(4, shares(0.3, 0.1)).contains("validation => 0.1"));
        assert!(words(1, shares(0.6, 0.0)).contains("none is left to train on"));
        assert!(words(4, Division::Folds(5)).contains("5 folds of 4 groups"));
        assert!(assign(&[], shares(0.2, 0.0), 0).is_err());
    }

    proptest! {
        #[test]
        fn parts_are_exact_and_do_not_depend_on_the_order(
            strata in proptest::collection::vec(0_usize..9, 1..6),
            test in 0.05_f64..0.5,
            validation in 0.0_f64..0.4,
            folds in 2_u32..6,
            seed in any::<u64>(),
        ) {
            let groups: Vec<Group> = strata.iter().enumerate().flat_map(|(s, n)| (0..*n).map(move |i| Group {
                values: vec![format!("{s}-{i}")],
                stratum: vec![s.to_string()],
            })).collect();
            let reversed: Vec<Group> = groups.iter().rev().cloned().collect();
            for division in [Division::Shares { test, validation }, Division::Folds(folds)] {
                let Ok(parts) = assign(&groups, division, seed) else { continue };
                let mut other = assign(&reversed, division, seed).unwrap();
                other.reverse();
                prop_assert_eq!(&parts, &other);
                let counts = count(&parts);
                let n = groups.len() as f64;
                let wanted = |part: Part| match division {
                    Division::Folds(folds) => n / f64::from(folds),
                    Division::Shares { test, validation } => match part {
                        Part::Test => n * test,
                        Part::Validation => n * validation,
                        _ => n - (n * test).round() - (n * validation).round(),
                    },
                };
                for (part, count) in counts {
                    let off = (count as f64 - wanted(part)).abs();
                    prop_assert!(off <= if matches!(division, Division::Folds(_)) { 0.999 } else { 0.5 }, "{part:?}");
                }
                // Every stratum has its share of what is tested on, to within one.
                let mut at = 0;
                let tested = parts.iter().filter(|p| **p == Part::Test).count() as f64;
                for stratum in &strata {
                    let here = parts[at..at + stratum].iter().filter(|p| **p == Part::Test).count() as f64;
                    prop_assert!((here - tested * *stratum as f64 / n).abs() <= 1.0);
                    at += stratum;
                }
            }
        }
    }
}
