//! Aggregates of series, element by element, as numpy computes them over rows: in 64 bits, and rounded at the end where
//! the series have 32. Rows that are null are passed over, and so are elements; NaN stays. A variance of one row is NaN.

use super::list;
use arrow::{
    array::{Array, ArrayRef, AsArray, FixedSizeListArray, Float32Array, Float64Array, ListArray},
    buffer::OffsetBuffer,
    datatypes::{DataType, Field, FieldRef, Float32Type, Float64Type},
};
use datafusion::{
    common::{Result, ScalarValue, exec_err, internal_err},
    logical_expr::Accumulator,
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
}

/// One place of the series.
#[derive(Clone, Copy, Debug, Default)]
struct Element {
    count: f64,
    /// The sum, the extreme, or the mean where a variance is computed.
    value: f64,
    /// Squares of distances from the mean.
    squares: f64,
}

impl Element {
    fn add(&mut self, kind: Kind, other: Self) {
        if other.count == 0.0 {
            return;
        }
        if self.count == 0.0 {
            *self = other;
            return;
        }
        let count = self.count + other.count;
        match kind {
            Kind::Sum | Kind::Avg => self.value += other.value,
            // NaN is neither less nor more, and is to stay.
            Kind::Min if other.value < self.value || other.value.is_nan() => self.value = other.value,
            Kind::Max if other.value > self.value || other.value.is_nan() => self.value = other.value,
            Kind::Min | Kind::Max => {}
            Kind::Stddev | Kind::StddevPop | Kind::Var | Kind::VarPop => {
                let apart = other.value - self.value;
                self.value += apart * other.count / count;
                self.squares += other.squares + apart * apart * self.count * other.count / count;
            }
        }
        self.count = count;
    }

    fn result(&self, kind: Kind) -> Option<f64> {
        (self.count > 0.0).then(|| match kind {
            Kind::Sum | Kind::Min | Kind::Max => self.value,
            Kind::Avg => self.value / self.count,
            Kind::VarPop => self.squares / self.count,
            Kind::StddevPop => (self.squares / self.count).sqrt(),
            Kind::Var => self.squares / (self.count - 1.0),
            Kind::Stddev => (self.squares / (self.count - 1.0)).sqrt(),
        })
    }
}

/// Counts, values and squares of the elements.
pub(super) fn state_fields(name: &str) -> Vec<FieldRef> {
    let numbers = |what: &str| Field::new(format!("{name}[{what}]"), numbers(), true).into();
    ["counts", "values", "squares"].map(numbers).into()
}

fn numbers() -> DataType {
    DataType::new_list(DataType::Float64, true)
}

/// Aggregates series.
#[derive(Debug)]
pub(super) struct SeriesAccumulator {
    kind: Kind,
    data_type: DataType,
    /// None before the first row.
    elements: Option<Vec<Element>>,
}

impl SeriesAccumulator {
    /// `data_type` is that of the result.
    pub fn new(kind: Kind, data_type: DataType) -> Self {
        Self { kind, data_type, elements: None }
    }

    /// Adds a row of `length` elements.
    fn add(&mut self, length: usize, element: impl Fn(usize) -> Element) -> Result<()> {
        let elements = self.elements.get_or_insert_with(|| vec![Element::default(); length]);
        if elements.len() != length {
            let known = elements.len();
            return exec_err!(
                "series of {known} and of {length} values have no common elements; group by their length, array_length(…)"
            );
        }
        for (place, known) in elements.iter_mut().enumerate() {
            known.add(self.kind, element(place));
        }
        Ok(())
    }

    fn add_row(&mut self, row: &dyn Array) -> Result<()> {
        let count = |place| if row.is_valid(place) { 1.0 } else { 0.0 };
        let element = |place, value| Element { count: count(place), value, squares: 0.0 };
        match row.data_type() {
            DataType::Float32 => {
                let values = row.as_primitive::<Float32Type>().values();
                self.add(values.len(), |place| element(place, f64::from(values[place])))
            }
            DataType::Float64 => {
                let values = row.as_primitive::<Float64Type>().values();
                self.add(values.len(), |place| element(place, values[place]))
            }
            other => internal_err!("series of {other}"),
        }
    }
}

/// The list of `row`; none where it is null.
fn list_at(lists: &dyn Array, row: usize) -> Result<Option<ArrayRef>> {
    if lists.is_null(row) {
        return Ok(None);
    }
    match lists.data_type() {
        DataType::FixedSizeList(..) => Ok(Some(lists.as_fixed_size_list().value(row))),
        DataType::List(_) => Ok(Some(lists.as_list::<i32>().value(row))),
        other => internal_err!("{other} is no list"),
    }
}

impl Accumulator for SeriesAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let [lists] = values else { return internal_err!("an aggregate of series is of one column") };
        for row in 0..lists.len() {
            if let Some(list) = list_at(lists.as_ref(), row)? {
                self.add_row(list.as_ref())?;
            }
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [counts, values, squares] = states else {
            return internal_err!("a state of series has three columns");
        };
        for row in 0..counts.len() {
            let Some(counts) = list_at(counts.as_ref(), row)? else { continue };
            let (Some(values), Some(squares)) =
                (list_at(values.as_ref(), row)?, list_at(squares.as_ref(), row)?)
            else {
                return internal_err!("a state of series lacks its values");
            };
            let [counts, values, squares] =
                [&counts, &values, &squares].map(|list| list.as_primitive::<Float64Type>().values());
            self.add(counts.len(), |place| Element {
                count: counts[place],
                value: values[place],
                squares: squares[place],
            })?;
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let parts: [fn(&Element) -> f64; 3] = [|e| e.count, |e| e.value, |e| e.squares];
        let part = |of: fn(&Element) -> f64| match &self.elements {
            None => ScalarValue::try_from(numbers()),
            Some(elements) => {
                let values = Arc::new(Float64Array::from_iter_values(elements.iter().map(of)));
                let item = Arc::new(Field::new_list_field(DataType::Float64, true));
                let offsets = OffsetBuffer::from_lengths([values.len()]);
                Ok(ScalarValue::List(Arc::new(ListArray::try_new(item, offsets, values, None)?)))
            }
        };
        parts.into_iter().map(part).collect()
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let (Some(elements), Some((item, length))) = (&self.elements, list(&self.data_type)) else {
            return ScalarValue::try_from(&self.data_type);
        };
        let results = elements.iter().map(|element| element.result(self.kind));
        let values: ArrayRef = match item.data_type() {
            DataType::Float32 => {
                Arc::new(results.map(|value| value.map(|value| value as f32)).collect::<Float32Array>())
            }
            _ => Arc::new(results.collect::<Float64Array>()),
        };
        let item = Arc::clone(item);
        Ok(match length {
            Some(length) => {
                ScalarValue::FixedSizeList(Arc::new(FixedSizeListArray::try_new(item, length, values, None)?))
            }
            None => {
                let offsets = OffsetBuffer::from_lengths([values.len()]);
                ScalarValue::List(Arc::new(ListArray::try_new(item, offsets, values, None)?))
            }
        })
    }

    fn size(&self) -> usize {
        size_of_val(self)
            + self.elements.as_ref().map_or(0, |elements| elements.capacity() * size_of::<Element>())
    }
}
