//! `voxelflow synth …`.

use crate::{
    Result,
    flags::{BoldFlags, HcpFlags, SynthFlags, SynthWhat},
};
use std::time::{Duration, Instant};
use voxelflow_synth::{BoldSynth, HcpSynth, write_bold, write_hcp};

pub(super) fn synth(flags: SynthFlags, json: bool) -> Result<()> {
    match flags.what {
        SynthWhat::Hcp(hcp) => synth_hcp(hcp, json),
        SynthWhat::Bold(bold) => synth_bold(bold, json),
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
    let summary = write_hcp(&settings, &flags.out, &mut progress("synth hcp", "series"))?;
    if json {
        say!("{}", serde_json::json!(summary));
    } else {
        say!("hcp {} with seed {}, content {}", summary.version, settings.seed, summary.content);
        for file in &summary.files {
            say!("  {} {} rows, {}", file.path, file.rows, indicatif::HumanBytes(file.bytes));
        }
    }
    Ok(())
}

fn synth_bold(flags: BoldFlags, json: bool) -> Result<()> {
    let BoldFlags { shape, volumes, t_r, seed, snr, out } = flags;
    let settings = BoldSynth { shape, volumes, t_r, seed, snr };
    write_bold(&settings, &out, &mut progress("synth bold", "volumes"))?;
    if json {
        say!("{}", serde_json::json!({ "file": out, "settings": settings }));
    } else {
        say!("{}: {shape:?} voxels, {volumes} volumes, seed {seed}", out.display());
    }
    Ok(())
}

/// Tells every ten seconds how far the work is.
fn progress(what: &'static str, unit: &'static str) -> impl FnMut(u64, u64) {
    let mut last = Instant::now();
    move |done, total| {
        if last.elapsed() >= Duration::from_secs(10) {
            last = Instant::now();
            eprintln!("{what}: {done} of {total} {unit}");
        }
    }
}
