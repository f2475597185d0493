//! The options of `USING dist_dca (…)`, and the shapes that follow from them.

use crate::layers::Activation;
use serde::{Deserialize, Serialize};
use voxelflow_stage::{Error, Options, Result, parse_options};

/// The stage's name after `USING`.
pub const STAGE: &str = "dist_dca";

/// The options of a dist-DCA. What the paper leaves open is a setting here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DistDcaConfig {
    /// Width of the hidden state; none: as long as the input series ("match the encoder's final feature size with
    /// the input signal").
    pub hidden: Option<usize>,
    /// Filters of each encoder layer; the decoder mirrors them.
    pub filters: Vec<usize>,
    /// Length of the filters of each encoder layer; the decoder mirrors them.
    pub kernels: Vec<usize>,
    /// Layers followed by a pooling, from the first. The paper does not say; 3 of 4 comes within 0.05 % of its
    /// number of parameters.
    pub pools: usize,
    /// Window of a pooling. The paper does not say.
    pub pool_window: usize,
    /// Train a decoder that unpools by the encoder's switches; if false, by repetition.
    pub switches: bool,
    /// λ, the weight of `‖Z − Z′‖²`.
    pub lambda: f32,
    /// After every convolution but the decoder's last.
    pub activation: Activation,
}

impl Default for DistDcaConfig {
    fn default() -> Self {
        Self {
            hidden: None,
            filters: vec![32, 64, 128, 256],
            kernels: vec![21, 9, 9, 9],
            pools: 3,
            pool_window: 2,
            switches: true,
            lambda: 0.006,
            activation: Activation::Relu,
        }
    }
}

impl DistDcaConfig {
    /// Reads options by name and checks what does not depend on the series.
    ///
    /// # Errors
    /// An unknown option or a value out of range.
    pub fn from_options(options: &Options) -> Result<Self> {
        let config: Self = parse_options(STAGE, options)?;
        config.validate()?;
        Ok(config)
    }

    /// The options by name.
    pub fn to_options(&self) -> Options {
        match serde_json::to_value(self) {
            Ok(serde_json::Value::Object(options)) => options,
            _ => Options::new(),
        }
    }

    fn validate(&self) -> Result<()> {
        let layers = self.filters.len();
        if layers == 0 {
            return Err(invalid(
                "filters",
                "at least one layer is needed, for example [32, 64, 128, 256]".into(),
            ));
        }
        if self.kernels.len() != layers {
            let reason =
                format!("{} lengths for {layers} layers of `filters`; give one each", self.kernels.len());
            return Err(invalid("kernels", reason));
        }
        for (name, values) in [("filters", &self.filters), ("kernels", &self.kernels)] {
            if let Some(v) = values.iter().find(|v| !(1..=65_536).contains(*v)) {
                return Err(invalid(name, format!("{v} is not between 1 and 65536")));
            }
        }
        if self.pools > layers {
            return Err(invalid(
                "pools",
                format!("{} poolings for {layers} layers; at most one each", self.pools),
            ));
        }
        if !(1..=64).contains(&self.pool_window) {
            return Err(invalid("pool_window", format!("{} is not between 1 and 64", self.pool_window)));
        }
        if self.hidden.is_some_and(|h| !(1..=1 << 20).contains(&h)) {
            return Err(invalid(
                "hidden",
                "is not between 1 and 1048576; null means the series' length".into(),
            ));
        }
        if !(self.lambda.is_finite() && self.lambda >= 0.0) {
            return Err(invalid("lambda", format!("{} is not a finite number of at least 0", self.lambda)));
        }
        Ok(())
    }

    /// The shapes for series of `time_points`.
    ///
    /// # Errors
    /// Options out of range, or series too short for the poolings.
    pub fn architecture(&self, time_points: usize) -> Result<Architecture> {
        self.validate()?;
        let minimum = u32::try_from(self.pools).ok().and_then(|p| self.pool_window.checked_pow(p));
        if time_points == 0 || minimum.is_none_or(|m| time_points < m) {
            let minimum = minimum.map_or("more than can be stored".into(), |m| m.max(1).to_string());
            let (pools, window) = (self.pools, self.pool_window);
            let reason = format!(
                "series of {time_points} time points are too short for {pools} poolings of window {window}: at least \
                 {minimum} are needed; use longer series, or lower pools or pool_window"
            );
            return Err(Error::Data { what: STAGE.into(), reason });
        }
        let mut lengths = vec![time_points];
        for layer in 0..self.filters.len() {
            let last = lengths[layer];
            lengths.push(if layer < self.pools { last.div_ceil(self.pool_window) } else { last });
        }
        Ok(Architecture { config: self.clone(), hidden: self.hidden.unwrap_or(time_points), lengths })
    }
}

