//! `series * 2`, `a.series - b.series`: arithmetic of lists with numbers and with lists, element by element, as numpy
//! has it.
//!
//! Lists of 32-bit floats give such lists, all others lists of 64-bit floats; they are computed in 64 bits. Where one of the
//! two, or an element of it, is null, so is the result. Lists of two lengths are an error.

use arrow::{
    array::{Array, ArrayRef, AsArray, FixedSizeListArray, Float32Array, Float64Array, ListArray},
    buffer::{NullBuffer, OffsetBuffer},
    compute::cast,
    datatypes::{DataType, Field, FieldRef, Float64Type},
};
use datafusion::{
    common::{DFSchema, ExprSchema, Result, exec_err, plan_err},
    logical_expr::{
        ColumnarValue, Expr, ExprSchemable, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
        Volatility,
        planner::{ExprPlanner, PlannerResult, RawBinaryExpr},
    },
    sql::sqlparser::ast::BinaryOperator,
};
use std::sync::{Arc, LazyLock};

/// An operation and its function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Operation {
    Plus,
    Minus,
    Times,
    By,
}

static FUNCTIONS: LazyLock<[Arc<ScalarUDF>; 4]> = LazyLock::new(|| {
    [Operation::Plus, Operation::Minus, Operation::Times, Operation::By].map(|operation| {
        let signature = Signature::user_defined(Volatility::Immutable);
        Arc::new(ScalarUDF::from(SeriesFunction { operation, signature }))
    })
});

/// The functions, as a session registers them.
pub(crate) fn functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    FUNCTIONS.iter().cloned()
}

/// Plans operators with a list on one side.
#[derive(Debug)]
pub(crate) struct SeriesOperators;

impl ExprPlanner for SeriesOperators {
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        let function = match &expr.op {
            BinaryOperator::Plus => &FUNCTIONS[0],
            BinaryOperator::Minus => &FUNCTIONS[1],
            BinaryOperator::Multiply => &FUNCTIONS[2],
            BinaryOperator::Divide => &FUNCTIONS[3],
            _ => return Ok(PlannerResult::Original(expr)),
        };
        let is_series = |side: &Expr| of_numbers(side, schema);
        if !is_series(&expr.left) && !is_series(&expr.right) {
            return Ok(PlannerResult::Original(expr));
        }
        Ok(PlannerResult::Planned(function.call(vec![expr.left, expr.right])))
    }
}

fn of_numbers(side: &Expr, schema: &dyn ExprSchema) -> bool {
    side.get_type(schema)
        .is_ok_and(|data_type| item(&data_type).is_some_and(|item| item.data_type().is_numeric()))
}

