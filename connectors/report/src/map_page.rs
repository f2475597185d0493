//! The part of the page that shows maps.

use crate::{
    Convention, MapKind, MapSection, Result, histogram,
    map_statistics::{self, MapStatistics},
    page::{anchor, figure},
    quantity::{count, number},
    slices::Picture,
    viewer,
};
use maud::{Markup, html};

/// One map: planes, numbers, distribution, axial slices, viewer.
///
/// # Errors
/// A volume that does not fit its grid, a background of another grid.
pub(crate) fn section(map: &MapSection, number_: usize, convention: Convention) -> Result<Markup> {
    let statistics = MapStatistics::of(map);
    let picture = Picture::try_new(map, &statistics, convention)?;
    let cut = map_statistics::cut(map, &picture.ras);
    Ok(html! {
        section.map id=(anchor("map", number_)) {
            h3 { (map.name) }
            @if !map.description.is_empty() { p { (map.description) } }
            @match cut {
                None => p.empty {
                    "Nothing to draw: none of the " (count(statistics.voxels as u64)) " voxels has a value ("
                    (count(statistics.not_finite as u64)) " are NaN or infinite, the others zero)."
                }
                Some((at, why)) => (drawn(map, &statistics, &picture, at, why, convention)?)
            }
        }
    })
}

fn drawn(
    map: &MapSection,
    statistics: &MapStatistics,
    picture: &Picture<'_>,
    at: [usize; 3],
    why: &str,
    convention: Convention,
) -> Result<Markup> {
    let ortho = picture.ortho(at)?;
    let caption = ortho_caption(map, statistics, picture, at, why, convention);
    let light_box = picture.light_box()?;
    let histogram = histogram::draw(map, statistics)?;
    let across = match map.kind {
        MapKind::Statistic => "Axial slices over the extent of the coloured voxels, colours as above.",
        MapKind::Image => "Axial slices, greys as above.",
    };
    Ok(html! {
        (figure(ortho, &caption))
        @if let Some(viewer) = viewer::embed(picture, at, convention) { (viewer) }
        (figure(light_box, &format!("{across} {}", sides(convention))))
        div.columns {
            @if let Some(histogram) = histogram {
                (figure(html! { (histogram) }, &histogram_caption(map, statistics)))
            }
            (numbers(map, statistics, picture))
        }
    })
}

fn sides(convention: Convention) -> &'static str {
    match convention {
        Convention::Neurological => "Neurological convention: the patient's left (L) is shown left.",
        Convention::Radiological => "Radiological convention: the patient's left (L) is shown right.",
    }
}

fn unit(map: &MapSection) -> String {
    if map.unit.is_empty() { String::new() } else { format!(" {}", map.unit) }
}

fn ortho_caption(
    map: &MapSection,
    statistics: &MapStatistics,
    picture: &Picture<'_>,
    at: [usize; 3],
    why: &str,
    convention: Convention,
) -> String {
    let value = number(f64::from(picture.ras.at(at)), 3);
    let unit = unit(map);
    let [x, y, z] = picture.ras.millimetres(at).map(|v| number((v * 10.0).round() / 10.0, 4));
    let mut caption = format!(
        "Sagittal, coronal and axial slice through {why}: x, y, z = {x}, {y}, {z} mm (value {value}{unit}). {} ",
        sides(convention)
    );
    let scale = picture.scale;
    let (low, high) = (number(scale.low, 3), number(scale.high, 3));
    caption += &match map.kind {
        MapKind::Image => format!("Grey from {low} to {high}{unit} (0.5 to 99.5 % of the values). "),
        MapKind::Statistic => {
            format!("Colours ({}) from {low} to {high}{unit}, saturating beyond", scale.map.name)
        }
    };
    if map.kind == MapKind::Statistic {
        if let Some(threshold) = map.threshold {
            let threshold = number(f64::from(threshold), 3);
            caption +=
                &format!("; drawn where |value| ≥ {threshold} ({} voxels)", count(statistics.shown as u64));
        }
        let below = map.background.as_ref().map(|b| b.grid.source.as_str());
        caption += &match below {
            Some("") => "; over its background image in grey. ".to_owned(),
            Some(source) => format!("; over the image of {source} in grey. "),
            None => "; no background image was given. ".to_owned(),
        };
    }
    let tilt = picture.ras.tilt;
    if tilt > 1.0 {
        caption += &format!(
            "Slices follow the image's own axes (stored {}), which lie up to {tilt:.0}° from the scanner's; \
             coordinates are those of the crossing point.",
            picture.ras.stored
        );
    } else {
        caption += &format!("Stored axes: {}.", picture.ras.stored);
    }
    caption
}

fn histogram_caption(map: &MapSection, statistics: &MapStatistics) -> String {
    let voxels = count(statistics.sorted.len() as u64);
    let what = if statistics.zeros { "finite values" } else { "finite values other than zero" };
    let dashed = if map.threshold.is_some() { " Dashed: threshold; paler: not drawn." } else { "" };
    format!("Distribution of the {voxels} {what}, in 60 equal bins.{dashed}")
}

fn numbers(map: &MapSection, statistics: &MapStatistics, picture: &Picture<'_>) -> Markup {
    let [x, y, z] = picture.ras.shape;
    let zooms = picture.ras.zooms.map(|v| number(v, 3)).join(" × ");
    let quantiles = [("minimum", 0.0), ("5 %", 0.05), ("median", 0.5), ("95 %", 0.95), ("maximum", 1.0)];
    html! {
        table.facts {
            caption { "Values" (if map.unit.is_empty() { String::new() } else { format!(" ({})", map.unit) }) }
            tbody {
                tr { th scope="row" { "voxels with a value" } td { (count(statistics.sorted.len() as u64)) " of " (count(statistics.voxels as u64)) } }
                @if statistics.not_finite > 0 {
                    tr { th scope="row" { "NaN or infinite" } td { (count(statistics.not_finite as u64)) } }
                }
                @if map.threshold.is_some() {
                    tr { th scope="row" { "at or beyond threshold" } td { (count(statistics.shown as u64)) } }
                }
                tr { th scope="row" { "mean" } td { (number(statistics.mean, 4)) } }
                @for (name, part) in quantiles {
                    tr { th scope="row" { (name) } td { (number(statistics.quantile(part), 4)) } }
                }
                tr { th scope="row" { "grid (x, y, z)" } td { (x) " × " (y) " × " (z) ", " (zooms) " mm" } }
            }
        }
    }
}
