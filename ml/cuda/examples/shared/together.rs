//! Do replicas that train together give what one gives?

use super::shared::{Random, initial, paper, series};
use std::sync::Arc;
use voxelflow_cuda::{AutoencoderShape, Card, Precision, Rates, Replicas, Rule};

const RULES: [Rule; 5] = [Rule::Adagrad, Rule::Sgd, Rule::Momentum, Rule::Nesterov, Rule::Adam];
/// Samples of minibatches of at most 7: also fewer than there are cards.
const MINIBATCHES: [usize; 6] = [7, 4, 1, 5, 2, 7];

fn cards(ordinals: &[usize]) -> Vec<Arc<Card>> {
    ordinals.iter().map(|ordinal| Arc::new(Card::open(*ordinal).unwrap())).collect()
}

/// An ε at which rounding is not all that there is of small gradients' steps.
fn rates(step: usize, mean: bool) -> Rates {
    Rates { learning_rate: 0.01, epsilon: 0.01, momentum: 0.9, beta_2: 0.999, mean, step: step as u64 + 1 }
}

fn steps(model: &mut Replicas, series: &[f32], numbers: std::ops::Range<usize>, mean: bool) -> f64 {
    let time_points = model.shape().time_points;
    for step in numbers {
        let n = MINIBATCHES[step];
        let chunk = &series[step * time_points..][..n * time_points];
        model.minibatch().unwrap()[..chunk.len()].copy_from_slice(chunk);
        model.train(n, &rates(step, mean)).unwrap();
    }
    model.take_losses().unwrap()
}

/// Parameters, then what the rule remembers.
fn state(model: &Replicas, rule: Rule) -> Vec<Vec<f32>> {
    let mut all = vec![vec![0.0; model.shape().parameters()]; 1 + rule.vectors()];
    model.parameters(&mut all[0]).unwrap();
    (0..rule.vectors()).for_each(|i| model.remembered(i, &mut all[i + 1]).unwrap());
    all
}

fn agree(model: &Replicas, rule: Rule) -> bool {
    let first = state(model, rule);
    model.replicas().iter().all(|one| {
        let mut all = first.clone();
        one.parameters(&mut all[0]).unwrap();
        (0..rule.vectors()).for_each(|i| one.remembered(i, &mut all[i + 1]).unwrap());
        bits(&all) == bits(&first)
    })
}

fn bits(state: &[Vec<f32>]) -> Vec<u32> {
    state.iter().flatten().map(|v| v.to_bits()).collect()
}

/// ‖a − b‖ / ‖b − c‖.
fn apart(a: &[f32], b: &[f32], c: &[f32]) -> f64 {
    let norm = |a: &[f32], b: &[f32]| {
        a.iter().zip(b).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum::<f64>().sqrt()
    };
    norm(a, b) / norm(b, c)
}

/// How many of all checks failed.
pub fn check(shapes: &[AutoencoderShape]) -> usize {
    let all = if Card::count().unwrap() > 1 {
        vec![vec![0, 0], vec![0, 1], vec![1, 0], vec![0, 0, 0], vec![1, 0, 1]]
    } else {
        vec![vec![0, 0], vec![0, 0, 0]]
    };
    let mut failed = 0;
    for (shape, rules) in [(&shapes[7], &RULES[..]), (&shapes[5], &RULES[..1]), (&shapes[3], &RULES[4..])] {
        for rule in rules {
            for mean in [true, false] {
                failed += small(shape, *rule, mean, &all);
            }
        }
    }
    failed + large(&all)
}