fn item(data_type: &DataType) -> Option<&FieldRef> {
    match data_type {
        DataType::FixedSizeList(item, _) | DataType::List(item) => Some(item),
        _ => None,
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct SeriesFunction {
    operation: Operation,
    signature: Signature,
}

impl ScalarUDFImpl for SeriesFunction {
    fn name(&self) -> &str {
        match self.operation {
            Operation::Plus => "series_plus",
            Operation::Minus => "series_minus",
            Operation::Times => "series_times",
            Operation::By => "series_divided_by",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    /// Sides are taken as they are.
    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.return_type(types)?;
        Ok(types.to_vec())
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let [left, right] = types else { return plan_err!("{} needs two arguments", self.name()) };
        let is_number = |of: &DataType| of.is_numeric() || of.is_null();
        if let Some(other) =
            [left, right].into_iter().find(|of| !is_number(item(of).map_or(*of, |item| item.data_type())))
        {
            return plan_err!(
                "a series and {other} have no sum, difference, product or quotient; CAST it to a number"
            );
        }
        // Numbers beside a series of 32 bits do not make it one of 64.
        let small =
            [left, right].into_iter().filter_map(item).all(|item| *item.data_type() == DataType::Float32);
        let of = if small { DataType::Float32 } else { DataType::Float64 };
        let field = |item: &FieldRef| Arc::new(Field::new(item.name(), of.clone(), true));
        match (left, right) {
            (DataType::FixedSizeList(_, n), DataType::FixedSizeList(_, m)) if n != m => {
                plan_err!("series of {n} and of {m} values have no common elements")
            }
            (DataType::FixedSizeList(item, n), _) | (_, DataType::FixedSizeList(item, n)) => {
                Ok(DataType::FixedSizeList(field(item), *n))
            }
            (DataType::List(item), _) | (_, DataType::List(item)) => Ok(DataType::List(field(item))),
            _ => plan_err!("{} needs a series", self.name()),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let sides = args.args.iter().map(|side| Side::of(side, rows)).collect::<Result<Vec<_>>>()?;
        let [left, right] = sides.as_slice() else { return plan_err!("{} needs two arguments", self.name()) };
        let combined = combined(self.operation, left, right, rows, args.return_field.data_type())?;
        Ok(ColumnarValue::Array(combined))
    }
}

/// One side of an operation, in 64 bits.
struct Side {
    values: Float64Array,
    /// Where the list of each row begins and ends; none for numbers.
    lists: Option<(OffsetBuffer<i32>, Option<NullBuffer>)>,
    /// One row stands for all.
    is_constant: bool,
}

impl Side {
    fn of(side: &ColumnarValue, rows: usize) -> Result<Self> {
        let is_constant = matches!(side, ColumnarValue::Scalar(_));
        let array = side.to_array(if is_constant { 1 } else { rows })?;
        let (values, lists) = match array.data_type() {
            DataType::FixedSizeList(..) => {
                let list = array.as_fixed_size_list();
                let length = usize::try_from(list.value_length()).unwrap_or_default();
                let offsets = OffsetBuffer::from_repeated_length(length, list.len());
                (Arc::clone(list.values()), Some((offsets, list.nulls().cloned())))
            }
            DataType::List(_) => {
                let list = array.as_list::<i32>();
                (Arc::clone(list.values()), Some((list.offsets().clone(), list.nulls().cloned())))
            }
            _ => (array, None),
        };
        let values = cast(&values, &DataType::Float64)?.as_primitive::<Float64Type>().clone();
        Ok(Self { values, lists, is_constant })
    }

    /// The places of the values of a row; none where it is null. A number has one.
    fn row(&self, row: usize) -> Option<std::ops::Range<usize>> {
        let row = if self.is_constant { 0 } else { row };
        match &self.lists {
            None => self.values.is_valid(row).then_some(row..row + 1),
            Some((offsets, nulls)) => {
                let valid = nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
                valid.then(|| offsets[row] as usize..offsets[row + 1] as usize)
            }
        }
    }

    fn is_null(&self, place: usize) -> bool {
        self.values.is_null(place)
    }
}

fn combined(operation: Operation, left: &Side, right: &Side, rows: usize, of: &DataType) -> Result<ArrayRef> {
    let fixed =
        if let DataType::FixedSizeList(_, length) = of { usize::try_from(*length).ok() } else { None };
    let mut values: Vec<f64> = Vec::new();
    // Whether each element, and each row, is one: most series have no null.
    let (mut valid, mut all_valid) = (Vec::new(), true);
    let (mut lengths, mut whole) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
    for row in 0..rows {
        let (Some(a), Some(b)) = (left.row(row), right.row(row)) else {
            let length = fixed.unwrap_or_default();
            values.resize(values.len() + length, 0.0);
            valid.resize(values.len(), true);
            lengths.push(length);
            whole.push(false);
            continue;
        };
        let length = match (&left.lists, &right.lists) {
            (Some(_), Some(_)) if a.len() != b.len() => {
                return exec_err!("series of {} and of {} values have no common elements", a.len(), b.len());
            }
            (Some(_), _) => a.len(),
            _ => b.len(),
        };
        for place in 0..length {
            let at = |side: &Side, range: &std::ops::Range<usize>| {
                range.start + if side.lists.is_some() { place } else { 0 }
            };
            let (x, y) = (at(left, &a), at(right, &b));
            let is_valid = !left.is_null(x) && !right.is_null(y);
            all_valid &= is_valid;
            valid.push(is_valid);
            let (x, y) = (left.values.value(x), right.values.value(y));
            values.push(match operation {
                Operation::Plus => x + y,
                Operation::Minus => x - y,
                Operation::Times => x * y,
                Operation::By => x / y,
            });
        }
        lengths.push(length);
        whole.push(true);
    }
    let elements = (!all_valid).then(|| NullBuffer::from(valid));
    let nulls = whole.contains(&false).then(|| NullBuffer::from(whole));
    let Some(item) = item(of) else { return exec_err!("{of} is no list") };
    let values: ArrayRef = match item.data_type() {
        DataType::Float32 => {
            let small: Vec<f32> = values.into_iter().map(|value| value as f32).collect();
            Arc::new(Float32Array::new(small.into(), elements))
        }
        _ => Arc::new(Float64Array::new(values.into(), elements)),
    };
    let item = Arc::clone(item);
    Ok(match of {
        DataType::FixedSizeList(_, length) => {
            Arc::new(FixedSizeListArray::try_new(item, *length, values, nulls)?)
        }
        _ => Arc::new(ListArray::try_new(item, OffsetBuffer::from_lengths(lengths), values, nulls)?),
    })
}
