//! Aggregates that SQL's own leave out: of series, element by element, and sums of whole numbers that do not wrap.
//!
//! They have the names of DataFusion's (`sum`, `avg`, `min`, `max`, `stddev`, `var` and what these are called besides), and
//! are DataFusion's for everything else.

mod series;
mod whole;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::{
    common::{Result, ScalarValue, plan_err},
    execution::SessionStateDefaults,
    logical_expr::{
        Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, Expr, GroupsAccumulator, Operator,
        ReversedUDAF, SetMonotonicity, Signature, StatisticsArgs, Volatility,
        expr::{AggregateFunction, AggregateFunctionParams, WindowFunctionParams},
        function::{AccumulatorArgs, AggregateFunctionSimplification, StateFieldsArgs},
        type_coercion::functions::fields_with_udf,
        utils::AggregateOrderSensitivity,
    },
};
use series::{Kind, SeriesAccumulator, SeriesGroups};
use std::{hash::Hash, sync::Arc};
use whole::{WholeSum, WholeSums, is_whole};

/// DataFusion's aggregates, those of this module instead of their namesakes.
pub(crate) fn aggregate_functions() -> Vec<Arc<AggregateUDF>> {
    let all = SessionStateDefaults::default_aggregate_functions().into_iter();
    all.map(|inner| match Kind::of(inner.name()) {
        Some(kind) => {
            let signature = Signature::user_defined(Volatility::Immutable);
            Arc::new(AggregateUDF::from(Extended { inner, kind, signature }))
        }
        None => inner,
    })
    .collect()
}

/// The sum, for those who make plans without SQL.
pub(crate) fn sum(argument: Expr) -> Expr {
    let signature = Signature::user_defined(Volatility::Immutable);
    let inner = datafusion::functions_aggregate::sum::sum_udaf();
    AggregateUDF::from(Extended { inner, kind: Kind::Sum, signature }).call(vec![argument])
}

/// An aggregate of DataFusion that takes series as well.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Extended {
    inner: Arc<AggregateUDF>,
    kind: Kind,
    signature: Signature,
}

/// The fields of a list of numbers, and its length where all are of one.
fn list(data_type: &DataType) -> Option<(&FieldRef, Option<i32>)> {
    match data_type {
        DataType::FixedSizeList(item, length) if item.data_type().is_numeric() => Some((item, Some(*length))),
        DataType::List(item) if item.data_type().is_numeric() => Some((item, None)),
        _ => None,
    }
}

/// Lists as they are added up: of floats as they are, of other numbers as floats of 64 bits.
fn of_floats(data_type: &DataType) -> Option<DataType> {
    let (item, length) = list(data_type)?;
    let item = match item.data_type() {
        DataType::Float32 | DataType::Float64 => Arc::clone(item),
        _ => Arc::new(item.as_ref().clone().with_data_type(DataType::Float64)),
    };
    Some(match length {
        Some(length) => DataType::FixedSizeList(item, length),
        None => DataType::List(item),
    })
}

impl Extended {
    fn is_whole_sum(&self, return_type: &DataType, is_distinct: bool) -> bool {
        self.kind == Kind::Sum && !is_distinct && is_whole(return_type)
    }

    fn is_of_series(&self, args: &AccumulatorArgs) -> Result<bool> {
        let is_series = list(args.return_type()).is_some();
        if is_series && args.is_distinct {
            return plan_err!("{}(DISTINCT …) of series: leave DISTINCT out", self.inner.name());
        }
        Ok(is_series)
    }
}

