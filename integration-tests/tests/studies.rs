//! Random small studies, from files to maps, give nilearn's and scikit-learn's numbers: the script
//! `reference/studies.py` makes them and compares.

use crate::program::{Ended, program, root};
use std::process::Command;

/// Compares the studies of `count` seeds from `first` on.
#[track_caller]
fn compare(first: u32, count: u32) {
    let mut compare = Command::new(root().join("integration-tests/servers/nilearn.sh"));
    compare.args(["python", "integration-tests/reference/studies.py"]).current_dir(root());
    compare.arg(program("voxelflow").get_program()).args([first.to_string(), count.to_string()]);
    let ended = Ended::from(compare.output().unwrap());
    println!("{}", ended.stdout);
    let said = ended.expect_code(0).stdout;
    let last = said.lines().last().unwrap_or_default();
    assert!(last.starts_with(&format!("{count} studies, ")) && last.ends_with(", 0 differ"), "{last}");
}

#[test]
fn random_studies_agree_with_nilearn_and_scikit_learn() {
    let number = |name: &str, usual: u32| match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is `{text}`, no number")),
        Err(_) => usual,
    };
    compare(number("STUDIES_FIRST", 1), number("STUDIES_SEEDS", 30));
}

/// A fit whose R² is far below zero, and predictions far from the mean of the runs that were left out.
#[test]
fn studies_that_once_differed_agree() {
    compare(117, 1);
    compare(181, 1);
}
