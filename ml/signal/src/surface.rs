//! Smoothing on a cortical surface, along it and not across its folds, by repeated means over neighbours.
//!
//! One step replaces `y` at a vertex by `(1 − λ) y + λ · mean of its neighbours`, which spreads by `λ e²` per step,
//! `e²` the mean of the squared lengths of edges; repeated, this is diffusion along the surface, whose kernel is a
//! Gaussian of geodesic distance (Hagler, Saygin & Sereno 2006, NeuroImage 33:1093; Chung et al. 2005). As in
//! SurfStat's `SurfStatSmooth` (Worsley et al. 2009) λ is at most ½ and a width takes
//! `FWHM² / (2 ln 2 · e²)` steps of ½; that number is rounded up here and λ lowered to meet the width exactly.
//!
//! nilearn 0.14 takes the same steps of ½, but as many as FreeSurfer's `mris_fwhm` counts for steps of 6/7, and so comes
//! to three quarters of the width that was asked for; [`SurfaceSmoother::try_with_steps`] repeats its numbers.
//!
//! Vertices that are not valid, as the medial wall, neither give nor take. What is conserved is the sum of `y` weighted
//! by the vertices' numbers of neighbours: the mean itself where all have as many.

use crate::{Error, Result};

/// Smooths values on the vertices of a triangle mesh.
#[derive(Clone, Debug)]
pub struct SurfaceSmoother {
    /// Neighbours of all vertices, vertex after vertex, and where each begins.
    neighbours: Vec<u32>,
    starts: Vec<usize>,
    valid: Vec<bool>,
    steps: usize,
    lambda: f64,
}

/// Room for [`SurfaceSmoother::smooth`], one for each thread.
#[derive(Clone, Debug, Default)]
pub struct SurfaceScratch {
    before: Vec<f64>,
    open: Vec<bool>,
}

impl SurfaceSmoother {
    /// Full width at half maximum `fwhm` in the unit of `vertices` (millimetres).
    ///
    /// `vertices` `[V]`, `triangles` `[F]` of three vertices' numbers, `valid` `[V]`: false on the medial wall.
    ///
    /// # Errors
    /// A width that is negative or not finite, a mask of another length, triangles that name a vertex twice or one
    /// that is not there, coordinates that are not finite, and meshes without an edge between valid vertices.
    pub fn try_new(vertices: &[[f32; 3]], triangles: &[[u32; 3]], valid: &[bool], fwhm: f64) -> Result<Self> {
        if !(fwhm.is_finite() && fwhm >= 0.0) {
            let reason = format!("{fwhm} mm is no width; give millimetres of at least 0");
            return Err(Error::Setting { setting: "smoothing_fwhm", reason });
        }
        if valid.len() != vertices.len() {
            let expected = format!("one per vertex, {}", vertices.len());
            return Err(Error::Shape { what: "vertex mask", found: valid.len(), expected });
        }
        let edges = edges(triangles, valid)?;
        let squared = mean_square(&edges, vertices)?;
        let halves = fwhm * fwhm / (2.0 * 2f64.ln() * squared);
        // A hundredth of a step too many is rounding, not width.
        let steps = (halves - 0.01).ceil().max(0.0);
        if steps > 1e6 {
            let reason =
                format!("{fwhm} mm are {steps} steps on a mesh whose edges are {} mm long", squared.sqrt());
            return Err(Error::Setting { setting: "smoothing_fwhm", reason });
        }
        let lambda = if steps > 0.0 { (0.5 * halves / steps).min(0.5) } else { 0.0 };
        Ok(Self::new(&edges, valid, steps as usize, lambda))
    }

    /// So many steps with λ = ½, whatever width they come to.
    ///
    /// # Errors
    /// Triangles that name a vertex twice or one that is not there.
    pub fn try_with_steps(triangles: &[[u32; 3]], valid: &[bool], steps: usize) -> Result<Self> {
        Ok(Self::new(&edges(triangles, valid)?, valid, steps, 0.5))
    }

