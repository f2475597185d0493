//! `.bval` and `.bvec`: shapes, lengths, directions.

use voxelflow_formats::table::Gradients;
use voxelflow_formats::{Error, Result};

fn gradients(bval: &str, bvec: &str) -> Result<Gradients> {
    Gradients::from_readers((bval.as_bytes(), "x.bval"), (bvec.as_bytes(), "x.bvec"))
}

const DIRECTIONS: [[f64; 3]; 4] = [[0.0; 3], [1.0, 0.0, 0.0], [0.0, 0.6, 0.8], [0.0, 0.0, -1.0]];

#[test]
fn both_ways_to_lay_them_out_are_read() {
    let three_lines = "0 1 0 0\n0 0 0.6 0\n0 0 0.8 -1\n";
    let three_per_line = "0 0 0\n1 0 0\n0 0.6 0.8\n0 0 -1\n";
    for bval in ["0 1000 1000 2000", "0\n1000\n1000\n2000\n"] {
        for bvec in [three_lines, three_per_line] {
            let read = gradients(bval, bvec).unwrap();
            assert_eq!(read.b_values, [0.0, 1000.0, 1000.0, 2000.0]);
            assert_eq!(read.directions, DIRECTIONS);
        }
    }
    // Three volumes fit both ways: lines are axes, as FSL and BIDS say.
    let read = gradients("5 5 5", "0 1 0\n0 0 0.6\n1 0 0.8\n").unwrap();
    assert_eq!(read.directions[2], [0.0, 0.6, 0.8]);
    // One volume, in either way.
    assert_eq!(gradients("7", "0 0.6 0.8").unwrap().directions, [[0.0, 0.6, 0.8]]);
    assert_eq!(gradients("7", "0\n0.6\n0.8").unwrap().directions, [[0.0, 0.6, 0.8]]);
}

#[test]
fn what_does_not_fit_is_refused() {
    let refusal = |bval: &str, bvec: &str| gradients(bval, bvec).unwrap_err();
    let error = refusal("0 1000", "0 1 0\n0 0 1\n0 0 0\n");
    assert!(matches!(error, Error::Pair { .. }));
    assert_eq!(error.to_string(), "x.bvec: does not fit x.bval: it has 3 directions for 2 b-values");
    let message = refusal("0 1000", "0 1\n0 1\n0 0\n").to_string();
    assert!(message.starts_with(
        "x.bvec: line 1: volume 2: the direction [1.0, 1.0, 0.0] (b = 1000 s/mm²) has length 1.4142"
    ));
    assert!(refusal("0 -5", "0 1\n0 0\n0 0\n").to_string().contains("x.bval: line 1: the b-value -5 s/mm²"));
    assert!(refusal("0 1000\n2 3\n", "0\n").to_string().contains("x.bval: line 1: it has 2 numbers"));
    assert!(
        refusal("0 1000", "0 1\n0 0 0\n0 0\n")
            .to_string()
            .contains("x.bvec: line 1: it has 2 number(s) among 3")
    );
    assert!(refusal("", "0 0 0").to_string().contains("the file has no b-value"));
    assert!(refusal("0", "\n").to_string().contains("the file has no direction"));
    assert!(refusal("0", "0 inf 0").to_string().contains("value 2 is 'inf'"));
    assert!(refusal("0", "0 nan 0").to_string().contains("has length NaN, neither 1 nor 0"));
    // NaN is no direction, which only a volume without weighting can do without.
    assert_eq!(gradients("15 7", "nan nan nan\n0 0 1\n").unwrap().directions, [[0.0; 3], [0.0, 0.0, 1.0]]);
    assert!(
        refusal("1000", "nan nan nan")
            .to_string()
            .contains("volume 1: the direction [NaN, NaN, NaN] (b = 1000")
    );
}
