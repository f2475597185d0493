//! Slices of a map: three planes through a point, and a row of axial ones.
//!
//! A slice is an SVG group: the background as a grey PNG that the browser smooths, the coloured voxels as a PNG
//! with sharp edges above it (a value is never blended with its neighbour's), then sides, cross hair and
//! coordinates as text. Sizes are in millimetres, so voxels keep their aspect.

use crate::{
    Convention, Error, MapKind, MapSection, Result,
    colour::{GREY, Rgb, Scale},
    map_statistics::{MapStatistics, counts, passes},
    orientation::Ras,
    quantity,
    raster::Raster,
};
use maud::{Markup, html};

/// Everything that the drawing of one map needs.
#[derive(Debug)]
pub(crate) struct Picture<'a> {
    /// The map.
    pub(crate) map: &'a MapSection,
    /// Its values along the patient's axes.
    pub(crate) ras: Ras<'a>,
    /// What lies under them, and its greys.
    pub(crate) background: Option<(Ras<'a>, Scale)>,
    /// Colours of the values.
    pub(crate) scale: Scale,
    zeros: bool,
    convention: Convention,
    /// First and last voxel worth showing along x, y, z.
    shown: [(usize, usize); 3],
}

/// One plane: the axis that it is perpendicular to and the axes that it shows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plane {
    fixed: usize,
    across: usize,
    up: usize,
    sides: [&'static str; 4],
}

/// Seen from the left; from behind; from above.
pub(crate) const PLANES: [Plane; 3] = [
    Plane { fixed: 0, across: 1, up: 2, sides: ["P", "A", "S", "I"] },
    Plane { fixed: 1, across: 0, up: 2, sides: ["L", "R", "S", "I"] },
    Plane { fixed: 2, across: 0, up: 1, sides: ["L", "R", "A", "P"] },
];

/// Where a drawn plane lies in its figure, in pixels.
#[derive(Clone, Copy, Debug)]
struct Frame {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

impl<'a> Picture<'a> {
    /// Prepares `map` for drawing.
    ///
    /// # Errors
    /// Values that do not fit their grid, a background of another grid.
    pub(crate) fn try_new(
        map: &'a MapSection,
        statistics: &MapStatistics,
        convention: Convention,
    ) -> Result<Self> {
        let ras = Ras::try_new(&map.name, &map.volume)?;
        let background = match map.background.as_ref().filter(|_| map.kind == MapKind::Statistic) {
            None => None,
            Some(volume) if !volume.grid.same_space(&map.volume.grid) => {
                let reason = "its background lies on another grid: resample one of them".to_owned();
                return Err(Error::Map { map: map.name.clone(), reason });
            }
            Some(volume) => {
                let image = MapSection::image("background", "", volume.clone());
                let scale = MapStatistics::of(&image).scale(&image);
                let low = if scale.low.is_finite() { scale } else { Scale::new(0.0, 1.0, &GREY) };
                Some((Ras::try_new(&map.name, volume)?, low))
            }
        };
        let (scale, zeros) = (statistics.scale(map), statistics.zeros);
        let shown = [0, 1, 2].map(|a| (0, ras.shape[a] - 1));
        let mut picture = Self { map, shown, ras, background, scale, zeros, convention };
        picture.shown = picture.content();
        Ok(picture)
    }

    /// The box around all that is not dark, two voxels wider; the whole volume when all is.
    fn content(&self) -> [(usize, usize); 3] {
        let bright = |ras: &Ras<'_>, scale: &Scale, v| scale.position(f64::from(ras.at(v))) > 0.12;
        let visible = |v| match (&self.background, self.map.kind) {
            (Some((ras, scale)), _) => bright(ras, scale, v) || self.colour(v).is_some(),
            (None, MapKind::Image) => bright(&self.ras, &self.scale, v),
            (None, MapKind::Statistic) => self.colour(v).is_some(),
        };
        let mut found: Option<[(usize, usize); 3]> = None;
        for voxel in self.ras.voxels().filter(|v| visible(*v)) {
            let old = found.unwrap_or(voxel.map(|v| (v, v)));
            found = Some([0, 1, 2].map(|a| (old[a].0.min(voxel[a]), old[a].1.max(voxel[a]))));
        }
        let whole = [0, 1, 2].map(|a| (0, self.ras.shape[a] - 1));
        found.map_or(whole, |f| [0, 1, 2].map(|a| (f[a].0.saturating_sub(2), (f[a].1 + 2).min(whole[a].1))))
    }

