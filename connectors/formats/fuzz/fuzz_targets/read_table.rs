//! Any bytes, taken for a table: confounds, events and phenotypes, or a typed error with the line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use voxelflow_formats::table::{Confounds, Events, Table};

fuzz_target!(|data: &[u8]| {
    let table = match Table::from_reader(data, "fuzz.tsv") {
        Ok(table) => table,
        Err(error) => return assert!(error.to_string().starts_with("fuzz.tsv: line ")),
    };
    for name in table.names() {
        assert_eq!(table.text(name).map(|cells| cells.len()).ok(), Some(table.len()));
        if table.is_numeric(name).unwrap_or_default() {
            let cells = table.text(name).unwrap_or_default();
            assert!(cells.into_iter().flatten().all(|cell| cell.parse::<f64>().is_ok()));
        }
    }
    match Confounds::from_reader(data, "fuzz.tsv") {
        Ok(confounds) => assert_eq!(confounds.volumes(), table.len()),
        Err(error) => assert!(error.to_string().contains("fuzz.tsv: line ")),
    }
    match Events::from_reader(data, "fuzz.tsv") {
        Ok(events) => assert!(events.events().iter().all(|event| event.onset.is_finite())),
        Err(error) => assert!(error.to_string().contains("fuzz.tsv")),
    }
});
