//! Sets of numbers as sorted ranges: which visits of a block are done, taken or free.

use std::ops::Range;

/// Disjoint, non-empty ranges in ascending order, none touching the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ranges(Vec<Range<usize>>);

impl From<Range<usize>> for Ranges {
    fn from(range: Range<usize>) -> Self {
        let mut ranges = Self::default();
        ranges.insert(range);
        ranges
    }
}

impl Ranges {
    /// The ranges, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Range<usize>> {
        self.0.iter().cloned()
    }

    /// How many numbers.
    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(Range::len).sum()
    }

    /// True without numbers.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first range.
    pub(crate) fn first(&self) -> Option<Range<usize>> {
        self.0.first().cloned()
    }

    /// Whether all of `range` is here.
    pub(crate) fn contains(&self, range: &Range<usize>) -> bool {
        range.is_empty() || self.0.iter().any(|r| r.start <= range.start && range.end <= r.end)
    }

    /// Adds `range`.
    pub(crate) fn insert(&mut self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        // Those that overlap or touch become one.
        let from = self.0.partition_point(|r| r.end < range.start);
        let to = self.0.partition_point(|r| r.start <= range.end);
        let start = self.0.get(from).filter(|_| from < to).map_or(range.start, |r| r.start.min(range.start));
        let end = if from < to { self.0[to - 1].end.max(range.end) } else { range.end };
        self.0.splice(from..to, std::iter::once(start..end));
    }

    /// Takes `range` out, as far as it is here.
    pub(crate) fn remove(&mut self, range: &Range<usize>) {
        if range.is_empty() {
            return;
        }
        let from = self.0.partition_point(|r| r.end <= range.start);
        let to = self.0.partition_point(|r| r.start < range.end);
        if from >= to {
            return;
        }
        let left = self.0[from].start..range.start;
        let right = range.end..self.0[to - 1].end;
        self.0.splice(from..to, [left, right].into_iter().filter(|r| r.start < r.end));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn ranges_are_the_set_that_they_stand_for(
            steps in prop::collection::vec((any::<bool>(), 0_usize..30, 0_usize..9), 0..40),
        ) {
            let (mut ranges, mut set) = (Ranges::default(), BTreeSet::new());
            for (add, start, length) in steps {
                let range = start..start + length;
                if add {
                    ranges.insert(range.clone());
                    set.extend(range);
                } else {
                    ranges.remove(&range);
                    range.for_each(|n| { set.remove(&n); });
                }
                let listed: Vec<usize> = ranges.iter().flatten().collect();
                prop_assert_eq!(&listed, &set.iter().copied().collect::<Vec<_>>());
                prop_assert!(ranges.0.windows(2).all(|w| w[0].end < w[1].start));
                prop_assert_eq!(ranges.len(), set.len());
            }
        }
    }
}