fn invalid(option: &str, reason: String) -> Error {
    Error::OptionValue { what: STAGE.into(), option: option.into(), reason }
}

/// A dist-DCA for series of one length.
#[derive(Clone, Debug, PartialEq)]
pub struct Architecture {
    /// The options.
    pub config: DistDcaConfig,
    /// Width of the hidden state.
    pub hidden: usize,
    /// Length of the series (first) and of the features after each encoder layer and its pooling.
    pub lengths: Vec<usize>,
}

impl Architecture {
    /// Points of a series.
    pub fn time_points(&self) -> usize {
        self.lengths[0]
    }

    /// Channels of the input (first, 1) and after each encoder layer.
    pub fn channels(&self) -> Vec<usize> {
        std::iter::once(1).chain(self.config.filters.iter().copied()).collect()
    }

    /// `[n_channels, length]` of Z, the top of the encoder.
    pub fn top(&self) -> [usize; 2] {
        let layers = self.config.filters.len();
        [self.config.filters[layers - 1], self.lengths[layers]]
    }

    /// Number of parameters.
    pub fn parameters(&self) -> usize {
        let channels = self.channels();
        let convolutions: usize = channels
            .windows(2)
            .zip(&self.config.kernels)
            .map(|(c, kernel)| 2 * c[0] * c[1] * kernel + c[0] + c[1])
            .sum();
        let top = self.top()[0] * self.top()[1];
        convolutions + 2 * top * self.hidden + top + self.hidden
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn the_paper_s_lengths_and_number_of_parameters() {
        let a = DistDcaConfig::default().architecture(284).unwrap();
        assert_eq!(a.lengths, [284, 142, 71, 36, 36]);
        // Table 1 of the paper says 6,023,549; what it leaves open accounts for the missing 3,168 (0.05 %).
        assert_eq!(a.parameters(), 6_020_381);
        assert_eq!(a.hidden, 284);
    }

    #[test]
    fn too_short_series_are_refused_with_the_minimum() {
        let config = DistDcaConfig::default();
        assert!(config.architecture(8).is_ok());
        assert!(config.architecture(4096).is_ok());
        let text = config.architecture(7).unwrap_err().to_string();
        assert!(text.contains("7 time points") && text.contains("at least 8"), "{text}");
        assert!(config.architecture(0).is_err());
        assert!(DistDcaConfig { pools: 4, pool_window: 64, ..config }.architecture(1 << 20).is_err());
    }

    #[test]
    fn options_out_of_range_are_named() {
        let named = |options: serde_json::Value| {
            let e = DistDcaConfig::from_options(options.as_object().unwrap()).unwrap_err();
            assert!(e.is_input());
            e.option().map(str::to_owned).unwrap()
        };
        assert_eq!(named(json!({"filters": []})), "filters");
        assert_eq!(named(json!({"filters": [4, 0, 1, 1]})), "filters");
        assert_eq!(named(json!({"kernels": [3]})), "kernels");
        assert_eq!(named(json!({"pools": 5})), "pools");
        assert_eq!(named(json!({"pool_window": 0})), "pool_window");
        assert_eq!(named(json!({"hidden": 0})), "hidden");
        assert_eq!(named(json!({"lambda": -1})), "lambda");
        assert_eq!(named(json!({"activation": "swish"})), "activation");
        assert_eq!(named(json!({"lamda": 1})), "lamda");
    }

    #[test]
    fn options_round_trip() {
        let config = DistDcaConfig { hidden: Some(16), switches: false, ..Default::default() };
        assert_eq!(DistDcaConfig::from_options(&config.to_options()).unwrap(), config);
    }
}
