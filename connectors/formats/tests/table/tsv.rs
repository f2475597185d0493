//! Tables with a header: rows, nulls, quotes, line ends, and where they are wrong.

use proptest::prelude::*;
use voxelflow_formats::table::{Confounds, Table};
use voxelflow_formats::{Error, Result};

fn table(text: &str) -> Result<Table> {
    Table::from_reader(text.as_bytes(), "t.tsv")
}

fn refusal(text: &str) -> String {
    let error = table(text).unwrap_err();
    assert!(error.is_input());
    error.to_string()
}

#[test]
fn confounds_are_numbers_and_n_a_is_nan() {
    let text = "trans_x\ttrans_x_derivative1\tframewise_displacement\n0.1\tn/a\tN/A\n-2e-3\t-0.102\t1\n";
    let confounds = Confounds::from_reader(text.as_bytes(), "c.tsv").unwrap();
    assert_eq!(confounds.names(), ["trans_x", "trans_x_derivative1", "framewise_displacement"]);
    assert_eq!(confounds.volumes(), 2);
    assert_eq!(confounds.column("trans_x").unwrap(), [0.1, -2e-3]);
    let derivative = confounds.column("trans_x_derivative1").unwrap();
    assert!(derivative[0].is_nan() && derivative[1] == -0.102);
    assert_eq!(confounds.line_of(1), 3);
    let message = confounds.column("rot_x").unwrap_err().to_string();
    assert_eq!(
        message,
        "c.tsv: there is no column 'rot_x'; its columns are trans_x, trans_x_derivative1, framewise_displacement"
    );
}

#[test]
fn a_cell_that_is_no_number_is_named_with_line_and_column() {
    for (cell, reason) in [
        ("1,5", "'1,5' is not a number"),
        ("inf", "'inf' is not finite"),
        ("1e999", "'1e999' is not finite"),
        ("True", "'True' is not a number"),
        ("NA", "'NA' is not a number"),
    ] {
        let text = format!("a\tb\n1\t2\n3\t{cell}\n5\t6\n");
        // Nobody needs to use the column: the others are read.
        let confounds = Confounds::from_reader(text.as_bytes(), "c.tsv").unwrap();
        assert_eq!(confounds.column("a").unwrap(), [1.0, 3.0, 5.0]);
        let error = confounds.column("b").unwrap_err();
        assert!(matches!(&error, Error::Cell { line: 3, column, .. } if column == "b"), "{error:?}");
        let message = error.to_string();
        assert!(message.starts_with("c.tsv: line 3, column b: ") && message.contains(reason), "{message}");
    }
}

#[test]
fn ragged_rows_are_refused_with_the_line_and_the_column() {
    let message = refusal("a\tb\tc\n1\t2\t3\n4\t5\n");
    assert!(message.contains("line 3: it has 2 cell(s), the header has 3: column 'c'"), "{message}");
    let message = refusal("a\tb\n1\t2\tx\n");
    assert!(message.contains("line 2: it has 3 cell(s), the header has 2: 'x' stands after"), "{message}");
}

#[test]
fn a_line_that_is_empty_or_a_quote_that_is_open_moves_no_row() {
    assert!(refusal("a\tb\n1\t2\n\n3\t4\n").contains("line 3: the line is empty"));
    assert!(refusal("a\tb\r\n1\t2\r\n\r\n3\t4\r\n").contains("line 3: the line is empty"));
    assert!(refusal("\na\n1\n").contains("line 1: the line is empty"));
    for open in ["a\tb\n1\t\"2\n3\t4\n", "a\tb\n1\t\"2", "a\tb\n1\t\"2\n"] {
        assert!(refusal(open).contains("line 2: a double quote is not closed"), "{open:?}");
    }
    assert!(refusal("a\tb\r1\t2\r").contains("line 1: a carriage return"));
    for ended in ["a\n1", "a\n1\n", "a\n1\n\n\n", "a\r\n1\r\n\r\n"] {
        assert_eq!(table(ended).unwrap().numbers("a").unwrap(), [1.0], "{ended:?}");
    }
}

