//! Where a row comes from, and the one order that rows have however they were partitioned.
//!
//! Rows are ordered by subject, session, task, run, space and voxel as far as a table has these columns; rows
//! that these do not tell apart stay in the order of their partitions. So a training does not depend on how
//! many partitions its rows came in, or which of them was faster.

use arrow::{
    array::{Array, ArrayRef, AsArray},
    compute::cast,
    datatypes::{DataType, UInt32Type},
    error::ArrowError,
    record_batch::RecordBatch,
};
use std::{
    collections::{HashMap, HashSet},
    fmt,
};
use voxelflow_stage::{KEY_COLUMNS, key_in};

/// Text key columns that come before `voxel`.
const TEXTS: usize = 5;

/// Subject, session, task, run and space of a row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Origin([Option<String>; TEXTS]);

impl Origin {
    pub fn subject(&self) -> Option<&str> {
        self.0[0].as_deref()
    }

    /// Subject, session, task and run.
    pub fn key(&self) -> [Option<String>; TEXTS - 1] {
        std::array::from_fn(|column| self.0[column].clone())
    }

    pub fn space(&self) -> Option<&str> {
        self.0[TEXTS - 1].as_deref()
    }

    /// Subject, session, task and run, if the subject or the run is known.
    pub fn run(&self) -> Option<Self> {
        let mut run = self.clone();
        run.0[TEXTS - 1] = None;
        (run.0[0].is_some() || run.0[TEXTS - 2].is_some()).then_some(run)
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = KEY_COLUMNS.iter().zip(&self.0).filter_map(|(name, value)| Some((name, value.as_ref()?)));
        known
            .enumerate()
            .try_for_each(|(i, (name, value))| write!(f, "{}{name} {value}", if i == 0 { "" } else { ", " }))
    }
}

/// A row that has been spooled.
#[derive(Clone, Copy, Debug)]
struct Row {
    origin: u32,
    voxel: u32,
    /// Its part, by the order in which parts were met.
    part: u32,
    /// Its number in the part.
    row: u32,
    digest: u64,
}

/// Rows in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Rows {
    origins: Vec<Origin>,
    /// Of each origin the points of its series; 0 until one is met that is not null.
    points: Vec<u32>,
    /// An origin whose series are of two lengths, and these.
    uneven: Option<(Origin, [u32; 2])>,
    numbers: HashMap<Origin, u32>,
    rows: Vec<Row>,
    /// Numbers of the parts.
    parts: Vec<u64>,
    /// Whether there are rows without a column `voxel`.
    without_voxels: bool,
    /// Digests of series that do not vary.
    flat: HashSet<u64>,
}

/// A series by where it is from and what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Known {
    /// Index into the origins.
    pub origin: u32,
    pub voxel: u32,
    pub digest: u64,
}

/// What a batch says of its rows besides their keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spooled<'a> {
    /// Numbers of the parts.
    pub parts: &'a [u64],
    /// Numbers in the parts.
    pub rows: &'a [u32],
    /// Points of the series; 0 of one that is null.
    pub points: &'a [u32],
    /// Digests of the values.
    pub digests: &'a [u64],
    /// Sums of the values, and of their squares.
    pub sums: [&'a [f64]; 2],
}

/// Whether a series of so many points varies, as far as its sums say; what does not has the same digest in many places.
fn varies(points: u32, sum: f64, squares: f64) -> bool {
    let spread = f64::from(points) * squares - sum * sum;
    spread.is_finite() && spread > 1e-12 * f64::from(points) * squares
}

/// All rows in their order.
#[derive(Debug)]
pub(super) struct InOrder {
    /// Of each row its part, an index into `parts`, and its number in the part.
    pub places: Vec<[u32; 2]>,
    /// Numbers of the parts.
    pub parts: Vec<u64>,
    /// The distinct origins, sorted.
    pub origins: Vec<Origin>,
    /// Points of the series of each.
    pub points: Vec<u32>,
    /// An origin whose series are of two lengths, and these.
    pub uneven: Option<(Origin, [u32; 2])>,
    /// Every series, sorted; none where rows have no voxels, for then nothing tells that two are the same.
    pub known: Vec<Known>,
    /// Digests of series that do not vary.
    pub flat: HashSet<u64>,
    /// blake3 of the rows' digests.
    pub hash: blake3::Hash,
}

/// The key columns of one batch.
pub(super) struct Keys {
    texts: [Option<ArrayRef>; TEXTS],
    voxels: Option<ArrayRef>,
}

impl Keys {
    /// # Errors
    /// Key columns that are no texts or numbers.
    pub fn of(batch: &RecordBatch) -> Result<Self, ArrowError> {
        let column = |name: &str, data_type: &DataType| {
            batch.column_by_name(name).map(|column| cast(column, data_type)).transpose()
        };
        let mut texts = [const { None }; TEXTS];
        for (text, name) in texts.iter_mut().zip(KEY_COLUMNS) {
            *text = column(name, &DataType::Utf8)?;
        }
        Ok(Self { texts, voxels: column(KEY_COLUMNS[TEXTS], &DataType::UInt32)? })
    }

