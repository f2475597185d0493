//! Times the smoothing of volumes: `smooth_bench NI NJ NK VOXEL_MM FWHM_MM VOLUMES` prints seconds per volume, first
//! on one core, then with one volume per core. `integration-tests/bench/smooth.py` runs it beside scipy.

use rayon::prelude::*;
use std::time::Instant;
use voxelflow_signal::{Error, Grid, SmoothScratch, Smoother};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let numbers: Vec<f64> = std::env::args().skip(1).map(|a| a.parse()).collect::<Result<_, _>>()?;
    let [ni, nj, nk, voxel, fwhm, volumes] = numbers[..] else {
        return Err("usage: smooth_bench NI NJ NK VOXEL_MM FWHM_MM VOLUMES".into());
    };
    let row = |r: usize| std::array::from_fn(|c| if c == r { voxel } else { 0.0 });
    let affine = [row(0), row(1), row(2), [0.0, 0.0, 0.0, 1.0]];
    let grid = Grid { shape: [ni as usize, nj as usize, nk as usize], affine };
    let smoother = Smoother::try_new(&grid, [fwhm; 3])?;
    let value = |v: usize| 800.0 + ((v * 7919) % 1013) as f64;
    let mut run: Vec<Vec<f64>> = vec![(0..grid.voxels()).map(value).collect(); volumes as usize];

    let start = Instant::now();
    let mut scratch = SmoothScratch::default();
    for volume in &mut run {
        smoother.smooth(volume, &mut scratch)?;
    }
    println!("{}", start.elapsed().as_secs_f64() / volumes);

    let start = Instant::now();
    run.par_iter_mut().try_for_each_init(SmoothScratch::default, |scratch, volume| {
        smoother.smooth(volume, scratch)?;
        Ok::<(), Error>(())
    })?;
    println!("{}", start.elapsed().as_secs_f64() / volumes);
    Ok(())
}
