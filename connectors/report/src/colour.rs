//! Colour maps and scales: a value of a map to a colour, the same everywhere in the report.
//!
//! The maps are given by control points, joined linearly in sRGB (within 3 % of the originals):
//! *viridis*, van der Walt and Smith 2015 (CC0); *berlin*, Crameri 2018, Scientific colour maps,
//! doi:10.5281/zenodo.1243862 (MIT), diverging from dark, for maps over a grey brain; *coolwarm*, Moreland 2009,
//! "Diverging Color Maps for Scientific Visualization", diverging from light grey, for filters on a page.

/// An 8-bit sRGB colour.
pub(crate) type Rgb = [u8; 3];

/// A colour map: colours at equal distances over 0..=1.
#[derive(Debug, PartialEq)]
pub(crate) struct ColourMap {
    /// Its published name.
    pub(crate) name: &'static str,
    points: &'static [u32],
}

/// Sequential, for maps of one sign.
pub(crate) static VIRIDIS: ColourMap = ColourMap {
    name: "viridis",
    points: &[
        0x440154, 0x48186a, 0x472d7b, 0x424086, 0x3b528b, 0x33638d, 0x2c728e, 0x26828e, 0x21918c, 0x1f9f88,
        0x27ad81, 0x3dbc74, 0x5cc863, 0x81d34d, 0xaadc32, 0xd5e21a, 0xfde725,
    ],
};
/// Diverging from dark, for maps of both signs over a grey background.
pub(crate) static BERLIN: ColourMap = ColourMap {
    name: "berlin",
    points: &[
        0x9eb0ff, 0x79abed, 0x519fd3, 0x3685ad, 0x286886, 0x1d4b61, 0x14303e, 0x111a20, 0x190c09, 0x2a0e01,
        0x3f1201, 0x591c07, 0x7b321c, 0x9c4f3d, 0xbc6d61, 0xdd8d86, 0xffadad,
    ],
};
/// Diverging from light grey, for matrices on a page.
pub(crate) static COOLWARM: ColourMap = ColourMap {
    name: "coolwarm",
    points: &[
        0x3b4cc0, 0x4e68d8, 0x6282ea, 0x779af7, 0x8db0fe, 0xa3c2fe, 0xb9d0f9, 0xccd9ed, 0xdddcdc, 0xebd3c6,
        0xf4c5ad, 0xf7b194, 0xf49a7b, 0xec7f63, 0xde614d, 0xcb3e38, 0xb40426,
    ],
};
/// Black to white, for images.
pub(crate) static GREY: ColourMap = ColourMap { name: "grey", points: &[0x000000, 0xffffff] };

impl ColourMap {
    /// The colour at `x` in 0..=1; beyond, the nearest end. NaN is the low end.
    pub(crate) fn at(&self, x: f64) -> Rgb {
        let last = self.points.len() - 1;
        let position = if x.is_nan() { 0.0 } else { x.clamp(0.0, 1.0) } * last as f64;
        let below = (position.floor() as usize).min(last);
        let above = (below + 1).min(last);
        let part = position - below as f64;
        let channel = |point: u32, shift: u32| f64::from((point >> shift) & 0xff);
        [16, 8, 0].map(|shift| {
            let (a, b) = (channel(self.points[below], shift), channel(self.points[above], shift));
            (a + (b - a) * part).round() as u8
        })
    }
}

/// Values `low..=high` over a colour map; beyond, colours saturate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scale {
    /// Value of the low end.
    pub(crate) low: f64,
    /// Value of the high end.
    pub(crate) high: f64,
    /// The colours.
    pub(crate) map: &'static ColourMap,
}

impl Scale {
    /// A scale of `map` over `low..=high`; an empty range is widened so that every value has a colour.
    pub(crate) fn new(low: f64, high: f64, map: &'static ColourMap) -> Self {
        let high = if high > low { high } else { low + low.abs().max(1.0) * 1e-3 };
        Self { low, high, map }
    }
    /// Where `value` lies, 0..=1 within the scale.
    pub(crate) fn position(&self, value: f64) -> f64 {
        (value - self.low) / (self.high - self.low)
    }
    /// The colour of `value`.
    pub(crate) fn colour(&self, value: f64) -> Rgb {
        self.map.at(self.position(value))
    }
}

/// `#rrggbb`.
pub(crate) fn hex([r, g, b]: Rgb) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_and_middle_are_the_published_colours() {
        assert_eq!(hex(VIRIDIS.at(0.0)), "#440154");
        assert_eq!(hex(VIRIDIS.at(1.0)), "#fde725");
        assert_eq!(hex(COOLWARM.at(0.5)), "#dddcdc");
        assert_eq!(GREY.at(0.5), [128; 3]);
    }

    #[test]
    fn values_beyond_saturate_and_nan_is_a_colour() {
        let scale = Scale::new(-1.0, 1.0, &BERLIN);
        assert_eq!(scale.colour(-7.0), BERLIN.at(0.0));
        assert_eq!(scale.colour(f64::INFINITY), BERLIN.at(1.0));
        assert_eq!(scale.colour(f64::NAN), BERLIN.at(0.0));
        assert_eq!(scale.colour(0.0), BERLIN.at(0.5));
    }

    #[test]
    fn an_empty_range_still_is_a_scale() {
        let scale = Scale::new(0.0, 0.0, &GREY);
        assert!(scale.position(0.0).is_finite() && scale.high > scale.low);
    }

    #[test]
    fn viridis_gets_lighter_all_the_way() {
        let luminance = |x: f64| {
            let [r, g, b] = VIRIDIS.at(x).map(f64::from);
            0.2126 * r + 0.7152 * g + 0.0722 * b
        };
        for step in 0..50 {
            assert!(luminance(f64::from(step + 1) / 50.0) > luminance(f64::from(step) / 50.0), "at {step}");
        }
    }
}