    fn text(&self, column: usize, row: usize) -> Option<&str> {
        key_in(self.texts[column].as_ref()?.as_string::<i32>(), row)
    }

    fn voxel(&self, row: usize) -> Option<u32> {
        let voxels = self.voxels.as_ref()?.as_primitive::<UInt32Type>();
        voxels.is_valid(row).then(|| voxels.value(row))
    }

    fn is(&self, row: usize, origin: &Origin) -> bool {
        origin.0.iter().enumerate().all(|(column, text)| self.text(column, row) == text.as_deref())
    }

    fn origin(&self, row: usize) -> Origin {
        Origin(std::array::from_fn(|column| self.text(column, row).map(str::to_owned)))
    }

    /// The row for a message: `subject 01, voxel 17`, or its number where it has no keys.
    pub fn describe(&self, row: usize, otherwise: &str) -> String {
        let origin = self.origin(row).to_string();
        match (origin.as_str(), self.voxel(row)) {
            ("", Some(voxel)) => format!("voxel {voxel}"),
            (_, Some(voxel)) => format!("{origin}, voxel {voxel}"),
            ("", None) => otherwise.to_owned(),
            (_, None) => format!("{origin}, {otherwise}"),
        }
    }
}

impl Rows {
    /// Adds the rows of a batch.
    pub fn extend(&mut self, keys: &Keys, spooled: Spooled<'_>) {
        self.without_voxels |= keys.voxels.is_none();
        // Neighbours mostly come from one run and one part: only a change costs a look-up.
        let mut current: Option<u32> = None;
        let rows = spooled.rows.iter().zip(spooled.points);
        let each = spooled.parts.iter().zip(rows).zip(spooled.digests).enumerate();
        for (i, ((part, (row, points)), digest)) in each {
            let same = current.filter(|number| keys.is(i, &self.origins[*number as usize]));
            let origin = match same {
                Some(number) => number,
                None => self.number(keys.origin(i)),
            };
            current = Some(origin);
            self.meets(origin as usize, *points);
            let part = self.part(*part);
            let voxel = keys.voxel(i).unwrap_or(0);
            if !varies(*points, spooled.sums[0][i], spooled.sums[1][i]) {
                self.flat.insert(*digest);
            }
            self.rows.push(Row { origin, voxel, part, row: *row, digest: *digest });
        }
    }

    fn number(&mut self, origin: Origin) -> u32 {
        let next = self.origins.len() as u32;
        let number = *self.numbers.entry(origin.clone()).or_insert(next);
        if number == next {
            self.origins.push(origin);
            self.points.push(0);
        }
        number
    }

    /// A series of the origin `number` has so many points.
    fn meets(&mut self, number: usize, points: u32) {
        let known = &mut self.points[number];
        match (*known, points) {
            (_, 0) => {}
            (0, _) => *known = points,
            (before, _) if before == points => {}
            (before, _) => {
                self.uneven.get_or_insert_with(|| (self.origins[number].clone(), [before, points]));
            }
        }
    }

    fn part(&mut self, number: u64) -> u32 {
        if self.parts.last() != Some(&number) {
            self.parts.push(number);
        }
        self.parts.len() as u32 - 1
    }