    fn new(edges: &[[u32; 2]], valid: &[bool], steps: usize, lambda: f64) -> Self {
        let (starts, neighbours) = adjacency(edges, valid.len());
        Self { neighbours, starts, valid: valid.to_vec(), steps, lambda }
    }

    /// Steps that the width takes.
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// Smooths `values`, one per vertex, in place and returns how many valid ones are not finite.
    ///
    /// These keep what they hold and, like vertices that are not valid, take no part.
    ///
    /// # Errors
    /// Another number of values.
    pub fn smooth(&self, values: &mut [f64], scratch: &mut SurfaceScratch) -> Result<usize> {
        if values.len() != self.valid.len() {
            let expected = format!("one per vertex, {}", self.valid.len());
            return Err(Error::Shape { what: "surface values", found: values.len(), expected });
        }
        scratch.open.clear();
        scratch.open.extend(self.valid.iter().zip(values.iter()).map(|(valid, y)| *valid && y.is_finite()));
        let not_finite =
            self.valid.iter().zip(&scratch.open).filter(|(valid, open)| **valid && !**open).count();
        for _ in 0..self.steps {
            scratch.before.clear();
            scratch.before.extend_from_slice(values);
            let bounds = self.starts.windows(2);
            for (vertex, (y, bounds)) in values.iter_mut().zip(bounds).enumerate() {
                if scratch.open[vertex] {
                    let around = &self.neighbours[bounds[0]..bounds[1]];
                    let around =
                        around.iter().map(|n| *n as usize).filter(|n| not_finite == 0 || scratch.open[*n]);
                    let (sum, count) = around.fold((0.0, 0u32), |(s, c), n| (s + scratch.before[n], c + 1));
                    if count > 0 {
                        *y += self.lambda * (sum / f64::from(count) - *y);
                    }
                }
            }
        }
        Ok(not_finite)
    }
}

/// Edges between valid vertices, each once.
fn edges(triangles: &[[u32; 3]], valid: &[bool]) -> Result<Vec<[u32; 2]>> {
    let mut edges = Vec::with_capacity(3 * triangles.len());
    for (number, triangle) in triangles.iter().enumerate() {
        let [a, b, c] = *triangle;
        let outside = triangle.iter().any(|v| *v as usize >= valid.len());
        if outside || a == b || b == c || a == c {
            let reason = format!(
                "triangle {number} joins {triangle:?}; a mesh of {} vertices has three different ones under that in each",
                valid.len()
            );
            return Err(Error::Setting { setting: "triangles", reason });
        }
        for [from, to] in [[a, b], [b, c], [c, a]] {
            if valid[from as usize] && valid[to as usize] {
                edges.push([from.min(to), from.max(to)]);
            }
        }
    }
    edges.sort_unstable();
    edges.dedup();
    Ok(edges)
}

/// Mean of the squared lengths.
fn mean_square(edges: &[[u32; 2]], vertices: &[[f32; 3]]) -> Result<f64> {
    let squared = |[a, b]: &[u32; 2]| -> f64 {
        let (a, b) = (&vertices[*a as usize], &vertices[*b as usize]);
        a.iter().zip(b).map(|(x, y)| (f64::from(*x) - f64::from(*y)).powi(2)).sum()
    };
    let mean = edges.iter().map(squared).sum::<f64>() / edges.len() as f64;
    if mean.is_finite() && mean > 0.0 {
        return Ok(mean);
    }
    let reason = match edges.is_empty() {
        true => "no edge joins two valid vertices; are mask and mesh of one hemisphere?".to_owned(),
        false => format!("the mean square length of its edges is {mean}; is a coordinate missing?"),
    };
    Err(Error::Setting { setting: "vertices", reason })
}

