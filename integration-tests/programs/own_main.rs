//! A program that starts a cluster of its own and has a main of its own, which takes no notice of how it was started.
//!
//! It writes a line to the file that it is given each time that it starts.

use std::{fs::OpenOptions, io::Write};
use voxelflow::{Result, Session};

#[tokio::main]
async fn main() -> Result<()> {
    // The parts of a cluster are started with arguments of their own, so the file's name comes by the environment.
    let starts = std::env::var_os("OWN_MAIN_STARTS").unwrap_or_default();
    let file = OpenOptions::new().append(true).create(true).open(&starts);
    if let Ok(mut file) = file {
        // A test counts the lines; without the file it fails.
        let _ = writeln!(file, "{}", std::process::id());
    }
    let out = std::env::temp_dir().join(format!("own-main-{}", std::process::id()));
    let started = Session::builder().out(&out).executors(2).start().await;
    let _ = std::fs::remove_dir_all(&out);
    started.map(drop)
}
