//! What the optional slice viewer needs: volumes of one byte a voxel, and words to read them with.
//!
//! Without JavaScript nothing of it is seen; the drawn slices stand by themselves.

use crate::{Convention, MapKind, raster::base64, slices::Picture};
use maud::{Markup, html};

/// Volumes with more voxels are not embedded: the page would grow by megabytes.
const MOST_VOXELS: usize = 1_500_000;

/// The viewer of `picture`, starting at voxel `at`; `None` for volumes too large to embed.
pub(crate) fn embed(picture: &Picture<'_>, at: [usize; 3], convention: Convention) -> Option<Markup> {
    let voxels = picture.ras.shape.iter().product::<usize>();
    if voxels > MOST_VOXELS {
        return None;
    }
    let grey: Vec<u8> = picture.ras.voxels().map(|v| picture.grey(v)).collect();
    // 0: no colour; 1..=255: place on the scale.
    let colours = (picture.map.kind == MapKind::Statistic).then(|| {
        let level = |v| {
            let position = picture.scale.position(f64::from(picture.ras.at(v))).clamp(0.0, 1.0);
            picture.colour(v).map_or(0, |_| 1 + (position * 254.0).round() as u8)
        };
        base64(&picture.ras.voxels().map(level).collect::<Vec<u8>>())
    });
    let palette: Vec<u8> = (0..255).flat_map(|i| picture.scale.map.at(f64::from(i) / 254.0)).collect();
    let (step, origin) = picture.ras.affine_text();
    Some(html! {
        div.viewer hidden
            data-shape=(join(&picture.ras.shape)) data-zooms=(join(&picture.ras.zooms)) data-at=(join(&at))
            data-affine=(step) data-origin=(origin) data-unit=(picture.map.unit)
            data-low=(picture.scale.low) data-high=(picture.scale.high)
            data-mirror[convention == Convention::Radiological] data-grey=(base64(&grey)) data-colours=[colours]
            data-palette=(base64(&palette)) {}
    })
}

fn join<T: ToString>(values: &[T]) -> String {
    values.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}