/// Neighbours of each vertex: where they begin, and their numbers.
fn adjacency(edges: &[[u32; 2]], vertices: usize) -> (Vec<usize>, Vec<u32>) {
    let mut starts = vec![0; vertices + 1];
    edges.iter().flatten().for_each(|v| starts[*v as usize + 1] += 1);
    for v in 0..vertices {
        starts[v + 1] += starts[v];
    }
    let mut next = starts.clone();
    let mut neighbours = vec![0; 2 * edges.len()];
    for [a, b] in edges {
        for (from, to) in [(a, b), (b, a)] {
            neighbours[next[*from as usize]] = *to;
            next[*from as usize] += 1;
        }
    }
    (starts, neighbours)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    const SIDE: u32 = 48;

    /// A plane of equilateral triangles with edges of 1 mm, `SIDE` × `SIDE`.
    fn plane() -> (Vec<[f32; 3]>, Vec<[u32; 3]>) {
        let place =
            |v: u32| [(v % SIDE) as f32 + 0.5 * (v / SIDE) as f32, 0.75f32.sqrt() * (v / SIDE) as f32, 0.0];
        let triangles = (0..SIDE * (SIDE - 1)).filter(|v| v % SIDE + 1 < SIDE);
        let triangles = triangles.flat_map(|v| [[v, v + 1, v + SIDE], [v + 1, v + SIDE + 1, v + SIDE]]);
        ((0..SIDE * SIDE).map(place).collect(), triangles.collect())
    }

    fn smoothed(smoother: &SurfaceSmoother, values: &[f64]) -> Vec<f64> {
        let mut values = values.to_vec();
        smoother.smooth(&mut values, &mut SurfaceScratch::default()).unwrap();
        values
    }

    fn noise() -> Vec<f64> {
        (0..SIDE * SIDE).map(|v| f64::from(v.wrapping_mul(2_654_435_761) >> 16) / 65_536.0).collect()
    }

    #[test]
    fn a_point_becomes_a_gaussian_of_the_width_that_was_asked_for() {
        let (vertices, triangles) = plane();
        let valid = vec![true; vertices.len()];
        let middle = (SIDE * SIDE / 2 + SIDE / 2) as usize;
        for fwhm in [1.0, 3.0, 6.0, 8.0] {
            let smoother = SurfaceSmoother::try_new(&vertices, &triangles, &valid, fwhm).unwrap();
            let mut point = vec![0.0; vertices.len()];
            point[middle] = 1.0;
            let y = smoothed(&smoother, &point);
            let moment = |of: &dyn Fn(f64) -> f64| -> f64 {
                y.iter().zip(&vertices).map(|(y, p)| y * of(f64::from(p[0] - vertices[middle][0]))).sum()
            };
            assert!((moment(&|_| 1.0) - 1.0).abs() < 1e-4);
            let width = (moment(&|d| d * d) * 8.0 * 2f64.ln()).sqrt();
            assert!((width - fwhm).abs() < 0.01 * fwhm, "{width} mm instead of {fwhm} mm");
            // A Gaussian's fourth moment is three times the square of its second.
            let kurtosis = moment(&|d| d.powi(4)) / moment(&|d| d * d).powi(2);
            assert!(fwhm < 3.0 || (kurtosis - 3.0).abs() < 0.15, "{fwhm} mm: {kurtosis}");
        }
    }

    #[test]
    fn constants_stay_and_the_weighted_mean_is_kept() {
        let (vertices, triangles) = plane();
        let valid: Vec<bool> = (0..vertices.len()).map(|v| v % 7 != 3).collect();
        let smoother = SurfaceSmoother::try_new(&vertices, &triangles, &valid, 5.0).unwrap();
        assert!(smoothed(&smoother, &vec![4.25; vertices.len()]).iter().all(|y| (y - 4.25).abs() < 1e-12));

        let degree = |v: usize| (smoother.starts[v + 1] - smoother.starts[v]) as f64;
        let weighted = |y: &[f64]| (0..y.len()).map(|v| degree(v) * y[v]).sum::<f64>();
        let before = noise();
        let after = smoothed(&smoother, &before);
        assert!((weighted(&after) / weighted(&before) - 1.0).abs() < 1e-12);
        let spread = |y: &[f64]| y.iter().fold(0.0, |s, y| s + (y - 0.5).powi(2));
        assert!(spread(&after) < 0.5 * spread(&before));
    }

    #[test]
    fn vertices_that_are_not_valid_never_contribute_and_never_change() {
        let (vertices, triangles) = plane();
        let valid: Vec<bool> = (0..SIDE * SIDE).map(|v| v % SIDE != 20 && v / SIDE != 9).collect();
        let smoother = SurfaceSmoother::try_new(&vertices, &triangles, &valid, 6.0).unwrap();
        let values = noise();
        let after = smoothed(&smoother, &values);
        for wall in [1e9, f64::NAN, f64::NEG_INFINITY] {
            let mut other = values.clone();
            other.iter_mut().zip(&valid).filter(|(_, valid)| !**valid).for_each(|(y, _)| *y = wall);
            let mut smooth = other.clone();
            assert_eq!(smoother.smooth(&mut smooth, &mut SurfaceScratch::default()).unwrap(), 0);
            for v in 0..values.len() {
                let expected = if valid[v] { after[v] } else { wall };
                assert_eq!(smooth[v].to_bits(), expected.to_bits(), "vertex {v}");
            }
        }
        // The wall divides the plane: what is on one side does not come to the other.
        let mut left = vec![0.0; values.len()];
        (0..left.len()).filter(|v| v % (SIDE as usize) < 20).for_each(|v| left[v] = 1.0);
        let after = smoothed(&smoother, &left);
        assert!((0..left.len()).filter(|v| v % (SIDE as usize) > 20).all(|v| after[v] == 0.0));
    }

    #[test]
    fn a_nan_is_counted_and_does_not_spread() {
        let (vertices, triangles) = plane();
        let smoother =
            SurfaceSmoother::try_new(&vertices, &triangles, &vec![true; vertices.len()], 6.0).unwrap();
        let mut values = vec![2.0; vertices.len()];
        values[1000] = f64::NAN;
        assert_eq!(smoother.smooth(&mut values, &mut SurfaceScratch::default()).unwrap(), 1);
        assert!(values[1000].is_nan());
        assert!(values.iter().enumerate().all(|(v, y)| v == 1000 || (y - 2.0).abs() < 1e-12));
    }

    #[test]
    fn meshes_that_are_none_are_refused() {
        let (vertices, triangles) = plane();
        let valid = vec![true; vertices.len()];
        let refuse = |v: &[[f32; 3]], t: &[[u32; 3]], m: &[bool], fwhm| {
            SurfaceSmoother::try_new(v, t, m, fwhm).unwrap_err()
        };
        assert_eq!(refuse(&vertices, &triangles, &valid, -1.0).setting(), Some("smoothing_fwhm"));
        assert_eq!(refuse(&vertices, &triangles, &valid, 1e6).setting(), Some("smoothing_fwhm"));
        assert!(matches!(refuse(&vertices, &triangles, &valid[1..], 5.0), Error::Shape { .. }));
        assert_eq!(refuse(&vertices, &[[0, 1, 5000]], &valid, 5.0).setting(), Some("triangles"));
        assert_eq!(refuse(&vertices, &[[0, 1, 1]], &valid, 5.0).setting(), Some("triangles"));
        assert_eq!(refuse(&vertices, &triangles, &vec![false; valid.len()], 5.0).setting(), Some("vertices"));
        assert_eq!(refuse(&[[f32::NAN; 3]; 3], &[[0, 1, 2]], &[true; 3], 5.0).setting(), Some("vertices"));
        let none = SurfaceSmoother::try_new(&vertices, &triangles, &valid, 0.0).unwrap();
        assert_eq!((none.steps(), smoothed(&none, &noise())), (0, noise()));
        assert!(none.smooth(&mut [0.0; 3], &mut SurfaceScratch::default()).is_err());
    }
}
