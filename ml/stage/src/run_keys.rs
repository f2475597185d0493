//! Values of the key columns that tell runs apart.
//!
//! In rows an absent key is the empty text: tables join by a key that both lack, which null would forbid. In the rest of
//! the program it is `None`. Rows that others have written may have null, which says the same.

use arrow::array::{Array, StringArray};
use std::borrow::Cow;

/// The key in a row; none where it is absent.
pub fn key_in(column: &StringArray, row: usize) -> Option<&str> {
    known_key(column.is_valid(row).then(|| column.value(row)))
}

/// A key that is said; none where it is null or empty.
pub fn known_key(key: Option<&str>) -> Option<&str> {
    key.filter(|key| !key.is_empty())
}

/// A run as every table has it. It is an index: `run-01` of one dataset and `run-1` of another are one run. One that is told
/// by more than its number keeps the rest: `acq-a_run-01` is `acq-a_run-1`.
pub fn run_index(run: &str) -> Cow<'_, str> {
    let number = run.rsplit_once("_run-").map_or(run, |(_, number)| number);
    let digits = number.trim_start_matches('0');
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number || digits.len() == number.len() || number == "0" {
        return Cow::Borrowed(run);
    }
    let scan = &run[..run.len() - number.len()];
    Cow::Owned(format!("{scan}{}", if digits.is_empty() { "0" } else { digits }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_an_index() {
        for (written, index) in [
            ("01", "1"),
            ("1", "1"),
            ("010", "10"),
            ("00", "0"),
            ("0", "0"),
            ("LR", "LR"),
            ("01a", "01a"),
            ("acq-a_run-02", "acq-a_run-2"),
            ("acq-01", "acq-01"),
            ("", ""),
        ] {
            assert_eq!(run_index(written), index, "{written}");
        }
    }

    #[test]
    fn an_empty_text_is_no_key() {
        let keys = StringArray::from(vec![Some("a"), Some(""), None]);
        assert_eq!([0, 1, 2].map(|row| key_in(&keys, row)), [Some("a"), None, None]);
    }
}
