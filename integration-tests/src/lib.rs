//! Home of the tests that need the whole product: real processes, real files, reference values.
//!
//! The tests are in `tests/`, the comparisons with other tools in `bench/`, and the scripts that made the
//! committed reference values in `reference/`.
