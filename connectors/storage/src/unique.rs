//! Names that no other writer has.

use std::hash::{BuildHasher, Hasher, RandomState};

/// A name that no other writer has: 128 random bits as text.
pub(crate) fn name() -> String {
    let random = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", random(), random())
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_differ() {
        let names: std::collections::HashSet<String> = (0..1000).map(|_| super::name()).collect();
        assert_eq!(names.len(), 1000);
    }
}
