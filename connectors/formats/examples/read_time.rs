//! How long reading an image takes: `cargo run -p voxelflow-formats --example read_time -- FILE`.

use std::time::Instant;
use voxelflow_formats::{NiftiReader, Result};

fn main() -> Result<()> {
    for path in std::env::args().skip(1) {
        let start = Instant::now();
        let mut reader = NiftiReader::open(&path)?;
        print!("{}", reader.header());
        let (mut volume, mut sum) = (Vec::<f32>::new(), 0.0);
        while reader.next_volume(&mut volume)? {
            sum += volume.iter().map(|&value| f64::from(value)).sum::<f64>();
        }
        println!("  sum        {sum:.6e}\n  read in    {:.3} s", start.elapsed().as_secs_f64());
    }
    Ok(())
}
