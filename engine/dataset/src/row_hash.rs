//! `row_hash(seed, columns…)`: a 64-bit hash of a row's values, the same on every machine and in every plan.
//!
//! It is the first eight bytes (little-endian) of blake3 over the seed and Arrow's row format, so a sample that
//! is drawn by it depends on the rows and the seed only: not on partitions, batches or order.

use arrow::{
    array::{ArrayRef, UInt64Array},
    datatypes::DataType,
    row::{RowConverter, SortField},
};
use datafusion::{
    common::ScalarValue,
    error::{DataFusionError, Result},
    logical_expr::{
        ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, lit,
    },
};
use std::sync::{Arc, LazyLock};

static ROW_HASH: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    Arc::new(ScalarUDF::from(RowHash { signature: Signature::variadic_any(Volatility::Immutable) }))
});

/// The function, as a session registers it.
pub(crate) fn row_hash() -> Arc<ScalarUDF> {
    Arc::clone(&ROW_HASH)
}

/// True for a share of `fraction` of the rows, chosen by `seed` and the values of `columns`.
pub(crate) fn keep(fraction: f64, seed: u64, columns: impl IntoIterator<Item = Expr>) -> Expr {
    if fraction >= 1.0 {
        return lit(true);
    }
    // 2^64 as a float: the hash is uniform over 0..2^64.
    let threshold = (fraction * 18_446_744_073_709_551_616.0) as u64;
    let arguments = std::iter::once(lit(seed)).chain(columns).collect();
    row_hash().call(arguments).lt(lit(threshold))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct RowHash {
    signature: Signature,
}

impl ScalarUDFImpl for RowHash {
    fn name(&self) -> &str {
        "row_hash"
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::UInt64)
    }
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [ColumnarValue::Scalar(seed), columns @ ..] = args.args.as_slice() else {
            return Err(DataFusionError::Plan("row_hash(seed, columns…): the seed is a number".into()));
        };
        let ScalarValue::UInt64(Some(seed)) = seed.cast_to(&DataType::UInt64)? else {
            return Err(DataFusionError::Plan("row_hash: the seed is NULL".into()));
        };
        let columns: Result<Vec<ArrayRef>> = columns.iter().map(|c| c.to_array(args.number_rows)).collect();
        Ok(ColumnarValue::Array(Arc::new(hash_rows(seed, &columns?, args.number_rows)?)))
    }
}

fn hash_rows(seed: u64, columns: &[ArrayRef], rows: usize) -> Result<UInt64Array> {
    let fields = columns.iter().map(|c| SortField::new(c.data_type().clone())).collect();
    let converter = RowConverter::new(fields)?;
    if columns.is_empty() {
        return Ok(UInt64Array::from_value(hash(seed, &[]), rows));
    }
    let converted = converter.convert_columns(columns)?;
    Ok(converted.iter().map(|row| Some(hash(seed, row.data()))).collect())
}

fn hash(seed: u64, row: &[u8]) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&seed.to_le_bytes()).update(row);
    let mut first = [0; 8];
    hasher.finalize_xof().fill(&mut first);
    u64::from_le_bytes(first)
}
