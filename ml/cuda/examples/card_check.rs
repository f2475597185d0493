//! Is what the card computes right?
//!
//! usage: `card_check …`
//! - nothing: loss and every gradient of small autoencoders of many shapes against finite differences of a plain program in
//!   f64, every update rule against its formula, and replicas that train together against one: on one card, and on two if
//!   there are two.
//! - `data FILE SAMPLES`, `initial FILE`: series of the paper's length, and parameters of its model, as raw float32.
//! - `gradient PRECISION SWITCHES PARAMETERS SERIES OUT`: writes loss and gradient, as raw float64 and float32.
//! - `curve PRECISION SWITCHES PARAMETERS SERIES MINIBATCH STEPS RATE`: the mean loss of every step of Adagrad.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a program of ours, on files of ours

use std::{fs, sync::Arc};
use voxelflow_cuda::{Activation, Autoencoder, AutoencoderShape, Card, Precision, Rates, Replicas, Rule};

#[path = "shared/mod.rs"]
mod shared;
#[path = "shared/together.rs"]
mod together;
use shared::{Random, paper, plain_loss};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        [] => small(),
        ["data", file, samples] => write(file, &shared::series(samples.parse().unwrap())),
        ["initial", file] => write(file, &shared::initial(&paper(true))),
        ["gradient", precision, switches, parameters, series, out] => {
            let (mut model, series) = model(precision, switches, parameters, series, None, usize::MAX);
            let mut gradient = vec![0.0; model.shape().parameters()];
            let loss = model.gradient(&series, &mut gradient).unwrap();
            println!("loss {loss:.9e}");
            write(out, &gradient);
        }
        ["curve", precision, switches, parameters, series, minibatch, steps, rate] => {
            let (minibatch, steps): (usize, usize) = (minibatch.parse().unwrap(), steps.parse().unwrap());
            let (mut model, series) =
                model(precision, switches, parameters, series, Some(Rule::Adagrad), minibatch);
            let values = minibatch * model.shape().time_points;
            for (step, chunk) in series.chunks_exact(values).cycle().take(steps).enumerate() {
                model.minibatch().unwrap()[..values].copy_from_slice(chunk);
                let rates = Rates {
                    learning_rate: rate.parse().unwrap(),
                    epsilon: 1e-10,
                    momentum: 0.9,
                    beta_2: 0.999,
                    mean: true,
                    step: step as u64 + 1,
                };
                model.train(minibatch, &rates).unwrap();
                println!("{:.9e}", model.take_losses().unwrap() / minibatch as f64);
            }
        }
        _ => panic!("see the head of this program for its usage"),
    }
}

fn write(file: &str, values: &[f32]) {
    fs::write(file, values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>()).unwrap();
}

