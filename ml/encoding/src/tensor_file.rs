//! The model's numbers in one file (safetensors) that all ranks write, each its targets.
//!
//! ```text
//!   coefficients [n_targets, n_features] │ intercept [n_targets] │ alpha │ score │ r │ r2 …
//! ```
//! The rank that leads makes the file at its full size; the others open it then. So no rank holds the coefficients of
//! others.

use crate::message::Number;
use faer::MatRef;
use rayon::prelude::*;
use serde_json::{Map, Value, json};
use std::{
    fs::{File, OpenOptions},
    io::Read,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};
use voxelflow_stage::{Error, Result};
use voxelflow_sync::Element;

/// Name of the file.
pub(crate) const WEIGHTS: &str = "model.safetensors";
const COEFFICIENTS: &str = "coefficients";

/// Where the numbers lie.
#[derive(Clone, Debug)]
pub(crate) struct TensorFile {
    path: PathBuf,
    /// Bytes before the first tensor.
    begin: u64,
    pub targets: usize,
    pub features: usize,
    /// Bytes of a coefficient.
    pub width: usize,
    /// Names of the numbers of each target, beside its coefficients; NaN stands where a target has none.
    pub columns: Vec<String>,
}

impl TensorFile {
    /// The file of `folder` for numbers of type `T`, which need not be there yet.
    pub fn new<T: Number>(folder: &Path, [targets, features]: [usize; 2], columns: Vec<String>) -> Self {
        let (path, width) = (folder.join(WEIGHTS), T::BYTES);
        let mut file = Self { path, begin: 0, targets, features, width, columns };
        file.begin = file.header(T::DTYPE).len() as u64;
        file
    }

