//! Any bytes, taken for numpy's array: rows, the whole, or a typed error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::io::Cursor;
use voxelflow_formats::npy::NpyReader;

/// Values that are read at most: a small gzip file can unfold to very many.
const MOST_VALUES: usize = 1 << 22;

fuzz_target!(|data: &[u8]| {
    let open = || NpyReader::from_reader(Cursor::new(data.to_vec()), "fuzz.npy");
    let mut reader = match open() {
        Ok(reader) => reader,
        Err(error) => return assert!(error.to_string().contains("fuzz.npy")),
    };
    let count = reader.header().values();
    let (mut row, mut values) = (Vec::<f32>::new(), 0);
    while values < MOST_VALUES {
        match reader.next_row(&mut row) {
            Ok(true) => values += row.len(),
            Ok(false) => {
                assert_eq!(values, count);
                let all = open().and_then(NpyReader::read_all::<f64>);
                assert_eq!(all.map_err(|error| error.to_string()).map(|all| all.len()), Ok(count));
                break;
            }
            Err(error) => return assert!(error.to_string().contains("fuzz.npy")),
        }
    }
});