    /// All rows of `partitions`, given in their order.
    pub fn in_order(partitions: Vec<Self>) -> InOrder {
        let mut origins: Vec<Origin> = partitions.iter().flat_map(|p| p.origins.iter().cloned()).collect();
        origins.sort_unstable();
        origins.dedup();
        let mut all = Self { points: vec![0; origins.len()], origins, ..Self::default() };
        let mut rows = Vec::with_capacity(partitions.iter().map(|p| p.rows.len()).sum());
        let mut parts = Vec::new();
        let without_voxels = partitions.iter().any(|p| p.without_voxels);
        for partition in partitions {
            let Self { origins: own, points, uneven, rows: of_partition, parts: of_its_own, flat, .. } =
                partition;
            all.flat.extend(flat);
            let order: Vec<u32> =
                own.iter().map(|o| all.origins.partition_point(|known| known < o) as u32).collect();
            order.iter().zip(points).for_each(|(number, points)| all.meets(*number as usize, points));
            all.uneven = all.uneven.take().or(uneven);
            let before = parts.len() as u32;
            parts.extend(of_its_own);
            rows.extend(of_partition.into_iter().map(|row| Row {
                origin: order[row.origin as usize],
                part: before + row.part,
                ..row
            }));
        }
        // Stable: rows that the keys do not tell apart stay as they came.
        rows.sort_by_key(|row| (row.origin, row.voxel));
        let known = rows.iter().filter(|_| !without_voxels);
        let mut known: Vec<Known> =
            known.map(|row| Known { origin: row.origin, voxel: row.voxel, digest: row.digest }).collect();
        known.sort_unstable();
        let mut hasher = blake3::Hasher::new();
        let places = rows.into_iter().map(|row| {
            hasher.update(&row.digest.to_le_bytes());
            [row.part, row.row]
        });
        let Self { origins, points, uneven, flat, .. } = all;
        let (places, hash) = (places.collect(), hasher.finalize());
        InOrder { places, parts, origins, points, uneven, known, flat, hash }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use arrow::{
        array::{StringArray, UInt32Array},
        datatypes::{Field, Schema},
    };
    use std::sync::Arc;

    fn batch(subjects: &[Option<&str>], voxels: &[u32]) -> RecordBatch {
        let schema = Schema::new(vec![
            Field::new("subject", DataType::Utf8, true),
            Field::new("voxel", DataType::UInt32, false),
        ]);
        let columns: Vec<ArrayRef> = vec![
            Arc::new(StringArray::from(subjects.to_vec())),
            Arc::new(UInt32Array::from(voxels.to_vec())),
        ];
        RecordBatch::try_new(Arc::new(schema), columns).unwrap()
    }

    /// The rows of `range`, spooled into the part `part` one after the other.
    fn spooled(keys: &Keys, range: std::ops::Range<u64>, part: u64) -> Rows {
        let n = (range.end - range.start) as usize;
        let (parts, rows): (Vec<u64>, Vec<u32>) = (vec![part; n], (0..n as u32).collect());
        let points = vec![20; n];
        let digests: Vec<u64> = range.collect();
        let mut all = Rows::default();
        let sums = [&vec![0.0; n][..], &vec![1.0; n][..]];
        all.extend(keys, Spooled { parts: &parts, rows: &rows, points: &points, digests: &digests, sums });
        all
    }

    #[test]
    fn series_of_a_run_are_of_one_length() {
        let keys = Keys::of(&batch(&[Some("a"), Some("b"), Some("a"), Some("b")], &[1, 1, 2, 2])).unwrap();
        let of = |points: [u32; 4]| {
            let mut all = Rows::default();
            let sums = [&[0.0; 4][..], &[1.0; 4][..]];
            let rows =
                Spooled { parts: &[0; 4], rows: &[0, 1, 2, 3], points: &points, digests: &[0; 4], sums };
            all.extend(&keys, rows);
            all
        };
        // A series that is null is of any length.
        let both = Rows::in_order(vec![of([20, 30, 20, 0]), of([0, 30, 20, 30])]);
        assert_eq!((both.points, both.uneven), (vec![20, 30], None));
        let b = |found: Option<(Origin, [u32; 2])>| found.map(|(o, both)| (o.to_string(), both)).unwrap();
        assert_eq!(b(Rows::in_order(vec![of([20, 30, 20, 31])]).uneven), ("subject b".into(), [30, 31]));
        let apart = Rows::in_order(vec![of([20, 30, 20, 30]), of([21, 30, 21, 30])]);
        assert_eq!(b(apart.uneven), ("subject a".into(), [20, 21]));
    }

    #[test]
    fn one_order_for_every_partitioning() {
        let subjects = [Some("b"), Some("a"), None, Some("a"), Some("b")];
        let voxels = [1, 9, 3, 2, 0];
        let all = Keys::of(&batch(&subjects, &voxels)).unwrap();
        let whole = Rows::in_order(vec![spooled(&all, 0..5, 77)]);
        assert_eq!(whole.places, [2, 3, 1, 4, 0].map(|row| [0, row]));
        assert_eq!(whole.parts, [77]);
        let subjects_in_order: Vec<_> = whole.origins.iter().map(Origin::subject).collect();
        assert_eq!(subjects_in_order, [None, Some("a"), Some("b")]);
        let mut partitions = vec![Rows::default()];
        for range in [3..5, 0..3] {
            let keys = Keys::of(&batch(&subjects[range.clone()], &voxels[range.clone()])).unwrap();
            partitions.push(spooled(&keys, range.start as u64..range.end as u64, range.start as u64));
        }
        let cut = Rows::in_order(partitions);
        assert_eq!(cut.places, [[1, 2], [0, 0], [1, 1], [0, 1], [1, 0]]);
        assert_eq!((cut.parts, cut.hash), (vec![3, 0], whole.hash));
        assert_eq!(all.describe(1, "row 1"), "subject a, voxel 9");
        assert_eq!(all.describe(2, "row 2"), "voxel 3");
    }

    #[test]
    fn rows_without_keys_stay_as_they_came() {
        let none = RecordBatch::try_new_with_options(
            Arc::new(Schema::empty()),
            Vec::new(),
            &arrow::record_batch::RecordBatchOptions::new().with_row_count(Some(3)),
        );
        let keys = Keys::of(&none.unwrap()).unwrap();
        let order = Rows::in_order(vec![spooled(&keys, 4..7, 1), spooled(&keys, 0..3, 2)]);
        assert_eq!(order.places, [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]);
        assert_eq!(keys.describe(2, "row 2"), "row 2");
    }
}
