//! Smoothing along surfaces against nilearn: step by step, and where its width is not the one asked for.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[allow(dead_code)]
mod fixture;

use voxelflow_signal::{SurfaceScratch, SurfaceSmoother};

const SIDE: u32 = 48;

fn triples<T: Copy>(values: &[T]) -> Vec<[T; 3]> {
    values.as_chunks().0.to_vec()
}

#[test]
fn as_many_steps_give_nilearns_surface() {
    let index = fixture::json("surfaces/index.json");
    let (_, triangles) = fixture::array::<i32>("surfaces/triangles");
    let triangles = triples(&triangles.iter().map(|v| u32::try_from(*v).unwrap()).collect::<Vec<_>>());
    let (shape, data) = fixture::array::<f32>("surfaces/data");
    let (_, expected) = fixture::array::<f64>("surfaces/smoothed");
    let cases = index["cases"].as_array().unwrap();
    assert_eq!(expected.len(), cases.len() * data.len());
    let mut scratch = SurfaceScratch::default();
    for (case, expected) in cases.iter().zip(expected.chunks_exact(data.len())) {
        let steps = case["steps"].as_u64().unwrap() as usize;
        let smoother = SurfaceSmoother::try_with_steps(&triangles, &vec![true; shape[1]], steps).unwrap();
        for (frame, theirs) in data.chunks_exact(shape[1]).zip(expected.chunks_exact(shape[1])) {
            let mut ours: Vec<f64> = frame.iter().map(|x| f64::from(*x)).collect();
            assert_eq!(smoother.smooth(&mut ours, &mut scratch).unwrap(), 0);
            let worst = ours.iter().zip(theirs).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(worst <= 1e-9, "{steps} steps: {worst}");
        }
    }
}

/// Full width at half maximum of what becomes of a point on a plane of triangles with edges of 1 mm.
fn width(new: impl Fn(&[[f32; 3]], &[[u32; 3]], &[bool]) -> SurfaceSmoother) -> f64 {
    let across = |v: u32| (v % SIDE) as f32 + 0.5 * (v / SIDE) as f32;
    let vertices: Vec<[f32; 3]> =
        (0..SIDE * SIDE).map(|v| [across(v), 0.75f32.sqrt() * (v / SIDE) as f32, 0.0]).collect();
    let corners = (0..SIDE * (SIDE - 1)).filter(|v| v % SIDE + 1 < SIDE);
    let triangles: Vec<[u32; 3]> =
        corners.flat_map(|v| [[v, v + 1, v + SIDE], [v + 1, v + SIDE + 1, v + SIDE]]).collect();
    let mut values = vec![0.0; vertices.len()];
    let middle = SIDE * SIDE / 2 + SIDE / 2;
    values[middle as usize] = 1.0;
    let smoother = new(&vertices, &triangles, &vec![true; vertices.len()]);
    smoother.smooth(&mut values, &mut SurfaceScratch::default()).unwrap();
    let distance = |v: usize| f64::from(vertices[v][0] - across(middle));
    let variance: f64 = values.iter().enumerate().map(|(v, y)| y * distance(v).powi(2)).sum();
    (variance / values.iter().sum::<f64>() * 8.0 * 2f64.ln()).sqrt()
}

#[test]
fn the_width_is_the_one_asked_for_which_nilearns_is_not() {
    let plane = &fixture::json("surfaces/index.json")["plane"];
    let (fwhm, theirs) = (plane["fwhm"].as_f64().unwrap(), plane["width"].as_f64().unwrap());
    let steps = plane["steps"].as_u64().unwrap() as usize;
    let as_nilearn = width(|_, t, valid| SurfaceSmoother::try_with_steps(t, valid, steps).unwrap());
    assert!((as_nilearn - theirs).abs() < 1e-4, "{as_nilearn} mm instead of {theirs} mm");
    assert!(theirs < 0.8 * fwhm);
    let ours = width(|v, t, valid| SurfaceSmoother::try_new(v, t, valid, fwhm).unwrap());
    assert!((ours - fwhm).abs() < 0.01 * fwhm, "{ours} mm instead of {fwhm} mm");
}
