//! Writes an array: all of it or nothing.

use crate::Result;
use crate::whole_file::WholeFile;
use std::marker::PhantomData;
use std::path::Path;

/// The length of what stands before the numbers is a multiple of this, as numpy writes it.
const ALIGNMENT: usize = 64;

/// A number that an array can have.
pub trait NpyElement: Copy {
    /// numpy's name of the type, little-endian.
    const DESCR: &'static str;
    /// Appends its bytes, little-endian.
    fn append_to(self, bytes: &mut Vec<u8>);
}

macro_rules! elements {
    ($($number:ty, $descr:literal;)*) => {$(
        impl NpyElement for $number {
            const DESCR: &'static str = $descr;
            fn append_to(self, bytes: &mut Vec<u8>) {
                bytes.extend_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}
elements! {
    u8, "|u1"; i8, "|i1"; u16, "<u2"; i16, "<i2"; u32, "<u4"; i32, "<i4"; u64, "<u8"; i64, "<i8"; f32, "<f4"; f64, "<f8";
}

/// Writes an array of `T` in C order, little-endian, version 1. Dropped before [`Self::finish`] it leaves nothing
/// behind.
pub struct NpyWriter<T> {
    file: WholeFile,
    left: usize,
    bytes: Vec<u8>,
    element: PhantomData<T>,
}

impl<T: NpyElement> NpyWriter<T> {
    /// Begins an array of `shape` at `path`.
    ///
    /// # Errors
    /// [`crate::Error::Content`] for a shape that is too large, [`crate::Error::Write`] from the system.
    pub fn create(path: impl AsRef<Path>, shape: &[usize]) -> Result<Self> {
        let mut file = WholeFile::create(path.as_ref())?;
        let size = shape.iter().try_fold(size_of::<T>(), |product, &length| product.checked_mul(length));
        let header = header(T::DESCR, shape).filter(|_| size.is_some());
        let Some(header) = header else {
            return Err(file.refuse(format!("the shape {shape:?} is too large")));
        };
        file.write_all(&header)?;
        Ok(Self { file, left: shape.iter().product(), bytes: Vec::new(), element: PhantomData })
    }

    /// Writes the next numbers, last dimension fastest.
    ///
    /// # Errors
    /// [`crate::Error::Content`] for more numbers than the shape has, [`crate::Error::Write`] from the system.
    pub fn write(&mut self, values: &[T]) -> Result<()> {
        let Some(left) = self.left.checked_sub(values.len()) else {
            let reason = format!("{} number(s) are left of its shape, {} came", self.left, values.len());
            return Err(self.file.refuse(reason));
        };
        self.bytes.clear();
        values.iter().for_each(|value| value.append_to(&mut self.bytes));
        self.file.write_all(&self.bytes)?;
        self.left = left;
        Ok(())
    }

    /// Completes the file and gives it its name, replacing what had it before.
    ///
    /// # Errors
    /// [`crate::Error::Content`] when numbers are missing, [`crate::Error::Write`] from the system. Then nothing
    /// is left behind, and a previous file of that name is as it was.
    pub fn finish(self) -> Result<()> {
        if self.left > 0 {
            return Err(self.file.refuse(format!("{} number(s) are missing", self.left)));
        }
        self.file.publish()
    }
}

/// Magic, version, length and literal; `None` for so many dimensions that version 1 cannot say them.
fn header(descr: &str, shape: &[usize]) -> Option<Vec<u8>> {
    let lengths: String = shape.iter().map(|length| format!("{length},")).collect();
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({lengths}), }}");
    let end = (10 + text.len() + 1).next_multiple_of(ALIGNMENT);
    text.push_str(&" ".repeat(end - 10 - text.len() - 1));
    text.push('\n');
    let length = u16::try_from(text.len()).ok()?;
    Some([&b"\x93NUMPY\x01\x00"[..], &length.to_le_bytes(), text.as_bytes()].concat())
}
