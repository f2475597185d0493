//! Images of one volume each, as SPM writes them, that are the volumes of one run.

use crate::image_reader::ImageReader;
use crate::number::Number;
use crate::{Error, Result, Stores};
use std::cmp::Ordering;
use voxelflow_formats::XformPolicy;

/// Gives the volumes of the files, one after the other.
pub(crate) struct VolumeSet {
    /// Whose header stands for all.
    pub first: ImageReader,
    pub files: Vec<String>,
    pub xform: XformPolicy,
    pub stores: Stores,
    next: usize,
}

impl VolumeSet {
    /// The first of `files` is opened.
    pub fn open(files: Vec<String>, xform: XformPolicy, stores: &Stores) -> Result<Self> {
        let first = stores.open_image(files.first().map_or("", String::as_str), xform)?;
        Ok(Self { first, files, xform, stores: stores.clone(), next: 0 })
    }

    /// Replaces the content of `into` by the next file's volume; false after the last.
    ///
    /// # Errors
    /// A file that is not as it was when the table was made.
    pub fn next_volume<T: Number>(&mut self, into: &mut Vec<T>) -> Result<bool> {
        into.clear();
        let Some(file) = self.files.get(self.next) else { return Ok(false) };
        let mut reader = self.stores.open_image(file, self.xform)?;
        let header = reader.header();
        if header.shape != self.first.header().shape || header.volumes != 1 {
            let reason = "it has changed since the table was made: create the table again".into();
            return Err(Error::Image { path: file.clone(), reason });
        }
        self.next += 1;
        reader.next_volume(into)
    }
}

/// The order of names in which `scan_2` comes before `scan_10`.
pub(crate) fn by_number(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a, b);
    loop {
        let digits = |text: &str| text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (in_a, in_b) = (digits(a), digits(b));
        if in_a > 0 && in_b > 0 {
            let (x, y) = (a[..in_a].trim_start_matches('0'), b[..in_b].trim_start_matches('0'));
            let order = x.len().cmp(&y.len()).then_with(|| x.cmp(y)).then_with(|| in_a.cmp(&in_b));
            if order != Ordering::Equal {
                return order;
            }
            (a, b) = (&a[in_a..], &b[in_b..]);
            continue;
        }
        match (a.chars().next(), b.chars().next()) {
            (Some(x), Some(y)) if x == y => (a, b) = (&a[x.len_utf8()..], &b[y.len_utf8()..]),
            (x, y) => return x.cmp(&y),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_in_names_count() {
        let mut names = ["f10.nii", "f2.nii", "f1.nii", "e_3.nii", "f02.nii", "f_1.nii", "f"];
        names.sort_by(|a, b| by_number(a, b));
        assert_eq!(names, ["e_3.nii", "f", "f1.nii", "f2.nii", "f02.nii", "f10.nii", "f_1.nii"]);
    }

    proptest! {
        /// Equal only to itself, and the other way round the other way.
        #[test]
        fn it_is_an_order(a in "[a1é0_]{0,6}", b in "[a1é0_]{0,6}") {
            prop_assert_eq!(by_number(&a, &b) == Ordering::Equal, a == b);
            prop_assert_eq!(by_number(&a, &b), by_number(&b, &a).reverse());
        }
    }
}
