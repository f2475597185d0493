//! Columns that lie in the names of folders, as Hive began it: `subject=01/day=2026-11-30/…`.
//!
//! They have the types that DuckDB and Spark see in their values, but that labels such as `01` stay as they are written:
//! all whole numbers, all dates, or texts. `__HIVE_DEFAULT_PARTITION__` is null.

use arrow::datatypes::DataType;
use datafusion::{
    catalog::TableProvider,
    common::{DFSchema, ScalarValue},
    datasource::{ViewTable, listing::ListingTable, provider_as_source},
    error::Result,
    functions::core::expr_fn::nullif,
    logical_expr::{Expr, LogicalPlanBuilder, cast, ident, lit},
};
use std::{collections::BTreeMap, sync::Arc};

/// Hive's word for null.
const NULL: &str = "__HIVE_DEFAULT_PARTITION__";

/// The values of each column in paths.
pub(super) type Values = BTreeMap<String, Vec<String>>;

/// Adds the values of the columns `names` in the path of a file.
pub(super) fn note(values: &mut Values, names: &[String], path: &str) {
    for (name, value) in path.split('/').filter_map(|part| part.split_once('=')) {
        if names.iter().any(|known| known == name) {
            let known = values.entry(name.to_owned()).or_default();
            if known.last().is_none_or(|last| last != value) {
                known.push(value.to_owned());
            }
        }
    }
}

/// `table`, whose partitions `names` are texts, with these as columns of the types of their values.
///
/// # Errors
/// A name that the files have too.
pub(super) fn typed(
    table: ListingTable,
    names: &[String],
    values: &Values,
) -> Result<Arc<dyn TableProvider>> {
    let schema = DFSchema::try_from(table.schema())?;
    let columns = schema.fields().iter().map(|field| match names.contains(field.name()) {
        true => value_of(field.name(), &type_of(values.get(field.name()).map_or(&[], Vec::as_slice))),
        false => ident(field.name()),
    });
    let columns: Vec<Expr> = columns.collect();
    let scan = LogicalPlanBuilder::scan("files", provider_as_source(Arc::new(table)), None)?;
    Ok(Arc::new(ViewTable::new(scan.project(columns)?.build()?, None)))
}

fn value_of(name: &str, data_type: &DataType) -> Expr {
    let text = nullif(cast(ident(name), DataType::Utf8), lit(ScalarValue::from(NULL)));
    match data_type {
        DataType::Utf8 => text.alias(name),
        other => cast(text, other.clone()).alias(name),
    }
}

fn type_of(values: &[String]) -> DataType {
    let all = |is: fn(&str) -> bool| {
        let mut known = values.iter().map(String::as_str).filter(|value| *value != NULL).peekable();
        known.peek().is_some() && known.all(is)
    };
    match () {
        () if all(is_number) => DataType::Int64,
        () if all(is_date) => DataType::Date32,
        () => DataType::Utf8,
    }
}

/// `007` is a label.
fn is_number(value: &str) -> bool {
    let digits = value.strip_prefix('-').unwrap_or(value);
    value.parse::<i64>().is_ok() && !value.starts_with('+') && (digits == "0" || !digits.starts_with('0'))
}

fn is_date(value: &str) -> bool {
    let shape = value.len() == 10
        && value.char_indices().all(|(at, c)| match at {
            4 | 7 => c == '-',
            _ => c.is_ascii_digit(),
        });
    let date = ScalarValue::from(value).cast_to(&DataType::Date32);
    shape && date.is_ok_and(|date| !date.is_null())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_those_of_all_values() {
        let of = |values: &[&str]| type_of(&values.iter().map(|v| (*v).to_owned()).collect::<Vec<_>>());
        assert_eq!(of(&["1", "20", NULL]), DataType::Int64);
        assert_eq!(of(&["01", "2"]), DataType::Utf8);
        assert_eq!(of(&["2026-11-30", NULL]), DataType::Date32);
        assert_eq!(of(&["2026-13-30"]), DataType::Utf8);
        assert_eq!(of(&["1", "rest"]), DataType::Utf8);
        assert_eq!(of(&[NULL]), DataType::Utf8);
        assert_eq!(of(&[]), DataType::Utf8);
    }

    #[test]
    fn values_are_those_of_the_folders_that_are_columns() {
        let mut values = Values::new();
        for path in ["t/a=1/b=x/0.parquet", "t/a=1/b=y/0.parquet", "t/a=2/c=z/0.parquet"] {
            note(&mut values, &["a".to_owned(), "b".to_owned()], path);
        }
        assert_eq!(values["a"], ["1", "2"]);
        assert_eq!(values["b"], ["x", "y"]);
        assert!(!values.contains_key("c"));
    }
}
