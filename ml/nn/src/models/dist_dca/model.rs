//! A fitted dist-DCA: its functions, its filters, its folder.

use super::{Architecture, DistDcaConfig, Network, config::STAGE};
use crate::{
    device::device,
    parameters::{ParameterLayout, device_failed, pack, to_safetensors, unpack},
};
use burn::tensor::{Device, Tensor, TensorData};
use safetensors::SafeTensors;
use std::{fs, path::Path};
use voxelflow_stage::{Error, LayerFilters, Model, ModelFunction, Options, Result};

/// The functions of a fitted dist-DCA.
pub(super) const FUNCTIONS: [&str; 4] = ["encode", "reconstruct", "reconstruct_plain", "decode"];
/// Rows computed at once; bounds memory.
const ROWS: usize = 256;
const WEIGHTS: &str = "model.safetensors";

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
        let failed = |file: &str, reason: String| Error::Folder {
            path: folder.join(file).display().to_string(),
            reason: format!("{reason}; a model folder is written whole by TRAIN MODEL, train it again"),
        };
        let text = fs::read(folder.join("config.json")).map_err(|e| failed("config.json", e.to_string()))?;
        let config: ModelFile = serde_json::from_slice(&text).map_err(|e| failed("config.json", e.to_string()))?;
        if config.stage != STAGE {
            return Err(failed("config.json", format!("is of stage `{}`, not `{STAGE}`", config.stage)));
        }
        let architecture = DistDcaConfig::from_options(&config.options)?.architecture(config.time_points)?;
        let device = device("cpu")?;
        let layout = ParameterLayout::of(&Network::zeros(&architecture, &device));
        let bytes = fs::read(folder.join(WEIGHTS)).map_err(|e| failed(WEIGHTS, e.to_string()))?;
        let file = SafeTensors::deserialize(&bytes).map_err(|e| failed(WEIGHTS, e.to_string()))?;
        let parameters = layout.read("", &file).map_err(|e| failed(WEIGHTS, e.to_string()))?;
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

/// The part of `config.json` that this stage reads.
#[derive(serde::Deserialize)]
struct ModelFile {
    stage: String,
    options: Options,
    time_points: usize,
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
        let (time_points, hidden) = (self.architecture().time_points(), self.architecture().hidden);
        let lengths = |name: &str| match name {
            "encode" => (time_points, hidden),
            "decode" => (hidden, time_points),
            _ => (time_points, time_points),
        };
        let function = |name: &'static str| {
            let (input_length, output_length) = lengths(name);
            ModelFunction { name, input_length, output_length }
        };
        FUNCTIONS.map(function).to_vec()
    }

    fn apply(&self, function: &str, series: &[f32]) -> Result<Vec<f32>> {
        let known = self.functions();
        let wrong = |reason: String| Error::Data { what: format!("{function}({STAGE}, …)"), reason };
        let Some(f) = known.iter().find(|f| f.name == function) else {
            return Err(wrong(format!("no such function; the functions are: {}", FUNCTIONS.join(", "))));
        };
        if series.len() % f.input_length != 0 {
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
        let layout = ParameterLayout::of(&self.network);
        let values = pack(&self.network)?;
        let metadata = [("format".to_owned(), "pt".to_owned()), ("stage".to_owned(), STAGE.to_owned())];
        let bytes = to_safetensors(layout.views("", &values)?, Some(metadata.into()))?;
        let path = folder.join(WEIGHTS);
        fs::write(&path, bytes)
            .map_err(|e| Error::Folder { path: path.display().to_string(), reason: e.to_string() })
    }
}
