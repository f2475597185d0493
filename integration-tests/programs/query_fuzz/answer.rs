//! Answers as texts that can be compared: values as `servers/duckdb_lines.py` writes those of DuckDB.

use arrow::{
    array::{Array, AsArray, RecordBatch},
    datatypes::{
        DataType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
        UInt32Type, UInt64Type,
    },
};

/// Rows, or what was said instead.
pub type Answer = Result<Vec<Vec<String>>, String>;

/// The rows of `batches`.
pub fn rows(batches: &[RecordBatch]) -> Vec<Vec<String>> {
    let row =
        |batch: &RecordBatch, row| batch.columns().iter().map(|column| text(column.as_ref(), row)).collect();
    batches.iter().flat_map(|batch| (0..batch.num_rows()).map(move |at| row(batch, at))).collect()
}

fn text(column: &dyn Array, row: usize) -> String {
    if column.is_null(row) {
        return "NULL".to_owned();
    }
    match column.data_type() {
        DataType::Null => "NULL".to_owned(),
        DataType::Boolean => column.as_boolean().value(row).to_string(),
        DataType::Int8 => column.as_primitive::<Int8Type>().value(row).to_string(),
        DataType::Int16 => column.as_primitive::<Int16Type>().value(row).to_string(),
        DataType::Int32 => column.as_primitive::<Int32Type>().value(row).to_string(),
        DataType::Int64 => column.as_primitive::<Int64Type>().value(row).to_string(),
        DataType::UInt8 => column.as_primitive::<UInt8Type>().value(row).to_string(),
        DataType::UInt16 => column.as_primitive::<UInt16Type>().value(row).to_string(),
        DataType::UInt32 => column.as_primitive::<UInt32Type>().value(row).to_string(),
        DataType::UInt64 => column.as_primitive::<UInt64Type>().value(row).to_string(),
        DataType::Float32 => float(f64::from(column.as_primitive::<Float32Type>().value(row))),
        DataType::Float64 => float(column.as_primitive::<Float64Type>().value(row)),
        DataType::Utf8 => format!("'{}'", column.as_string::<i32>().value(row)),
        DataType::Utf8View => format!("'{}'", column.as_string_view().value(row)),
        DataType::LargeUtf8 => format!("'{}'", column.as_string::<i64>().value(row)),
        DataType::List(_) => items(column.as_list::<i32>().value(row).as_ref()),
        DataType::FixedSizeList(..) => items(column.as_fixed_size_list().value(row).as_ref()),
        _ => arrow::util::display::array_value_to_string(column, row).unwrap_or_else(|e| e.to_string()),
    }
}

fn items(list: &dyn Array) -> String {
    let items: Vec<String> = (0..list.len()).map(|at| text(list, at)).collect();
    format!("[{}]", items.join(", "))
}

/// Ten digits: sums of the values that tables have are exact, their means are not.
fn float(value: f64) -> String {
    match value {
        _ if value.is_nan() => "NaN".to_owned(),
        _ if value.is_infinite() => if value > 0.0 { "inf" } else { "-inf" }.to_owned(),
        _ => format!("{value:.9e}"),
    }
}

/// `rows` in an order of their own.
pub fn sorted(rows: &[Vec<String>]) -> Vec<Vec<String>> {
    let mut rows = rows.to_vec();
    rows.sort();
    rows
}

/// `rows` in an order of their own, and without signs of zeros: two engines may have met them in another order.
pub fn comparable(rows: &[Vec<String>]) -> Vec<Vec<String>> {
    let plain = |value: &String| value.replace("-0.000000000e0", "0.000000000e0");
    sorted(&rows.iter().map(|row| row.iter().map(plain).collect()).collect::<Vec<_>>())
}

/// An answer to be read.
pub fn shown(answer: &Answer) -> String {
    const MOST: usize = 40;
    match answer {
        Err(error) => format!("error: {error}"),
        Ok(rows) => {
            let lines: Vec<String> = rows.iter().take(MOST).map(|row| row.join(" | ")).collect();
            let more = if rows.len() > MOST { "\n…" } else { "" };
            format!("{} rows\n{}{more}", rows.len(), lines.join("\n"))
        }
    }
}

/// What EXPLAIN says, to be read.
pub fn plan(answer: &Answer) -> String {
    match answer {
        Err(error) => error.clone(),
        Ok(rows) => rows.iter().map(|row| row.join("\n")).collect::<Vec<_>>().join("\n"),
    }
}
