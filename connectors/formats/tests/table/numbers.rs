//! Movement regressors, 12 numbers per volume, and columns without names.

use voxelflow_formats::table::{MovementRegressors, UnnamedColumns};

#[test]
fn movement_has_twelve_columns_per_volume() {
    let line = (0..12).map(|n| format!("  {}.25", n - 6)).collect::<String>();
    let read = MovementRegressors::from_reader(format!("{line}\n{line}  \n").as_bytes(), "m.txt").unwrap();
    assert_eq!(read.rows.len(), 2);
    assert_eq!(read.column(1), [-5.25, -5.25]);
    assert_eq!(read.rows[0][11], 5.25);
    assert_eq!(MovementRegressors::NAMES.len(), read.rows[0].len());
    let refusal = |text: &[u8]| MovementRegressors::from_reader(text, "m.txt").unwrap_err().to_string();
    assert!(refusal(b"").contains("m.txt: line 1: the file is empty"));
    assert!(
        refusal(format!("{line}\n{}", &line[7..]).as_bytes()).contains("line 2: it has 11 number(s), not 12")
    );
    assert!(refusal(b"\x1f\x8b\x08\xff").contains("line 1: it is not text"));
}

#[test]
fn columns_without_names_have_rows_of_one_length() {
    let read = UnnamedColumns::from_reader(&b"-0.04 1\n\n0.02\t-1e-3\n"[..], "c.txt").unwrap();
    assert_eq!((read.rows(), read.columns), (2, vec![vec![-0.04, 0.02], vec![1.0, -1e-3]]));
    let refusal = |text: &[u8]| UnnamedColumns::from_reader(text, "c.txt").unwrap_err().to_string();
    assert_eq!(refusal(b"\n1 2\n3\n"), "c.txt: line 3: it has 1 number(s), line 2 has 2");
    assert!(refusal(b" \n").contains("line 1: the file is empty"));
    assert!(refusal(b"1 nan\n").contains("line 1: value 2 is 'nan', not a finite number"));
}