    /// The colour over the background at a voxel, if it has one.
    pub(crate) fn colour(&self, voxel: [usize; 3]) -> Option<Rgb> {
        let value = self.ras.at(voxel);
        let drawn = self.map.kind == MapKind::Statistic
            && counts(self.zeros, value)
            && passes(self.map.threshold, value);
        drawn.then(|| self.scale.colour(f64::from(value)))
    }

    /// The grey under the colours at a voxel; black where there is none.
    pub(crate) fn grey(&self, voxel: [usize; 3]) -> u8 {
        let (ras, scale) = match (&self.background, self.map.kind) {
            (Some((ras, scale)), _) => (ras, scale),
            (None, MapKind::Image) => (&self.ras, &self.scale),
            (None, MapKind::Statistic) => return 0,
        };
        scale.colour(f64::from(ras.at(voxel)))[0]
    }

    /// The voxel that is drawn at column `px`, row `py` (from the top left) of a plane.
    fn voxel(&self, plane: Plane, index: usize, px: usize, py: usize) -> [usize; 3] {
        let ((left, right), (bottom, top)) = (self.shown[plane.across], self.shown[plane.up]);
        debug_assert!(bottom + py <= top, "row outside the plane");
        let mut voxel = [0; 3];
        voxel[plane.fixed] = index;
        voxel[plane.across] = if self.mirrored(plane) { right - px } else { left + px };
        voxel[plane.up] = top - py;
        voxel
    }

    fn mirrored(&self, plane: Plane) -> bool {
        self.convention == Convention::Radiological && plane.across == 0
    }

    /// Columns and rows of a plane's image.
    fn pixels(&self, plane: Plane) -> (usize, usize) {
        let count = |axis: usize| self.shown[axis].1 - self.shown[axis].0 + 1;
        (count(plane.across), count(plane.up))
    }

    /// Width and height of a plane in mm.
    fn millimetres(&self, plane: Plane) -> (f64, f64) {
        let (columns, rows) = self.pixels(plane);
        (columns as f64 * self.ras.zooms[plane.across], rows as f64 * self.ras.zooms[plane.up])
    }

    /// The two images of a plane and the sides' letters, inside `frame`.
    fn plane(&self, plane: Plane, index: usize, frame: Frame, letters: f64) -> Result<Markup> {
        let Frame { x, y, width, height } = frame;
        let (columns, rows) = self.pixels(plane);
        let grey = Raster::from_fn(columns, rows, |px, py| [self.grey(self.voxel(plane, index, px, py))])
            .data_uri()?;
        let over = Raster::from_fn(columns, rows, |px, py| {
            self.colour(self.voxel(plane, index, px, py)).map_or([0; 4], |[r, g, b]| [r, g, b, 255])
        });
        let over = if self.map.kind == MapKind::Statistic { Some(over.data_uri()?) } else { None };
        let [mut left, mut right, ..] = plane.sides;
        if self.mirrored(plane) {
            std::mem::swap(&mut left, &mut right);
        }
        Ok(html! {
            rect x=(px(x)) y=(px(y)) width=(px(width)) height=(px(height)) fill="#000" {}
            image x=(px(x)) y=(px(y)) width=(px(width)) height=(px(height)) preserveAspectRatio="none" href=(grey) {}
            @if let Some(over) = over {
                image.pixels x=(px(x)) y=(px(y)) width=(px(width)) height=(px(height)) preserveAspectRatio="none"
                    href=(over) {}
            }
            text.side x=(px(x + 4.0)) y=(px(y + letters + 2.0)) font-size=(letters) { (left) }
            text.side x=(px(x + width - 4.0)) y=(px(y + letters + 2.0)) font-size=(letters) text-anchor="end" { (right) }
        })
    }

