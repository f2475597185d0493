//! Aggregates of series, element by element, as numpy computes them over rows: in 64 bits, and rounded at the end where
//! the series have 32. Rows that are null are passed over, and so are elements; NaN stays. A variance of one row is NaN.

use super::list;
use crate::lists::{elements, elements_of};
use arrow::{
    array::{
        Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, FixedSizeListArray, Float32Array,
        Float64Array, Float64Builder, ListArray, ListBuilder,
    },
    buffer::{NullBuffer, OffsetBuffer},
    datatypes::{DataType, Field, FieldRef, Float32Type, Float64Type},
};
use datafusion::{
    common::{Result, ScalarValue, exec_err, internal_err},
    logical_expr::{Accumulator, EmitTo, GroupsAccumulator},
};
use std::sync::Arc;

/// What is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Sum,
    Avg,
    Min,
    Max,
    Stddev,
    StddevPop,
    Var,
    VarPop,
}

impl Kind {
    /// That of DataFusion's function of this name.
    pub fn of(name: &str) -> Option<Self> {
        Some(match name {
            "sum" => Self::Sum,
            "avg" => Self::Avg,
            "min" => Self::Min,
            "max" => Self::Max,
            "stddev" => Self::Stddev,
            "stddev_pop" => Self::StddevPop,
            "var" => Self::Var,
            "var_pop" => Self::VarPop,
            _ => return None,
        })
    }

    fn is_spread(self) -> bool {
        matches!(self, Self::Stddev | Self::StddevPop | Self::Var | Self::VarPop)
    }
}

/// Values that were added.
#[derive(Debug)]
enum Counts {
    /// As many at every place.
    All(f64),
    /// At each place.
    Each(Vec<f64>),
}

/// The rows of one group.
#[derive(Debug)]
struct Group {
    counts: Counts,
    /// Sums, extremes, or means where a variance is computed.
    values: Vec<f64>,
    /// Squares of distances from the means; empty where no variance is computed.
    squares: Vec<f64>,
}

impl Group {
    fn new(kind: Kind, length: usize) -> Self {
        let squares = if kind.is_spread() { vec![0.0; length] } else { Vec::new() };
        Self { counts: Counts::All(0.0), values: vec![0.0; length], squares }
    }

    /// Bytes of a group that has been given nulls, the most that it takes.
    fn bytes(kind: Kind, length: usize) -> usize {
        size_of::<Self>() + length * size_of::<f64>() * if kind.is_spread() { 3 } else { 2 }
    }

    fn check(&self, length: usize) -> Result<()> {
        let known = self.values.len();
        if known == length {
            return Ok(());
        }
        exec_err!(
            "series of {known} and of {length} values have no common elements; group by their length, array_length(…)"
        )
    }

    fn count(&self, place: usize) -> f64 {
        match &self.counts {
            Counts::All(count) => *count,
            Counts::Each(counts) => counts[place],
        }
    }

    fn add<T: Copy + Into<f64>>(&mut self, kind: Kind, row: &[T], nulls: Option<&NullBuffer>) -> Result<()> {
        self.check(row.len())?;
        if let (None, Counts::All(count)) = (nulls, &mut self.counts) {
            *count += 1.0;
            let count = *count;
            self.add_whole(kind, row, count);
            return Ok(());
        }
        for (place, value) in row.iter().enumerate() {
            if nulls.is_none_or(|nulls| nulls.is_valid(place)) {
                self.add_at(kind, place, (1.0, (*value).into(), 0.0));
            }
        }
        Ok(())
    }

    /// A row without nulls to rows without nulls, which are `count` with it.
    fn add_whole<T: Copy + Into<f64>>(&mut self, kind: Kind, row: &[T], count: f64) {
        let places = self.values.iter_mut().zip(row.iter().map(|value| (*value).into()));
        if count == 1.0 {
            return places.for_each(|(known, value)| *known = value);
        }
        match kind {
            Kind::Sum | Kind::Avg => places.for_each(|(known, value)| *known += value),
            // NaN is neither less nor more, and is to stay.
            Kind::Min => places.for_each(|(known, value): (&mut f64, f64)| {
                *known = if value < *known || value.is_nan() { value } else { *known };
            }),
            Kind::Max => places.for_each(|(known, value): (&mut f64, f64)| {
                *known = if value > *known || value.is_nan() { value } else { *known };
            }),
            Kind::Stddev | Kind::StddevPop | Kind::Var | Kind::VarPop => {
                for ((mean, value), squares) in places.zip(&mut self.squares) {
                    let apart = value - *mean;
                    *mean += apart / count;
                    *squares += apart * (value - *mean);
                }
            }
        }
    }

