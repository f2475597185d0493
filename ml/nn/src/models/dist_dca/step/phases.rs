//! Where a step's time goes.

use super::shapes::Shapes;
use crate::{kernels::conv1d::Conv1dShape, models::dist_dca::Measured};
use std::time::Instant;

/// What a step does one after the other; within each, all threads work on the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Weights,
    Encoder,
    Hidden,
    Decoder,
    DecoderBackward,
    HiddenBackward,
    EncoderBackward,
    WeightGradients,
}

impl Phase {
    const ALL: [Self; 8] = [
        Self::Weights,
        Self::Encoder,
        Self::Hidden,
        Self::Decoder,
        Self::DecoderBackward,
        Self::HiddenBackward,
        Self::EncoderBackward,
        Self::WeightGradients,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Weights => "weights to panels and back",
            Self::Encoder => "encoder",
            Self::Hidden => "hidden layers",
            Self::Decoder => "decoder and loss",
            Self::DecoderBackward => "decoder, input gradients",
            Self::HiddenBackward => "hidden layers, gradients",
            Self::EncoderBackward => "encoder, input gradients",
            Self::WeightGradients => "filters' gradients",
        }
    }

    /// Floating-point operations a sample that its products need.
    fn operations(self, shapes: &Shapes) -> f64 {
        let convolution = |s: &Conv1dShape| 2.0 * (s.weights() * s.output_length()) as f64;
        let sum = |shapes: &[Conv1dShape]| shapes.iter().map(convolution).sum::<f64>();
        let hidden = 4.0 * (shapes.features() * shapes.hidden) as f64;
        match self {
            Self::Weights => 0.0,
            Self::Encoder => sum(&shapes.encoder),
            Self::EncoderBackward => sum(&shapes.encoder[1..]),
            Self::Hidden => hidden,
            Self::HiddenBackward => 2.0 * hidden,
            Self::Decoder | Self::DecoderBackward => sum(&shapes.decoder),
            Self::WeightGradients => sum(&shapes.encoder) + sum(&shapes.decoder),
        }
    }
}

/// Time by phase since it was last started.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    last: Instant,
    seconds: [f64; Phase::ALL.len()],
}

impl Clock {
    pub fn started() -> Self {
        Self { last: Instant::now(), seconds: [0.0; Phase::ALL.len()] }
    }

    /// What has passed since the last call, or the start, was `phase`.
    pub fn lap(&mut self, phase: Phase) {
        let now = Instant::now();
        self.seconds[phase as usize] += (now - self.last).as_secs_f64();
        self.last = now;
    }

    /// The phases of a step with `samples`.
    pub fn measured(&self, shapes: &Shapes, samples: usize) -> Vec<Measured> {
        let measured = |phase: &Phase| Measured {
            name: phase.name().into(),
            operations: samples as f64 * phase.operations(shapes),
            seconds: self.seconds[*phase as usize],
        };
        Phase::ALL.iter().map(measured).collect()
    }
}