#[test]
fn headers_name_every_column_once() {
    assert!(refusal("").contains("the file is empty"));
    assert!(refusal("\n\n").contains("the file is empty"));
    assert!(refusal("\ta\n0\t1\n").contains("line 1: column 1 has no name"));
    assert!(refusal("a\tb\ta\n").contains("two columns are named 'a'"));
    assert!(table("a\tb\n").unwrap().is_empty());
    // A mark at the begin of the file belongs to no name.
    assert_eq!(table("\u{feff}a\tb\n").unwrap().names(), ["a", "b"]);
    let bytes: &[u8] = b"a\tb\n1\t\xff\n";
    let message = Table::from_reader(bytes, "t.tsv").unwrap_err().to_string();
    assert!(message.contains("line 2: cell 2 is not UTF-8"), "{message}");
    let many: Vec<String> = (0..30).map(|n| format!("c{n}")).collect();
    let message = table(&many.join("\t")).unwrap().text("x").unwrap_err().to_string();
    assert!(message.ends_with("c19 and 10 more"), "{message}");
}

#[test]
fn phenotypes_keep_labels_as_text() {
    let text =
        "participant_id\tage\tsite\tscore\tnone\nsub-01\t34\t007\tn/a\tn/a\nsub-02\t\t012\t1e-3\tn/a\n";
    let table = table(text).unwrap();
    let numeric: Vec<bool> = table.names().iter().map(|name| table.is_numeric(name).unwrap()).collect();
    assert_eq!(numeric, [false, true, false, true, false]);
    assert_eq!(table.text("site").unwrap(), [Some("007"), Some("012")]);
    assert_eq!(table.text("age").unwrap(), [Some("34"), None]);
    let message = table.numbers("age").unwrap_err().to_string();
    assert!(message.contains("line 3, column age: the cell is empty"), "{message}");
}

fn cell() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("n/a".to_owned()),
        any::<f64>().prop_filter("finite", |v| v.is_finite()).prop_map(|v| v.to_string())
    ]
}

proptest! {
    #[test]
    fn every_written_number_is_read_in_its_place(
        rows in (1..6_usize).prop_flat_map(|width| prop::collection::vec(prop::collection::vec(cell(), width), 1..9)),
        windows: bool,
        ended: bool,
    ) {
        let end = if windows { "\r\n" } else { "\n" };
        let names: Vec<String> = (0..rows[0].len()).map(|n| format!("c{n}")).collect();
        let mut lines = vec![names.join("\t")];
        lines.extend(rows.iter().map(|row| row.join("\t")));
        let text = lines.join(end) + if ended { end } else { "" };
        let confounds = Confounds::from_reader(text.as_bytes(), "c.tsv").unwrap();
        prop_assert_eq!(confounds.volumes(), rows.len());
        for (column, name) in names.iter().enumerate() {
            let read = confounds.column(name).unwrap();
            for (row, value) in rows.iter().zip(read) {
                match &row[column][..] {
                    "n/a" => prop_assert!(value.is_nan()),
                    written => prop_assert_eq!(written.parse::<f64>().unwrap().to_bits(), value.to_bits()),
                }
            }
        }
    }

    #[test]
    fn quoted_cells_hold_tabs_and_quotes(cells in prop::collection::vec("[ -~\t]{0,12}", 1..5)) {
        let quoted: Vec<String> = cells.iter().map(|cell| format!("\"{}\"", cell.replace('"', "\"\""))).collect();
        let names: Vec<String> = (0..cells.len()).map(|n| format!("c{n}")).collect();
        let text = format!("{}\nx{}\n{}\n", names.join("\t"), "\ty".repeat(cells.len() - 1), quoted.join("\t"));
        let table = table(&text).unwrap();
        for (name, cell) in names.iter().zip(&cells) {
            let read = table.text(name).unwrap();
            if table.len() == 2 {
                prop_assert_eq!(read[1].unwrap_or_default(), cell.trim());
            } else {
                prop_assert!(cells.len() == 1 && cell.trim().is_empty());
            }
        }
    }

    #[test]
    fn any_bytes_are_a_table_or_a_refusal(bytes in prop::collection::vec(prop_oneof![
        Just(b'\t'), Just(b'\n'), Just(b'"'), Just(b'\r'), any::<u8>()
    ], 0..200)) {
        match Table::from_reader(&bytes[..], "t.tsv") {
            Ok(table) => {
                let lines = bytes.split(|&byte| byte == b'\n').count();
                prop_assert!(table.len() < lines);
                for name in table.names() {
                    prop_assert_eq!(table.text(name).unwrap().len(), table.len());
                }
            }
            Err(error) => prop_assert!(error.to_string().starts_with("t.tsv: line "), "{}", error),
        }
    }
}
