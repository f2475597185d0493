//! `voxelflow warm-up --device cuda:0`: what cards need before their first step, done beforehand.

use crate::{Result, flags::WarmUpFlags};
use std::time::Instant;

pub(super) fn warm_up(flags: &WarmUpFlags, json: bool) -> Result<()> {
    let begun = Instant::now();
    let warmed = voxelflow_nn::warm_up(&flags.device)?;
    let seconds = begun.elapsed().as_secs_f64();
    let kernels = warmed.kernels.map(|folder| folder.display().to_string());
    if json {
        say!("{}", serde_json::json!({ "cards": warmed.cards, "kernels": kernels, "seconds": seconds }));
    } else {
        let kept = kernels.map_or("nowhere: HOME is not set".to_owned(), |folder| folder);
        let (cards, are) = (warmed.cards.join(", "), if warmed.cards.len() > 1 { "are" } else { "is" });
        say!("{cards} {are} ready after {seconds:.1} s; kernels are kept in {kept}");
    }
    Ok(())
}
