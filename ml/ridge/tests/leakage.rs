//! The example shows what it says: a random split of volumes leaks, a run left out whole does not.
#![allow(clippy::unwrap_used)]

#[path = "../examples/leakage.rs"]
mod leakage;

#[test]
fn volumes_split_at_random_find_what_is_not_there_and_runs_left_out_do_not() {
    let (leaky, honest) = leakage::scores().unwrap();
    assert!(leaky > 0.5, "{leaky}");
    assert!(honest.abs() < 0.1, "{honest}");
}