fn small(shape: &AutoencoderShape, rule: Rule, mean: bool, all: &[Vec<usize>]) -> usize {
    let mut random = Random(3);
    let start: Vec<f32> = (0..shape.parameters()).map(|_| 0.2 * random.uniform() as f32).collect();
    let series: Vec<f32> = (0..13 * shape.time_points).map(|_| random.uniform() as f32).collect();
    let new = |ordinals: &[usize]| {
        let mut model = Replicas::new(&cards(ordinals), shape, Precision::F32, 7, Some(rule)).unwrap();
        model.set_parameters(&start).unwrap();
        model
    };
    let mut alone = new(&[0]);
    let loss = steps(&mut alone, &series, 0..6, mean);
    let expected = state(&alone, rule).swap_remove(0);
    let zeros = vec![0f32; start.len()];
    let (mut gradient, mut expected_gradient) = (zeros.clone(), zeros.clone());
    let few = &series[..5 * shape.time_points];
    let mut failed = 0;
    let mut seen: Vec<(usize, Vec<u32>)> = Vec::new();
    for ordinals in all {
        let mut model = new(ordinals);
        let of_loss = (steps(&mut model, &series, 0..6, mean) - loss).abs() / loss;
        let found = state(&model, rule);
        let of_way = apart(&found[0], &expected, &start);
        // As many replicas are the same on any cards of a kind.
        let known = seen.iter().find(|(n, _)| *n == ordinals.len());
        let same = agree(&model, rule) && known.is_none_or(|(_, other)| *other == bits(&found));
        seen.push((ordinals.len(), bits(&found)));

        // Passes outside of training, with the same parameters.
        alone.set_parameters(&found[0]).unwrap();
        let pass = alone.gradient(few, &mut expected_gradient).unwrap();
        let of_pass = (model.gradient(few, &mut gradient).unwrap() - pass).abs() / pass;
        let of_gradient = apart(&gradient, &expected_gradient, &zeros);
        let again = (model.loss(few).unwrap() - pass).abs() / pass;

        // Gone on with from a checkpoint, by as many cards and by one.
        let mut first = new(ordinals);
        steps(&mut first, &series, 0..3, mean);
        let kept = state(&first, rule);
        let go_on = |ordinals: &[usize]| {
            let mut model = new(ordinals);
            model.set_parameters(&kept[0]).unwrap();
            kept[1..].iter().enumerate().for_each(|(i, v)| model.set_remembered(i, v).unwrap());
            steps(&mut model, &series, 3..6, mean);
            state(&model, rule)
        };
        let resumed = bits(&go_on(ordinals)) == bits(&found);
        let of_one = apart(&go_on(&[0])[0], &expected, &start);

        let worst = [of_loss, of_way, of_pass, of_gradient, again, of_one].into_iter().fold(0.0, f64::max);
        let good = worst < 1e-4 && same && resumed;
        failed += usize::from(!good);
        println!(
            "{rule:?} of the {} on cards {ordinals:?} beside one: losses {of_loss:.1e}, parameters {of_way:.1e} of their way, \
             a pass {of_pass:.1e} {again:.1e} {of_gradient:.1e}, gone on with by one {of_one:.1e}; the same to the bit: \
             replicas {same}, gone on with {resumed}{}",
            if mean { "mean" } else { "sum" },
            if good { "" } else { " WRONG" }
        );
    }
    failed
}

/// Steps of the paper's size that nothing waits for, twice: who reads what another has not written yet, or has
/// overwritten, shows here.
fn large(all: &[Vec<usize>]) -> usize {
    const MINIBATCH: usize = 301;
    let shape = paper(true);
    let (start, pool) = (initial(&shape), series(1024));
    let mut failed = 0;
    for (name, precision) in Precision::ALL {
        let mut seen: Vec<(usize, Vec<u32>)> = Vec::new();
        for ordinals in all.iter().chain(all) {
            let cards = cards(ordinals);
            let mut model = Replicas::new(&cards, &shape, precision, MINIBATCH, Some(Rule::Adagrad)).unwrap();
            model.set_parameters(&start).unwrap();
            for step in 0..40 {
                let n = if step % 7 == 6 { MINIBATCH - 100 } else { MINIBATCH };
                let from = (step * 97) % 700 * shape.time_points;
                let values = n * shape.time_points;
                model.minibatch().unwrap()[..values].copy_from_slice(&pool[from..from + values]);
                model.train(n, &Rates { learning_rate: 1e-3, ..rates(step, true) }).unwrap();
            }
            let loss = model.take_losses().unwrap();
            let mine = bits(&state(&model, Rule::Adagrad));
            let known = seen.iter().find(|(n, _)| *n == ordinals.len());
            let good = loss.is_finite()
                && agree(&model, Rule::Adagrad)
                && known.is_none_or(|(_, other)| *other == mine);
            seen.push((ordinals.len(), mine));
            failed += usize::from(!good);
            println!(
                "the paper's size in {name} on cards {ordinals:?} (connected: {}): loss {loss:.6e}{}",
                model.connected(),
                if good { "" } else { " WRONG" }
            );
        }
    }
    failed
}
