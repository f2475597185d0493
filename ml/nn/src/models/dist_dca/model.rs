//! A fitted dist-DCA: its functions, its filters, its folder.

use super::{Architecture, DistDcaConfig, Network, config::STAGE};
use crate::{
    device::device,
    models::folder,
    parameters::{ParameterLayout, device_failed, pack, unpack},
};
use burn::tensor::{Device, Tensor, TensorData};
use std::path::Path;
use voxelflow_stage::{Error, LayerFilters, Model, ModelFunction, Options, Result};

/// The functions of a fitted dist-DCA.
pub(super) const FUNCTIONS: [&str; 4] = ["encode", "reconstruct", "reconstruct_plain", "decode"];
/// Rows computed at once; bounds memory.
const ROWS: usize = 256;

/// A fitted dist-DCA.
///
/// - `encode`: series → hidden state.
/// - `reconstruct`: series → hidden state → series, by the switches if the model was trained with them. Switches
///   carry position information past the hidden state, so always look at `reconstruct_plain` beside it.
/// - `reconstruct_plain`: the same, but up-sampled by repetition.
/// - `decode`: hidden state → series, up-sampled by repetition (what atoms are decoded with).
#[derive(Debug)]
pub struct DistDca {
    network: Network,
    device: Device,
}

impl DistDca {
    /// A model with the flat vector `parameters`, on `device`.
    ///
    /// # Errors
    /// A vector of another length.
    pub fn try_new(architecture: &Architecture, parameters: &[f32], device: &Device) -> Result<Self> {
        let device = device.clone().without_autodiff();
        let network = unpack(Network::zeros(architecture, &device), parameters, &device)?;
        Ok(Self { network, device })
    }

    /// Reads a model from its folder, onto the CPU.
    ///
    /// # Errors
    /// A file that is missing, damaged, or of another stage or shape.
    pub fn load(folder: &Path) -> Result<Self> {
        let file = folder::read_config(folder, STAGE)?;
        let architecture = DistDcaConfig::from_options(&file.options)?.architecture(file.time_points)?;
        let device = device("cpu")?;
        let layout = ParameterLayout::of(&Network::zeros(&architecture, &device));
        let parameters = folder::read_weights(folder, &layout)?;
        Self::try_new(&architecture, &parameters, &device)
    }

    fn architecture(&self) -> &Architecture {
        self.network.architecture()
    }

    fn compute(&self, function: &str, x: Tensor<2>) -> Tensor<2> {
        match function {
            "encode" => self.network.encode(x).hidden,
            "decode" => self.network.decode(x, None).series,
            _ => {
                let encoded = self.network.encode(x);
                let with_switches = function == "reconstruct" && self.architecture().config.switches;
                self.network.decode(encoded.hidden, with_switches.then_some(&encoded.switches)).series
            }
        }
    }
}

/// The functions of a model of this architecture.
pub(super) fn functions(architecture: &Architecture) -> Vec<ModelFunction> {
    let (time_points, hidden) = (architecture.time_points(), architecture.hidden);
    let function = |name: &'static str| {
        let (input_length, output_length) = match name {
            "encode" => (time_points, hidden),
            "decode" => (hidden, time_points),
            _ => (time_points, time_points),
        };
        ModelFunction { name, input_length, output_length }
    };
    FUNCTIONS.map(function).to_vec()
}

