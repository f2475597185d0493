//! `voxelflow synth …`.

use crate::{
    Result,
    flags::{HcpFlags, SynthFlags, SynthWhat},
};
use std::time::{Duration, Instant};
use voxelflow_synth::{HcpSynth, write_hcp};

pub(super) fn synth(flags: SynthFlags, json: bool) -> Result<()> {
    match flags.what {
        SynthWhat::Hcp(hcp) => synth_hcp(hcp, json),
    }
}

fn synth_hcp(flags: HcpFlags, json: bool) -> Result<()> {
    let settings = HcpSynth {
        subjects: flags.subjects,
        voxels: flags.voxels,
        time_points: flags.time_points,
        seed: flags.seed,
        snr: flags.snr,
        ..HcpSynth::default()
    };
    let mut last = Instant::now();
    let mut progress = |done: u64, total: u64| {
        if last.elapsed() >= Duration::from_secs(10) {
            last = Instant::now();
            eprintln!("synth hcp: {done} of {total} series");
        }
    };
    let summary = write_hcp(&settings, &flags.out, &mut progress)?;
    if json {
        println!("{}", serde_json::json!(summary));
    } else {
        println!("hcp {} with seed {}, content {}", summary.version, settings.seed, summary.content);
        for file in &summary.files {
            println!("  {} {} rows, {}", file.path, file.rows, indicatif::HumanBytes(file.bytes));
        }
    }
    Ok(())
}