    /// The folder of the model.
    pub fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("."))
    }

    fn size(&self) -> u64 {
        (self.targets * (self.features * self.width + self.columns.len() * f64::BYTES)) as u64
    }

    /// Length, then JSON; a multiple of 8 bytes.
    fn header(&self, dtype: &str) -> Vec<u8> {
        let mut tensors = Map::new();
        // One entry only: more would be in an order of their own.
        tensors.insert("__metadata__".into(), json!({"format": "pt"}));
        let coefficients = self.targets * self.features * self.width;
        let shape = json!([self.targets, self.features]);
        let offsets = json!([0, coefficients]);
        tensors.insert(COEFFICIENTS.into(), json!({"dtype": dtype, "shape": shape, "data_offsets": offsets}));
        let column = self.targets * f64::BYTES;
        for (number, name) in self.columns.iter().enumerate() {
            let begin = coefficients + number * column;
            let offsets = json!([begin, begin + column]);
            let shape = json!([self.targets]);
            tensors.insert(name.clone(), json!({"dtype": "F64", "shape": shape, "data_offsets": offsets}));
        }
        let mut text = Value::Object(tensors).to_string().into_bytes();
        text.resize(text.len().next_multiple_of(8), b' ');
        let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
        bytes.extend(text);
        bytes
    }

    /// Makes the file at its full size.
    ///
    /// # Errors
    /// Storage that fails.
    pub fn create<T: Number>(&self) -> Result<()> {
        let made = File::create(&self.path).and_then(|file| {
            file.set_len(self.begin + self.size())?;
            file.write_all_at(&self.header(T::DTYPE), 0)
        });
        made.map_err(|e| self.failed(&e))
    }

    /// The file, to be written.
    ///
    /// # Errors
    /// A file that this rank does not see.
    pub fn open(&self) -> Result<File> {
        let opened = OpenOptions::new().write(true).open(&self.path);
        opened.map_err(|e| {
            self.failed(&format!("{e}; it must be on storage that the driver and all executors see"))
        })
    }

    /// Writes coefficients of the targets from `first` on, target by target.
    ///
    /// # Errors
    /// Storage that fails.
    pub fn write_coefficients<T: Number>(&self, file: &File, first: usize, values: &[T]) -> Result<()> {
        let at = self.begin + (first * self.features * self.width) as u64;
        file.write_all_at(&T::write(values), at).map_err(|e| self.failed(&e))
    }

    /// The same of `weights`, `[n_features, n_targets]`, several targets at a time.
    ///
    /// # Errors
    /// Storage that fails.
    pub fn write_weights<T: Number>(&self, file: &File, first: usize, weights: MatRef<'_, T>) -> Result<()> {
        weights.par_col_iter().enumerate().try_for_each(|(target, column)| {
            let values: Vec<T> = column.iter().copied().collect();
            self.write_coefficients(file, first + target, &values)
        })
    }

    /// Coefficients of `count` targets from `first` on, as [`Self::write_coefficients`] took them.
    ///
    /// # Errors
    /// Storage that fails.
    pub fn read_coefficients<T: Number>(&self, first: usize, count: usize) -> Result<Vec<T>> {
        let mut bytes = vec![0; count * self.features * self.width];
        let at = self.begin + (first * self.features * self.width) as u64;
        let read = File::open(&self.path).and_then(|file| file.read_exact_at(&mut bytes, at));
        read.map_err(|e| self.failed(&e))?;
        let mut values = vec![T::default(); count * self.features];
        T::read(&bytes, &mut values);
        Ok(values)
    }

    /// Writes the column `column` of the targets from `first` on.
    ///
    /// # Errors
    /// Storage that fails, a column that the file has not.
    pub fn write_column(&self, file: &File, column: &str, first: usize, values: &[f64]) -> Result<()> {
        file.write_all_at(&f64::write(values), self.column_at(column)? + (first * f64::BYTES) as u64)
            .map_err(|e| self.failed(&e))
    }

    fn column_at(&self, column: &str) -> Result<u64> {
        let number = self.columns.iter().position(|name| name == column);
        let number = number.ok_or_else(|| self.failed(&format!("it has no `{column}`")))?;
        let coefficients = self.targets * self.features * self.width;
        Ok(self.begin + (coefficients + number * self.targets * f64::BYTES) as u64)
    }

    /// Finds the file of a fitted model.
    ///
    /// # Errors
    /// A file that is missing or damaged.
    pub fn read(folder: &Path, stage: &str) -> Result<Self> {
        let path = folder.join(WEIGHTS);
        let damaged = |reason: &dyn std::fmt::Display| Error::Folder {
            path: path.display().to_string(),
            reason: format!("{reason}; a model folder is written whole by TRAIN MODEL, train it again"),
        };
        let mut file = File::open(&path).map_err(|e| damaged(&e))?;
        let mut length = [0; 8];
        file.read_exact(&mut length).map_err(|e| damaged(&e))?;
        let length = u64::from_le_bytes(length);
        let size = file.metadata().map_err(|e| damaged(&e))?.len();
        if length > size {
            return Err(damaged(&"it is shorter than its header"));
        }
        let mut text = vec![0; length as usize];
        file.read_exact(&mut text).map_err(|e| damaged(&e))?;
        let header: Value = serde_json::from_slice(&text).map_err(|e| damaged(&e))?;
        let tensor =
            header.get(COEFFICIENTS).ok_or_else(|| damaged(&format!("it is no model of {stage}")))?;
        let shape: Option<Vec<usize>> =
            tensor.get("shape").and_then(|s| serde_json::from_value(s.clone()).ok());
        let width = match tensor.get("dtype").and_then(Value::as_str) {
            Some("F32") => f32::BYTES,
            Some("F64") => f64::BYTES,
            _ => return Err(damaged(&"its coefficients are of no known type")),
        };
        let Some(&[targets, features]) = shape.as_deref() else {
            return Err(damaged(&"its coefficients have no shape"));
        };
        let begin = |tensor: &Value| tensor["data_offsets"][0].as_u64();
        let tensors = header.as_object().into_iter().flatten();
        let mut columns: Vec<(u64, String)> = tensors
            .filter(|(name, _)| *name != COEFFICIENTS)
            .filter_map(|(name, tensor)| Some((begin(tensor)?, name.clone())))
            .collect();
        columns.sort_unstable();
        let columns = columns.into_iter().map(|(_, name)| name).collect();
        let found = Self { path: path.clone(), begin: 8 + length, targets, features, width, columns };
        if found.begin + found.size() != size {
            return Err(damaged(&"it has another length than its header says"));
        }
        Ok(found)
    }

    /// A column of all targets.
    ///
    /// # Errors
    /// A file that cannot be read any more.
    pub fn column(&self, column: &str) -> Result<Vec<f64>> {
        let (mut bytes, at) = (vec![0; self.targets * f64::BYTES], self.column_at(column)?);
        let read = File::open(&self.path).and_then(|file| file.read_exact_at(&mut bytes, at));
        read.map_err(|e| self.failed(&e))?;
        let mut values = vec![0.0; self.targets];
        f64::read(&bytes, &mut values);
        Ok(values)
    }

    fn failed(&self, e: &dyn std::fmt::Display) -> Error {
        // The machine's fault, not the user's.
        Error::Rows { path: self.path.display().to_string(), reason: e.to_string() }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn parts_make_one_file() {
        let folder = tempfile::tempdir().unwrap();
        let columns = vec!["r2_words".to_owned(), "r".into(), "alpha".into()];
        let file = TensorFile::new::<f32>(folder.path(), [3, 2], columns.clone());
        assert!(file.open().is_err());
        file.create::<f32>().unwrap();
        let (a, b) = (file.open().unwrap(), file.open().unwrap());
        file.write_coefficients::<f32>(&b, 1, &[3.0, 4.0, 5.0, 6.0]).unwrap();
        file.write_coefficients::<f32>(&a, 0, &[1.0, 2.0]).unwrap();
        file.write_column(&a, "r", 0, &[0.5]).unwrap();
        file.write_column(&b, "r", 1, &[0.25, f64::NAN]).unwrap();
        assert!(file.write_column(&b, "p", 1, &[0.25]).unwrap_err().to_string().contains("it has no `p`"));
        let read = TensorFile::read(folder.path(), "ridge_cv").unwrap();
        assert_eq!((read.targets, read.features, &read.columns), (3, 2, &columns));
        assert_eq!(read.read_coefficients::<f32>(1, 2).unwrap(), [3.0, 4.0, 5.0, 6.0]);
        let r = read.column("r").unwrap();
        assert!(r[..2] == [0.5, 0.25] && r[2].is_nan());
        let bytes = std::fs::read(folder.path().join(WEIGHTS)).unwrap();
        let begin = read.begin as usize;
        let mut coefficients = [0.0; 6];
        f32::read(&bytes[begin..begin + 24], &mut coefficients);
        assert_eq!(coefficients, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        std::fs::write(folder.path().join(WEIGHTS), &bytes[..bytes.len() - 1]).unwrap();
        let error = TensorFile::read(folder.path(), "ridge_cv").unwrap_err();
        assert!(error.is_input() && error.to_string().contains("another length"), "{error}");
    }
}