    /// Some values at one place: how many, and their value and squares.
    fn add_at(&mut self, kind: Kind, place: usize, (n, value, squares): (f64, f64, f64)) {
        if n == 0.0 {
            return;
        }
        let length = self.values.len();
        if let Counts::All(count) = self.counts {
            self.counts = Counts::Each(vec![count; length]);
        }
        let Counts::Each(counts) = &mut self.counts else { return };
        let (before, known) = (counts[place], &mut self.values[place]);
        counts[place] += n;
        if before == 0.0 {
            *known = value;
            self.squares.get_mut(place).into_iter().for_each(|known| *known = squares);
            return;
        }
        match kind {
            Kind::Sum | Kind::Avg => *known += value,
            Kind::Min if value < *known || value.is_nan() => *known = value,
            Kind::Max if value > *known || value.is_nan() => *known = value,
            Kind::Min | Kind::Max => {}
            Kind::Stddev | Kind::StddevPop | Kind::Var | Kind::VarPop => {
                let (apart, all) = (value - *known, before + n);
                *known += apart * n / all;
                self.squares[place] += squares + apart * apart * before * n / all;
            }
        }
    }

    /// Adds what another process, or another thread, has added up.
    fn merge(&mut self, kind: Kind, counts: &[f64], values: &[f64], squares: &[f64]) -> Result<()> {
        self.check(values.len())?;
        let is_first = matches!(self.counts, Counts::All(0.0));
        match (&mut self.counts, counts) {
            (Counts::All(count), [n]) if is_first => {
                *count = *n;
                self.values.copy_from_slice(values);
                self.squares.copy_from_slice(squares);
            }
            (Counts::All(count), [n]) if matches!(kind, Kind::Sum | Kind::Avg) => {
                *count += n;
                self.values.iter_mut().zip(values).for_each(|(known, value)| *known += value);
            }
            _ => {
                for (place, value) in values.iter().enumerate() {
                    let n = if counts.len() == 1 { counts[0] } else { counts[place] };
                    self.add_at(kind, place, (n, *value, squares.get(place).copied().unwrap_or(0.0)));
                }
            }
        }
        Ok(())
    }

    fn result(&self, kind: Kind, place: usize) -> Option<f64> {
        let (count, value) = (self.count(place), self.values[place]);
        (count > 0.0).then(|| match kind {
            Kind::Sum | Kind::Min | Kind::Max => value,
            Kind::Avg => value / count,
            Kind::VarPop => self.squares[place] / count,
            Kind::StddevPop => (self.squares[place] / count).sqrt(),
            Kind::Var => self.squares[place] / (count - 1.0),
            Kind::Stddev => (self.squares[place] / (count - 1.0)).sqrt(),
        })
    }
}

/// Counts (one, if all places have as many), values and squares of the elements.
pub(super) fn state_fields(name: &str) -> Vec<FieldRef> {
    let numbers = |what: &str| {
        let list = DataType::new_list(DataType::Float64, true);
        Field::new(format!("{name}[{what}]"), list, true).into()
    };
    ["counts", "values", "squares"].map(numbers).into()
}

/// Aggregates the series of many groups.
#[derive(Debug)]
pub(super) struct SeriesGroups {
    kind: Kind,
    /// That of the result.
    data_type: DataType,
    /// None before a group's first row.
    groups: Vec<Option<Group>>,
    bytes: usize,
}

impl SeriesGroups {
    /// `data_type` is that of the result.
    pub fn new(kind: Kind, data_type: DataType) -> Self {
        Self { kind, data_type, groups: Vec::new(), bytes: 0 }
    }

    fn group(&mut self, group: usize, length: usize) -> &mut Group {
        let (kind, bytes) = (self.kind, &mut self.bytes);
        self.groups[group].get_or_insert_with(|| {
            *bytes += Group::bytes(kind, length);
            Group::new(kind, length)
        })
    }

    fn add<T>(&mut self, lists: &dyn Array, group_of: impl Fn(usize) -> Option<usize>) -> Result<()>
    where
        T: ArrowPrimitiveType,
        T::Native: Into<f64>,
    {
        let (values, kind) = (elements(lists)?.as_primitive::<T>(), self.kind);
        for row in 0..lists.len() {
            let Some(group) = group_of(row).filter(|_| lists.is_valid(row)) else { continue };
            let range = elements_of(lists, row)?;
            let nulls = values.nulls().map(|nulls| nulls.slice(range.start, range.len()));
            let nulls = nulls.filter(|nulls| nulls.null_count() > 0);
            self.group(group, range.len()).add(kind, &values.values()[range], nulls.as_ref())?;
        }
        Ok(())
    }

    /// Adds the rows for which `group_of` gives a group.
    fn update(&mut self, values: &[ArrayRef], group_of: impl Fn(usize) -> Option<usize>) -> Result<()> {
        let [lists] = values else { return internal_err!("an aggregate of series is of one column") };
        match list(lists.data_type()).map(|(item, _)| item.data_type()) {
            Some(DataType::Float32) => self.add::<Float32Type>(lists.as_ref(), group_of),
            Some(DataType::Float64) => self.add::<Float64Type>(lists.as_ref(), group_of),
            _ => internal_err!("series of {}", lists.data_type()),
        }
    }