fn read(file: &str) -> Vec<f32> {
    fs::read(file).unwrap().as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

fn model(
    precision: &str,
    switches: &str,
    parameters: &str,
    series: &str,
    rule: Option<Rule>,
    samples: usize,
) -> (Replicas, Vec<f32>) {
    let precision = Precision::ALL.into_iter().find(|(name, _)| *name == precision).expect("a precision").1;
    let shape = paper(switches == "switches");
    let series = read(series);
    let samples = samples.min(series.len() / shape.time_points);
    let card = Arc::new(Card::open(0).unwrap());
    let mut model = Replicas::new(&[card], &shape, precision, samples, rule).unwrap();
    model.set_parameters(&read(parameters)).unwrap();
    (model, series)
}

fn shapes() -> Vec<AutoencoderShape> {
    let shape =
        |time_points: usize, filters: &[usize], kernels: &[usize], pools, window, switches, activation| {
            let (filters, kernels) = (filters.to_vec(), kernels.to_vec());
            let hidden = 3;
            AutoencoderShape {
                time_points,
                filters,
                kernels,
                pools,
                window,
                switches,
                hidden,
                activation,
                lambda: 0.3,
            }
        };
    vec![
        shape(11, &[2, 3], &[3, 4], 2, 2, true, Activation::Relu),
        shape(11, &[2, 3], &[3, 4], 2, 2, false, Activation::Relu),
        shape(8, &[1], &[5], 1, 3, true, Activation::Tanh),
        shape(9, &[3], &[5], 1, 2, false, Activation::Relu),
        shape(5, &[33, 2], &[1, 2], 0, 2, false, Activation::Linear),
        shape(29, &[4, 3, 2], &[40, 3, 9], 2, 3, true, Activation::LeakyRelu),
        shape(6, &[3, 2], &[3, 3], 1, 1, true, Activation::Relu),
        shape(21, &[8, 16, 8], &[21, 9, 9], 2, 2, true, Activation::Relu),
        shape(22, &[8, 16, 8], &[7, 5, 3], 3, 2, true, Activation::Tanh),
        shape(40, &[16, 8], &[30, 9], 1, 2, false, Activation::LeakyRelu),
        shape(300, &[8, 8], &[21, 9], 1, 2, true, Activation::Relu),
    ]
}

/// ‖found − expected‖ / ‖expected‖.
fn error(found: &[f32], expected: &[f64]) -> f64 {
    let difference: f64 = found.iter().zip(expected).map(|(a, b)| (f64::from(*a) - b).powi(2)).sum();
    (difference / expected.iter().map(|b| b * b).sum::<f64>().max(1e-300)).sqrt()
}

fn small() {
    let card = Arc::new(Card::open(0).unwrap());
    println!("{} (compute capability {:?})", card.name(), card.capability());
    let mut failed = 0;
    for (i, shape) in shapes().into_iter().enumerate() {
        let mut random = Random(7 + i as u64);
        let samples = 6;
        let parameters: Vec<f64> =
            (0..shape.parameters()).map(|_| 0.5 * f64::from(random.uniform() as f32)).collect();
        let series: Vec<f64> =
            (0..samples * shape.time_points).map(|_| f64::from(random.uniform() as f32)).collect();
        let used = if parameters.len() > 4000 { 400 } else { parameters.len() };
        let expected_loss = plain_loss(&shape, &parameters, &series);
        let stride = parameters.len() / used;
        let places: Vec<usize> = (0..used).map(|j| j * stride).collect();
        let expected: Vec<f64> = places
            .iter()
            .map(|&j| {
                let mut moved = parameters.clone();
                let mut at = |value: f64| {
                    moved[j] = value;
                    plain_loss(&shape, &moved, &series)
                };
                (at(parameters[j] + 1e-6) - at(parameters[j] - 1e-6)) / 2e-6
            })
            .collect();
        let (narrow, few): (Vec<f32>, Vec<f32>) =
            (parameters.iter().map(|v| *v as f32).collect(), series.iter().map(|v| *v as f32).collect());
        print!(
            "{:2} T {:3} filters {:?} kernels {:?} pools {} window {} switches {:5} {:?}:",
            i,
            shape.time_points,
            shape.filters,
            shape.kernels,
            shape.pools,
            shape.window,
            shape.switches,
            shape.activation
        );
        for (name, precision) in Precision::ALL {
            // Room for more series than there are, and a pass before: nothing of them may be left.
            let mut model = Autoencoder::new(card.clone(), &shape, precision, samples + 3).unwrap();
            model.set_parameters(&narrow).unwrap();
            let mut gradient = vec![f32::NAN; parameters.len()];
            let more: Vec<f32> =
                few.iter().chain(&few).copied().take((samples + 3) * shape.time_points).collect();
            model.gradient(&more, &mut gradient).unwrap();
            let loss = model.gradient(&few, &mut gradient).unwrap();
            let again = model.loss(&few).unwrap();
            let found: Vec<f32> = places.iter().map(|j| gradient[*j]).collect();
            let of_loss = (loss - expected_loss).abs() / expected_loss;
            let of_gradient = error(&found, &expected);
            let bound = match precision {
                Precision::F32 => 2e-5,
                Precision::Tf32 => 5e-3,
                // Rounding to 8 bits moves switches where values are close.
                Precision::Bf16 => 2e-1,
            };
            let good = of_loss < bound && of_gradient < bound && again == loss;
            failed += usize::from(!good);
            print!(" {name} {of_loss:.1e} {of_gradient:.1e}{}", if good { "" } else { " WRONG" });
        }
        println!();
    }
    failed += rules(&card);
    failed += together::check(&shapes());
    println!("{}", if failed == 0 { "all right".into() } else { format!("{failed} WRONG") });
    std::process::exit(i32::from(failed > 0));
}

/// Three steps of every rule with ragged minibatches, against the formulas on gradients that the card gave.
fn rules(card: &Arc<Card>) -> usize {
    let shape = shapes().swap_remove(7);
    let mut random = Random(3);
    let start: Vec<f32> = (0..shape.parameters()).map(|_| 0.2 * random.uniform() as f32).collect();
    let series: Vec<f32> = (0..6 * shape.time_points).map(|_| random.uniform() as f32).collect();
    let mut failed = 0;
    for rule in [Rule::Adagrad, Rule::Sgd, Rule::Momentum, Rule::Nesterov, Rule::Adam] {
        let mut model =
            Replicas::new(std::slice::from_ref(card), &shape, Precision::F32, 6, Some(rule)).unwrap();
        let mut other = Autoencoder::new(card.clone(), &shape, Precision::F32, 6).unwrap();
        model.set_parameters(&start).unwrap();
        let mut w: Vec<f64> = start.iter().map(|v| f64::from(*v)).collect();
        let (mut m, mut v) = (vec![0f64; w.len()], vec![0f64; w.len()]);
        let (mut losses, mut expected_losses) = (0.0, 0.0);
        for (step, samples) in [(1, 6), (2, 4), (3, 5)] {
            let rates =
                Rates { learning_rate: 0.001, epsilon: 1e-8, momentum: 0.9, beta_2: 0.999, mean: true, step };
            let used = &series[..samples * shape.time_points];
            let narrow: Vec<f32> = w.iter().map(|v| *v as f32).collect();
            other.set_parameters(&narrow).unwrap();
            let mut gradient = vec![0f32; w.len()];
            expected_losses += other.gradient(used, &mut gradient).unwrap();
            model.minibatch().unwrap()[..used.len()].copy_from_slice(used);
            model.train(samples, &rates).unwrap();
            losses += model.take_losses().unwrap();
            for i in 0..w.len() {
                let g = f64::from(gradient[i]) / samples as f64;
                match rule {
                    Rule::Adagrad => {
                        m[i] += g * g;
                        w[i] -= if m[i] > 0.0 { 0.001 * g / (m[i].sqrt() + 1e-8) } else { 0.0 };
                    }
                    Rule::Sgd => w[i] -= 0.001 * g,
                    Rule::Momentum => {
                        m[i] = 0.9 * m[i] + g;
                        w[i] -= 0.001 * m[i];
                    }
                    Rule::Nesterov => {
                        m[i] = 0.9 * m[i] + g;
                        w[i] -= 0.001 * (g + 0.9 * m[i]);
                    }
                    Rule::Adam => {
                        let power = step as i32;
                        m[i] = 0.9 * m[i] + 0.1 * g;
                        v[i] = 0.999 * v[i] + 0.001 * g * g;
                        let (first, second) = (1.0 - 0.9f64.powi(power), 1.0 - 0.999f64.powi(power));
                        w[i] -= 0.001 * (m[i] / first) / ((v[i] / second).sqrt() + 1e-8);
                    }
                }
            }
        }
        let mut found = vec![0f32; w.len()];
        model.parameters(&mut found).unwrap();
        let moved: f64 = w.iter().zip(&start).map(|(a, b)| (a - f64::from(*b)).powi(2)).sum::<f64>().sqrt();
        let apart: f64 = w.iter().zip(&found).map(|(a, b)| (a - f64::from(*b)).powi(2)).sum::<f64>().sqrt();
        let of_loss = (losses - expected_losses).abs() / expected_losses;
        let mut kept = vec![0f32; w.len()];
        let of_memory = match rule.vectors() {
            0 => 0.0,
            _ => {
                model.remembered(0, &mut kept).unwrap();
                error(&kept, &m)
            }
        };
        // Adagrad's and Adam's first steps are the signs of gradients, of which some are rounding alone.
        let good = apart / moved < 3e-3 && of_loss < 1e-4 && of_memory < 1e-3;
        failed += usize::from(!good);
        println!(
            "{rule:?}: parameters apart by {:.1e} of their way, losses {of_loss:.1e}, memory {of_memory:.1e}{}",
            apart / moved,
            if good { "" } else { " WRONG" }
        );
    }
    failed
}
