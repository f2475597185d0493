//! NaN in Parquet: statistics leave it out, so that they decide nothing about columns of floats.
//!
//! Least and greatest values of a file, a row group or a page are those of its numbers. By them a column of NaN and 1
//! is the constant 1, and no row of it differs from 1. [`ForgetFloats`] takes these values of floats out of a plan
//! before anyone has looked at them, [`AskFloats`] has a scan ask the rows themselves: in its condition a column of
//! floats stands as `with_nan(column)`, through which statistics, page indexes and filters of row groups cannot look.
//! Both are in the plan, so that they hold wherever it runs. Columns of other types are pruned as ever.

use arrow::datatypes::{DataType, Field, Schema};
use datafusion::{
    common::{
        Statistics,
        stats::Precision,
        tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion},
    },
    config::ConfigOptions,
    datasource::{
        physical_plan::{FileGroup, FileScanConfig, FileScanConfigBuilder, FileSource, ParquetSource},
        source::DataSourceExec,
    },
    error::{DataFusionError, Result},
    logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility},
    physical_expr::{PhysicalExpr, ScalarFunctionExpr, expressions::Column},
    physical_optimizer::PhysicalOptimizerRule,
    physical_plan::ExecutionPlan,
};
use std::sync::{Arc, LazyLock};

static WITH_NAN: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    Arc::new(ScalarUDF::from(WithNan { signature: Signature::any(1, Volatility::Immutable) }))
});

/// The function, as a session registers it.
pub(crate) fn with_nan() -> Arc<ScalarUDF> {
    Arc::clone(&WITH_NAN)
}

/// Its argument.
#[derive(Debug, PartialEq, Eq, Hash)]
struct WithNan {
    signature: Signature,
}

impl ScalarUDFImpl for WithNan {
    fn name(&self) -> &str {
        "with_nan"
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        types.first().cloned().ok_or_else(|| DataFusionError::Plan("with_nan needs a value".into()))
    }
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let value = args.args.into_iter().next();
        value.ok_or_else(|| DataFusionError::Plan("with_nan needs a value".into()))
    }
}

/// Whether NaN can be among values of a type, however deep.
fn may_have_nan(data_type: &DataType) -> bool {
    match data_type {
        DataType::Float16 | DataType::Float32 | DataType::Float64 => true,
        DataType::Dictionary(_, values) => may_have_nan(values),
        DataType::RunEndEncoded(_, field)
        | DataType::List(field)
        | DataType::LargeList(field)
        | DataType::ListView(field)
        | DataType::LargeListView(field)
        | DataType::FixedSizeList(field, _)
        | DataType::Map(field, _) => may_have_nan(field.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| may_have_nan(field.data_type())),
        _ => false,
    }
}

/// Takes the least and greatest values of floats out of scans. The first rule: others go by them.
#[derive(Debug)]
pub(crate) struct ForgetFloats;

impl PhysicalOptimizerRule for ForgetFloats {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        change_scans(plan, |config, source| {
            let table = source.table_schema().table_schema();
            if !table.fields().iter().any(|field| may_have_nan(field.data_type())) {
                return Ok(None);
            }
            let mut whole = config.statistics();
            forget_floats(&mut whole, table);
            let groups = config.file_groups.iter().map(|group| without_floats(group, table)).collect();
            let builder = FileScanConfigBuilder::from(config.clone());
            Ok(Some(builder.with_statistics(whole).with_file_groups(groups).build()))
        })
    }

    fn name(&self) -> &str {
        "forget_floats"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Has scans ask their rows where a condition is about floats. After all rules that give a scan its condition.
#[derive(Debug)]
pub(crate) struct AskFloats;

impl PhysicalOptimizerRule for AskFloats {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        options: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options = Arc::new(options.clone());
        change_scans(plan, |config, source| {
            let Some(condition) = source.filter() else { return Ok(None) };
            let asked = asking(condition, source.table_schema().table_schema(), &options)?;
            let changed = asked.transformed.then(|| Arc::new(source.with_predicate(asked.data)));
            Ok(changed.map(|source| FileScanConfigBuilder::from(config.clone()).with_source(source).build()))
        })
    }

    fn name(&self) -> &str {
        "ask_floats"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The plan with `change` made of its scans of Parquet.
fn change_scans(
    plan: Arc<dyn ExecutionPlan>,
    change: impl Fn(&FileScanConfig, &ParquetSource) -> Result<Option<FileScanConfig>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|node| {
        let scan = node.downcast_ref::<DataSourceExec>();
        let parquet = scan.and_then(DataSourceExec::downcast_to_file_source::<ParquetSource>);
        let Some((config, source)) = parquet else { return Ok(Transformed::no(node)) };
        Ok(match change(config, source)? {
            Some(config) => Transformed::yes(DataSourceExec::from_data_source(config) as _),
            None => Transformed::no(node),
        })
    })
    .data()
}

fn without_floats(group: &FileGroup, table: &Schema) -> FileGroup {
    let files = group.iter().cloned().map(|mut file| {
        if let Some(statistics) = &mut file.statistics {
            forget_floats(Arc::make_mut(statistics), table);
        }
        file
    });
    let mut forgotten = FileGroup::new(files.collect());
    if let Some(statistics) = group.file_statistics(None) {
        let mut statistics = statistics.clone();
        forget_floats(&mut statistics, table);
        forgotten = forgotten.with_statistics(Arc::new(statistics));
    }
    forgotten
}

/// What is known of nulls and rows stays.
fn forget_floats(statistics: &mut Statistics, table: &Schema) {
    for (column, field) in statistics.column_statistics.iter_mut().zip(table.fields()) {
        if may_have_nan(field.data_type()) {
            column.min_value = Precision::Absent;
            column.max_value = Precision::Absent;
            column.sum_value = Precision::Absent;
            column.distinct_count = Precision::Absent;
        }
    }
}

/// `condition` with `with_nan(column)` for each column of floats. Statistics are of columns, not of what lies in them:
/// structs and lists stay as they are.
fn asking(
    condition: Arc<dyn PhysicalExpr>,
    table: &Schema,
    options: &Arc<ConfigOptions>,
) -> Result<Transformed<Arc<dyn PhysicalExpr>>> {
    condition.transform_down(|expr| {
        let asked = expr.downcast_ref::<ScalarFunctionExpr>();
        if asked.is_some_and(|function| function.name() == WITH_NAN.name()) {
            return Ok(Transformed::new(expr, false, TreeNodeRecursion::Jump));
        }
        let field = expr.downcast_ref::<Column>().and_then(|column| table.fields().get(column.index()));
        match field {
            Some(field) if !field.data_type().is_nested() && may_have_nan(field.data_type()) => {
                let given = Field::new(WITH_NAN.name(), field.data_type().clone(), field.is_nullable());
                let function = ScalarFunctionExpr::new(
                    WITH_NAN.name(),
                    with_nan(),
                    vec![expr],
                    Arc::new(given),
                    Arc::clone(options),
                );
                Ok(Transformed::new(Arc::new(function) as _, true, TreeNodeRecursion::Jump))
            }
            _ => Ok(Transformed::no(expr)),
        }
    })
}