    fn merge(&mut self, states: &[ArrayRef], group_of: impl Fn(usize) -> usize) -> Result<()> {
        let [counts, values, squares] = states else {
            return internal_err!("a state of series has three columns");
        };
        for row in (0..counts.len()).filter(|row| counts.is_valid(*row)) {
            let [counts, values, squares] =
                [counts, values, squares].map(|lists| lists.as_list::<i32>().value(row));
            let [counts, values, squares] =
                [&counts, &values, &squares].map(|list| list.as_primitive::<Float64Type>().values());
            let kind = self.kind;
            self.group(group_of(row), values.len()).merge(kind, counts, values, squares)?;
        }
        Ok(())
    }

    fn take(&mut self, emit: EmitTo) -> Vec<Option<Group>> {
        let taken = emit.take_needed(&mut self.groups);
        let bytes = taken.iter().flatten().map(|group| Group::bytes(self.kind, group.values.len()));
        self.bytes = self.bytes.saturating_sub(bytes.sum());
        taken
    }

    fn results(&self, groups: &[Option<Group>]) -> Result<ArrayRef> {
        let Some((item, length)) = list(&self.data_type) else {
            return internal_err!("an aggregate of series gives {}", self.data_type);
        };
        let nulls: NullBuffer = groups.iter().map(Option::is_some).collect();
        let length_of = |group: &Option<Group>| {
            let absent = length.map_or(0, |length| length.unsigned_abs() as usize);
            group.as_ref().map_or(absent, |group| group.values.len())
        };
        let all = groups.iter().flat_map(|group| {
            (0..length_of(group)).map(|place| group.as_ref().and_then(|group| group.result(self.kind, place)))
        });
        let values: ArrayRef = match item.data_type() {
            DataType::Float32 => {
                Arc::new(all.map(|value| value.map(|value| value as f32)).collect::<Float32Array>())
            }
            _ => Arc::new(all.collect::<Float64Array>()),
        };
        let item = Arc::clone(item);
        Ok(match length {
            Some(length) => Arc::new(FixedSizeListArray::try_new(item, length, values, Some(nulls))?),
            None => {
                let offsets = OffsetBuffer::from_lengths(groups.iter().map(length_of));
                Arc::new(ListArray::try_new(item, offsets, values, Some(nulls))?)
            }
        })
    }
}

fn states(groups: &[Option<Group>]) -> Vec<ArrayRef> {
    let part = |of: fn(&Group) -> &[f64]| {
        let mut lists = ListBuilder::new(Float64Builder::new());
        for group in groups {
            lists.values().append_slice(group.as_ref().map_or(&[], of));
            lists.append(group.is_some());
        }
        Arc::new(lists.finish()) as ArrayRef
    };
    let counts: fn(&Group) -> &[f64] = |group| match &group.counts {
        Counts::All(count) => std::slice::from_ref(count),
        Counts::Each(counts) => counts,
    };
    vec![part(counts), part(|group| &group.values), part(|group| &group.squares)]
}

impl GroupsAccumulator for SeriesGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        all: usize,
    ) -> Result<()> {
        self.groups.resize_with(all, || None);
        self.update(values, |row| {
            filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row)).then(|| groups[row])
        })
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], all: usize) -> Result<()> {
        self.groups.resize_with(all, || None);
        self.merge(states, |row| groups[row])
    }

    fn evaluate(&mut self, emit: EmitTo) -> Result<ArrayRef> {
        let groups = self.take(emit);
        self.results(&groups)
    }

    fn state(&mut self, emit: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(states(&self.take(emit)))
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let rows = values.first().map_or(0, |lists| lists.len());
        let mut each = Self::new(self.kind, self.data_type.clone());
        each.update_batch(values, &(0..rows).collect::<Vec<_>>(), filter, rows)?;
        each.state(EmitTo::All)
    }

    fn size(&self) -> usize {
        self.bytes + self.groups.capacity() * size_of::<Option<Group>>()
    }
}

/// Aggregates series that are one group.
#[derive(Debug)]
pub(super) struct SeriesAccumulator(SeriesGroups);

impl SeriesAccumulator {
    /// `data_type` is that of the result.
    pub fn new(kind: Kind, data_type: DataType) -> Self {
        let mut groups = SeriesGroups::new(kind, data_type);
        groups.groups.push(None);
        Self(groups)
    }
}

impl Accumulator for SeriesAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.update(values, |_| Some(0))
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.0.merge(states, |_| 0)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        states(&self.0.groups).iter().map(|column| ScalarValue::try_from_array(column, 0)).collect()
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        ScalarValue::try_from_array(&self.0.results(&self.0.groups)?, 0)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.0.bytes
    }
}