impl Model for DistDca {
    fn stage(&self) -> &'static str {
        STAGE
    }

    fn config(&self) -> Options {
        self.architecture().config.to_options()
    }

    fn parameters(&self) -> usize {
        self.architecture().parameters()
    }

    fn functions(&self) -> Vec<ModelFunction> {
        functions(self.architecture())
    }

    fn apply(&self, function: &str, series: &[f32]) -> Result<Vec<f32>> {
        let known = self.functions();
        let wrong = |reason: String| Error::Data { what: format!("{function}({STAGE}, …)"), reason };
        let Some(f) = known.iter().find(|f| f.name == function) else {
            return Err(wrong(format!("no such function; the functions are: {}", FUNCTIONS.join(", "))));
        };
        if !series.len().is_multiple_of(f.input_length) {
            let reason = format!("{} values are not whole lists of {}", series.len(), f.input_length);
            return Err(wrong(reason));
        }
        let mut output = Vec::with_capacity(series.len() / f.input_length * f.output_length);
        for chunk in series.chunks(ROWS * f.input_length) {
            let shape = [chunk.len() / f.input_length, f.input_length];
            let x = Tensor::from_data(TensorData::new(chunk.to_vec(), shape), &self.device);
            let data = self.compute(f.name, x).try_into_data().map_err(|e| device_failed(&e))?;
            output.extend(data.try_into_vec::<f32>().map_err(|e| device_failed(&e))?);
        }
        Ok(output)
    }

    fn filters(&self) -> Vec<LayerFilters> {
        let layer = |(layer, convolution): (String, &crate::layers::Conv1d)| {
            let weight = convolution.weight.val();
            let shape = weight.dims();
            let values = weight.try_into_data().ok()?.try_into_vec::<f32>().ok()?;
            Some(LayerFilters { layer, shape, values })
        };
        self.network.convolutions().filter_map(layer).collect()
    }

    fn save_weights(&self, folder: &Path) -> Result<()> {
        folder::write_weights(folder, &ParameterLayout::of(&self.network), &pack(&self.network)?)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::models::folder::WEIGHTS;
    use std::fs;

    fn model(switches: bool) -> DistDca {
        let config = DistDcaConfig {
            hidden: Some(5),
            filters: vec![3, 4],
            kernels: vec![5, 3],
            pools: 2,
            switches,
            ..DistDcaConfig::default()
        };
        let architecture = config.architecture(13).unwrap();
        let layout = ParameterLayout::of(&Network::zeros(&architecture, &Device::flex()));
        DistDca::try_new(&architecture, &layout.initial(3), &Device::flex()).unwrap()
    }

    fn series(rows: usize) -> Vec<f32> {
        (0..rows * 13).map(|i| (i as f32 * 0.7).sin()).collect()
    }

    #[test]
    fn functions_have_the_lengths_that_they_promise() {
        let model = model(true);
        for f in model.functions() {
            let input = vec![0.25; 3 * f.input_length];
            assert_eq!(model.apply(f.name, &input).unwrap().len(), 3 * f.output_length, "{}", f.name);
            assert!(model.apply(f.name, &input[1..]).is_err());
            assert_eq!(model.apply(f.name, &[]).unwrap(), Vec::<f32>::new());
        }
        let text = model.apply("encoded", &[]).unwrap_err().to_string();
        assert!(text.contains("encode, reconstruct"), "{text}");
    }

    #[test]
    fn rows_do_not_depend_on_their_chunk() {
        let model = model(true);
        let all = series(300);
        let together = model.apply("reconstruct", &all).unwrap();
        let alone = model.apply("reconstruct", &all[280 * 13..281 * 13]).unwrap();
        for (a, b) in together[280 * 13..281 * 13].iter().zip(&alone) {
            assert!((a - b).abs() < 1e-6);
        }
    }

    #[test]
    fn plain_reconstruction_is_decoding_what_was_encoded() {
        let (with, without) = (model(true), model(false));
        let x = series(4);
        let plain = with.apply("reconstruct_plain", &x).unwrap();
        assert_eq!(plain, with.apply("decode", &with.apply("encode", &x).unwrap()).unwrap());
        assert_ne!(plain, with.apply("reconstruct", &x).unwrap());
        assert_eq!(plain, without.apply("reconstruct", &x).unwrap());
    }

    #[test]
    fn filters_are_those_of_the_convolutions() {
        let filters = model(true).filters();
        let shapes: Vec<_> = filters.iter().map(|f| (f.layer.as_str(), f.shape)).collect();
        let expected = [
            ("encoder.0", [3, 1, 5]),
            ("encoder.1", [4, 3, 3]),
            ("decoder.0", [3, 4, 3]),
            ("decoder.1", [1, 3, 5]),
        ];
        assert_eq!(shapes, expected);
        assert!(filters.iter().all(|f| f.values.len() == f.shape.iter().product::<usize>()));
    }

    #[test]
    fn a_folder_gives_the_same_model_back_or_says_what_is_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let model = model(true);
        model.save_weights(folder.path()).unwrap();
        let write = |stage: &str, time_points: usize| {
            let config = serde_json::json!({
                "stage": stage, "options": model.config(), "time_points": time_points, "version": "0.1.0"
            });
            fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
        };
        let error = |text: &str| {
            let e = DistDca::load(folder.path()).unwrap_err();
            assert!(e.is_input() && e.to_string().contains(text), "{e}");
        };
        error("config.json");
        write("dist_dca", 13);
        let read = DistDca::load(folder.path()).unwrap();
        assert_eq!(read.config(), model.config());
        assert_eq!(read.apply("encode", &series(2)).unwrap(), model.apply("encode", &series(2)).unwrap());
        write("ridge", 13);
        error("stage `ridge`");
        write("dist_dca", 40);
        error("to_hidden.weight");
        write("dist_dca", 13);
        fs::write(folder.path().join(WEIGHTS), b"short").unwrap();
        error(WEIGHTS);
    }
}