    /// Sagittal, coronal and axial plane through `at`, with a cross hair and the colour bar.
    ///
    /// # Errors
    /// What the PNG encoder said.
    pub(crate) fn ortho(&self, at: [usize; 3]) -> Result<Markup> {
        const WIDTH: f64 = 1000.0;
        const GAP: f64 = 12.0;
        let sizes = PLANES.map(|p| self.millimetres(p));
        let across: f64 = sizes.iter().map(|s| s.0).sum();
        let tallest = sizes.iter().map(|s| s.1).fold(0.0, f64::max);
        let per_mm = ((WIDTH - BAR - 3.0 * GAP) / across).min(440.0 / tallest);
        let height = tallest * per_mm;
        let point = self.ras.millimetres(at);
        let mut x = 0.0;
        let mut planes = Vec::new();
        for (plane, (mm_across, mm_up)) in PLANES.into_iter().zip(sizes) {
            let frame = Frame { x, y: 0.0, width: mm_across * per_mm, height: mm_up * per_mm };
            let frame = Frame { y: (height - frame.height) / 2.0, ..frame };
            planes.push(html! {
                g {
                    (self.plane(plane, at[plane.fixed], frame, 15.0)?)
                    (self.cross_hair(plane, at, frame))
                    text.coordinate x=(px(frame.x + frame.width / 2.0)) y=(px(frame.y + frame.height + 20.0)) {
                        (["x", "y", "z"][plane.fixed]) " = " (quantity::number(round1(point[plane.fixed]), 4)) " mm"
                    }
                }
            });
            x += frame.width + GAP;
        }
        let (width, total) = (x + BAR, height + 30.0);
        let label = format!("Three slices of {}", self.map.name);
        Ok(html! {
            svg.slices role="img" aria-label=(label) viewBox=(format!("0 0 {} {}", px(width), px(total)))
                style=(format!("max-width:{}px", px(width))) {
                @for plane in &planes { (plane) }
                (self.bar(x, height)?)
            }
        })
    }

    fn cross_hair(&self, plane: Plane, at: [usize; 3], frame: Frame) -> Markup {
        let part = |axis: usize| {
            let (first, last) = self.shown[axis];
            (at[axis].clamp(first, last) - first) as f64 + 0.5
        };
        let (columns, rows) = self.pixels(plane);
        let across = part(plane.across) / columns as f64;
        let across = if self.mirrored(plane) { 1.0 - across } else { across };
        let x = frame.x + across * frame.width;
        let y = frame.y + (1.0 - part(plane.up) / rows as f64) * frame.height;
        html! {
            path.cross d=(format!(
                "M{} {}V{}M{} {}H{}",
                px(x), px(frame.y), px(frame.y + frame.height), px(frame.x), px(y), px(frame.x + frame.width)
            )) {}
        }
    }

    /// The colour bar at `x`: ends, zero and threshold with their values; what is not coloured is grey.
    fn bar(&self, x: f64, height: f64) -> Result<Markup> {
        let Scale { low, high, .. } = self.scale;
        let value = |row: usize| high - (high - low) * (row as f64 + 0.5) / 256.0;
        let image = Raster::from_fn(1, 256, |_, row| {
            if passes(self.map.threshold, value(row) as f32) {
                self.scale.colour(value(row))
            } else {
                [128; 3]
            }
        });
        let (top, length) = (height * 0.08, height * 0.84);
        let threshold = f64::from(self.map.threshold.unwrap_or(0.0));
        let mut marks: Vec<f64> = Vec::new();
        for mark in [high, low, -threshold, threshold, 0.0] {
            let near = |other: &f64| (mark - other).abs() < (high - low) * 0.06;
            if (low..=high).contains(&mark) && !marks.iter().any(near) {
                marks.push(mark);
            }
        }
        Ok(html! {
            image x=(px(x + 4.0)) y=(px(top)) width="14" height=(px(length)) preserveAspectRatio="none"
                href=(image.data_uri()?) {}
            @for mark in marks {
                @let y = top + (high - mark) / (high - low) * length;
                path.tick d=(format!("M{} {}h5", px(x + 18.0), px(y))) {}
                text.value x=(px(x + 26.0)) y=(px(y + 4.0)) { (quantity::number(mark, 3)) }
            }
            text.value x=(px(x + 4.0)) y=(px(top + length + 18.0)) { (self.map.unit) }
        })
    }

