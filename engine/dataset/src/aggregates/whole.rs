//! Sums of whole numbers. They are added up in 128 bits, which no number of rows fills, and are an error where the sum of
//! all rows is none of 64 bits.

use arrow::{
    array::{Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, Int64Array, UInt64Array},
    datatypes::{DataType, Decimal128Type, Field, FieldRef, Int64Type, UInt64Type},
};
use datafusion::{
    common::{Result, ScalarValue, exec_err, internal_err},
    logical_expr::{Accumulator, EmitTo, GroupsAccumulator},
};
use std::sync::Arc;

const STATE: DataType = DataType::Decimal128(38, 0);

/// Whether these are sums of whole numbers.
pub(super) fn is_whole(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Int64 | DataType::UInt64)
}

/// What a part of the rows hands on.
pub(super) fn state_field(name: &str) -> FieldRef {
    Arc::new(Field::new(format!("{name}[sum]"), STATE, true))
}

/// Calls `add` with each number and its row.
fn each(values: &dyn Array, mut add: impl FnMut(usize, i128)) -> Result<()> {
    let valid = |row| values.nulls().is_none_or(|nulls| nulls.is_valid(row));
    macro_rules! add_all {
        ($values:expr) => {
            $values
                .iter()
                .enumerate()
                .filter(|(row, _)| valid(*row))
                .for_each(|(row, value)| add(row, i128::from(*value)))
        };
    }
    match values.data_type() {
        DataType::Int64 => add_all!(values.as_primitive::<Int64Type>().values()),
        DataType::UInt64 => add_all!(values.as_primitive::<UInt64Type>().values()),
        DataType::Decimal128(..) => add_all!(values.as_primitive::<Decimal128Type>().values()),
        other => return internal_err!("sums of {other} are not whole"),
    }
    Ok(())
}

fn too_large<T>(total: i128) -> Result<T> {
    exec_err!("a sum is {total}, which is no whole number of 64 bits; write sum(CAST(x AS DECIMAL(38, 0)))")
}

/// The sum of some rows.
#[derive(Debug)]
pub(super) struct WholeSum {
    total: i128,
    rows: u64,
    data_type: DataType,
}

impl WholeSum {
    pub fn new(data_type: DataType) -> Self {
        Self { total: 0, rows: 0, data_type }
    }
}

impl Accumulator for WholeSum {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let [values] = values else { return internal_err!("a sum is of one column") };
        let (mut total, mut rows) = (0, 0);
        each(values.as_ref(), |_, value| {
            total += value;
            rows += 1;
        })?;
        self.total += total;
        self.rows += rows;
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let mut gone = Self::new(self.data_type.clone());
        gone.update_batch(values)?;
        self.total -= gone.total;
        self.rows -= gone.rows;
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![ScalarValue::Decimal128((self.rows > 0).then_some(self.total), 38, 0)])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let total = (self.rows > 0).then_some(self.total);
        let fits = match self.data_type {
            DataType::UInt64 => total.map(u64::try_from).transpose().map(ScalarValue::UInt64),
            _ => total.map(i64::try_from).transpose().map(ScalarValue::Int64),
        };
        fits.or_else(|_| too_large(self.total))
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}

/// The sums of many groups.
#[derive(Debug)]
pub(super) struct WholeSums {
    /// Of groups that have rows.
    totals: Vec<i128>,
    has_rows: Vec<bool>,
    data_type: DataType,
}

impl WholeSums {
    pub fn new(data_type: DataType) -> Self {
        Self { totals: Vec::new(), has_rows: Vec::new(), data_type }
    }

    fn add(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        all: usize,
    ) -> Result<()> {
        let [values] = values else { return internal_err!("a sum is of one column") };
        self.totals.resize(all, 0);
        self.has_rows.resize(all, false);
        let (totals, has_rows) = (&mut self.totals, &mut self.has_rows);
        let mut add = |row: usize, value| {
            totals[groups[row]] += value;
            has_rows[groups[row]] = true;
        };
        match filter {
            None => each(values.as_ref(), add),
            Some(filter) => each(values.as_ref(), |row, value| {
                if filter.is_valid(row) && filter.value(row) {
                    add(row, value);
                }
            }),
        }
    }

    fn take(&mut self, emit: EmitTo) -> impl Iterator<Item = Option<i128>> {
        let (totals, has_rows) = (emit.take_needed(&mut self.totals), emit.take_needed(&mut self.has_rows));
        totals.into_iter().zip(has_rows).map(|(total, has_rows)| has_rows.then_some(total))
    }
}

impl GroupsAccumulator for WholeSums {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        all: usize,
    ) -> Result<()> {
        self.add(values, groups, filter, all)
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], all: usize) -> Result<()> {
        self.add(states, groups, None, all)
    }

    fn evaluate(&mut self, emit: EmitTo) -> Result<ArrayRef> {
        let is_unsigned = self.data_type == DataType::UInt64;
        let sums = self.take(emit).collect::<Vec<_>>();
        if is_unsigned {
            let fits = sums
                .into_iter()
                .map(|sum| sum.map(|sum| u64::try_from(sum).or_else(|_| too_large(sum))).transpose());
            return Ok(Arc::new(fits.collect::<Result<UInt64Array>>()?));
        }
        let fits = sums
            .into_iter()
            .map(|sum| sum.map(|sum| i64::try_from(sum).or_else(|_| too_large(sum))).transpose());
        Ok(Arc::new(fits.collect::<Result<Int64Array>>()?))
    }

    fn state(&mut self, emit: EmitTo) -> Result<Vec<ArrayRef>> {
        let states: Decimal128Array = self.take(emit).collect();
        Ok(vec![Arc::new(states.with_data_type(STATE))])
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let rows = values.first().map_or(0, |values| values.len());
        let groups: Vec<usize> = (0..rows).collect();
        let mut each_row = Self::new(self.data_type.clone());
        each_row.add(values, &groups, filter, rows)?;
        each_row.state(EmitTo::All)
    }

    fn size(&self) -> usize {
        self.totals.capacity() * size_of::<i128>() + self.has_rows.capacity()
    }
}