impl AggregateUDFImpl for Extended {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        if let [of] = types
            && let Some(floats) = of_floats(of)
        {
            return Ok(vec![floats]);
        }
        let fields: Vec<FieldRef> =
            types.iter().map(|of| Arc::new(Field::new("value", of.clone(), true))).collect();
        let coerced = fields_with_udf(&fields, self.inner.as_ref())?;
        Ok(coerced.into_iter().map(|field| field.data_type().clone()).collect())
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [of] if list(of).is_some() => Ok(of_floats(of).unwrap_or_else(|| of.clone())),
            _ => self.inner.return_type(types),
        }
    }

    fn return_field(&self, fields: &[FieldRef]) -> Result<FieldRef> {
        match fields {
            [field] if list(field.data_type()).is_some() => {
                let of = self.return_type(&[field.data_type().clone()])?;
                Ok(Arc::new(Field::new(self.name(), of, true)))
            }
            _ => self.inner.return_field(fields),
        }
    }

    fn is_nullable(&self) -> bool {
        self.inner.is_nullable()
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if self.is_of_series(&args)? {
            return Ok(Box::new(SeriesAccumulator::new(self.kind, args.return_type().clone())));
        }
        if self.is_whole_sum(args.return_type(), args.is_distinct) {
            return Ok(Box::new(WholeSum::new(args.return_type().clone())));
        }
        self.inner.accumulator(args)
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        if list(args.return_type()).is_some() {
            return Ok(series::state_fields(args.name));
        }
        if self.is_whole_sum(args.return_type(), args.is_distinct) {
            return Ok(vec![whole::state_field(args.name)]);
        }
        self.inner.state_fields(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        list(args.return_type()).is_some() || self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        if self.is_of_series(&args)? {
            return Ok(Box::new(SeriesGroups::new(self.kind, args.return_type().clone())));
        }
        if self.is_whole_sum(args.return_type(), args.is_distinct) {
            return Ok(Box::new(WholeSums::new(args.return_type().clone())));
        }
        self.inner.create_groups_accumulator(args)
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if list(args.return_type()).is_some() || self.is_whole_sum(args.return_type(), args.is_distinct) {
            return self.accumulator(args);
        }
        self.inner.create_sliding_accumulator(args)
    }

    fn with_beneficial_ordering(
        self: Arc<Self>,
        beneficial: bool,
    ) -> Result<Option<Arc<dyn AggregateUDFImpl>>> {
        let ordered = Arc::clone(self.inner.inner()).with_beneficial_ordering(beneficial)?;
        Ok(ordered.map(|inner| {
            let inner = Arc::new(AggregateUDF::new_from_shared_impl(inner));
            Arc::new(Self { inner, kind: self.kind, signature: self.signature.clone() })
                as Arc<dyn AggregateUDFImpl>
        }))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.inner.order_sensitivity()
    }

    fn simplify(&self) -> Option<AggregateFunctionSimplification> {
        self.inner.simplify()
    }

    /// `sum(x + 1)` is not taken apart: what is put together again would wrap.
    fn simplify_expr_op_literal(
        &self,
        function: &AggregateFunction,
        argument: &Expr,
        operator: Operator,
        literal: &Expr,
        argument_is_left: bool,
    ) -> Result<Option<Expr>> {
        if self.kind == Kind::Sum {
            return Ok(None);
        }
        self.inner.simplify_expr_op_literal(function, argument, operator, literal, argument_is_left)
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.inner.reverse_udf()
    }

    fn is_descending(&self) -> Option<bool> {
        self.inner.is_descending()
    }

    fn value_from_stats(&self, args: &StatisticsArgs) -> Option<ScalarValue> {
        if list(args.return_type).is_some() { None } else { self.inner.value_from_stats(args) }
    }

    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        if list(data_type).is_some() {
            return ScalarValue::try_from(data_type);
        }
        self.inner.default_value(data_type)
    }

    fn supports_null_handling_clause(&self) -> bool {
        self.inner.supports_null_handling_clause()
    }

    fn supports_within_group_clause(&self) -> bool {
        self.inner.supports_within_group_clause()
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        if list(data_type).is_some() {
            SetMonotonicity::NotMonotonic
        } else {
            self.inner.inner().set_monotonicity(data_type)
        }
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn schema_name(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.inner.schema_name(params)
    }

    fn human_display(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.inner.human_display(params)
    }

    fn window_function_schema_name(&self, params: &WindowFunctionParams) -> Result<String> {
        self.inner.window_function_schema_name(params)
    }

    fn display_name(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.inner.display_name(params)
    }

    fn window_function_display_name(&self, params: &WindowFunctionParams) -> Result<String> {
        self.inner.window_function_display_name(params)
    }
}