    /// Up to 21 axial slices from the bottom to the top of what is coloured.
    ///
    /// # Errors
    /// What the PNG encoder said.
    pub(crate) fn light_box(&self) -> Result<Markup> {
        const COLUMNS: usize = 7;
        const GAP: f64 = 4.0;
        let plane = PLANES[2];
        let indices = self.axial_indices(3 * COLUMNS);
        let columns = indices.len().clamp(1, COLUMNS);
        let cell = (1000.0 - GAP * (COLUMNS - 1) as f64) / COLUMNS as f64;
        let (mm_across, mm_up) = self.millimetres(plane);
        let height = cell * mm_up / mm_across;
        let middle = [0, 1].map(|a| usize::midpoint(self.shown[a].0, self.shown[a].1));
        let mut cells = Vec::new();
        for (number, index) in indices.iter().enumerate() {
            let (column, row) = ((number % columns) as f64, (number / columns) as f64);
            let frame = Frame { x: column * (cell + GAP), y: row * (height + GAP), width: cell, height };
            let z = self.ras.millimetres([middle[0], middle[1], *index])[2];
            cells.push(html! {
                (self.plane(plane, *index, frame, 10.0)?)
                text.inside x=(px(frame.x + 4.0)) y=(px(frame.y + height - 5.0)) {
                    "z = " (quantity::number(round1(z), 4))
                }
            });
        }
        let rows = indices.len().div_ceil(columns);
        let size = (columns as f64 * (cell + GAP) - GAP, rows as f64 * (height + GAP) - GAP);
        let label = format!("Axial slices of {}", self.map.name);
        Ok(html! {
            svg.slices role="img" aria-label=(label) viewBox=(format!("0 0 {} {}", px(size.0), px(size.1)))
                style=(format!("max-width:{}px", px(size.0))) { @for cell in &cells { (cell) } }
        })
    }

    fn axial_indices(&self, most: usize) -> Vec<usize> {
        let (bottom, top) = self.shown[2];
        let (columns, rows) = self.pixels(PLANES[2]);
        let coloured = |z: &usize| {
            (0..rows).any(|y| (0..columns).any(|x| self.colour(self.voxel(PLANES[2], *z, x, y)).is_some()))
        };
        let first = (bottom..=top).find(|z| coloured(z)).unwrap_or(bottom);
        let last = (bottom..=top).rev().find(|z| coloured(z)).unwrap_or(top);
        let slices = last - first + 1;
        let drawn = slices.min(most);
        (0..drawn).map(|n| first + (n * (slices - 1) + (drawn - 1) / 2) / (drawn - 1).max(1)).collect()
    }
}

/// Pixels to the right of the planes for the colour bar.
const BAR: f64 = 84.0;

/// A coordinate in pixels, to a hundredth.
fn px(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

fn round1(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::orientation::tests::{LAS_2MM, PIL, RAS_2MM, hot};

    /// Column and row (from the top left, as parts of the image) at which the only coloured voxel is drawn.
    fn place(picture: &Picture<'_>, plane: Plane, index: usize) -> Option<(f64, f64)> {
        let (columns, rows) = picture.pixels(plane);
        let all = (0..rows).flat_map(|y| (0..columns).map(move |x| (x, y)));
        let mut hits = all.filter(|(x, y)| picture.colour(picture.voxel(plane, index, *x, *y)).is_some());
        let hit = hits.next().map(|(x, y)| (x as f64 / (columns - 1) as f64, y as f64 / (rows - 1) as f64));
        assert!(hits.next().is_none());
        hit
    }

    /// A hot voxel at the patient's left, front, top must be drawn there, whatever the storage.
    #[test]
    fn left_is_on_the_stated_side_in_both_conventions() {
        let shape = [9, 9, 9];
        // Stored indices of the voxel at the left, front and top.
        for (affine, at) in [(RAS_2MM, [0, 8, 8]), (LAS_2MM, [8, 8, 8]), (PIL, [0, 0, 8])] {
            let volume = hot(shape, affine, at);
            let mut background = volume.clone();
            background.values.fill(1.0);
            let map = MapSection::statistic("m", "r", volume, Some(background));
            let statistics = MapStatistics::of(&map);
            for (convention, column) in [(Convention::Neurological, 0.0), (Convention::Radiological, 1.0)] {
                let mut picture = Picture::try_new(&map, &statistics, convention).unwrap();
                picture.shown = [(0, 8); 3];
                let peak = crate::map_statistics::cut(&map, &picture.ras).unwrap().0;
                assert_eq!(peak, [0, 8, 8]);
                assert_eq!(place(&picture, PLANES[2], peak[2]), Some((column, 0.0)), "axial {convention:?}");
                assert_eq!(
                    place(&picture, PLANES[1], peak[1]),
                    Some((column, 0.0)),
                    "coronal {convention:?}"
                );
                assert_eq!(place(&picture, PLANES[0], peak[0]), Some((1.0, 0.0)), "sagittal {convention:?}");
                let sides = picture
                    .plane(PLANES[2], 0, Frame { x: 0.0, y: 0.0, width: 9.0, height: 9.0 }, 9.0)
                    .unwrap()
                    .0;
                let (l, r) = (sides.find(">L<").unwrap(), sides.find(">R<").unwrap());
                assert_eq!(l < r, convention == Convention::Neurological, "letters {convention:?}");
            }
        }
    }

    #[test]
    fn voxels_keep_their_aspect() {
        let volume = hot([9, 9, 9], PIL, [4, 4, 4]);
        let map = MapSection::statistic("m", "r", volume, None);
        let mut picture = Picture::try_new(&map, &MapStatistics::of(&map), Convention::default()).unwrap();
        picture.shown = [(0, 8); 3];
        assert_eq!(picture.millimetres(PLANES[2]), (27.0, 9.0));
    }

    #[test]
    fn what_is_dark_is_cropped_and_the_threshold_is_kept() {
        let volume = hot([20, 20, 20], RAS_2MM, [10, 10, 10]);
        let map = MapSection::statistic("m", "r", volume, None);
        let statistics = MapStatistics::of(&map);
        let picture = Picture::try_new(&map, &statistics, Convention::default()).unwrap();
        assert_eq!(picture.shown, [(8, 12); 3]);
        assert_eq!(picture.axial_indices(21), [10]);
        let map = map.thresholded(2.0);
        let picture = Picture::try_new(&map, &statistics, Convention::default()).unwrap();
        assert_eq!(picture.colour([10, 10, 10]), None);
        assert_eq!(picture.shown, [(0, 19); 3]);
        assert_eq!(picture.axial_indices(21).len(), 20);
        assert_eq!(picture.axial_indices(5), [0, 5, 10, 14, 19]);
    }

    #[test]
    fn a_background_of_another_grid_is_refused() {
        let map = MapSection::statistic(
            "m",
            "r",
            hot([3, 3, 3], RAS_2MM, [0; 3]),
            Some(hot([3, 3, 3], LAS_2MM, [0; 3])),
        );
        let e = Picture::try_new(&map, &MapStatistics::of(&map), Convention::default()).unwrap_err();
        assert!(e.to_string().contains("another grid"), "{e}");
    }
}
