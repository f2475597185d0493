//! The part of the page that shows models: settings, training, reconstructions, filters.

use crate::{
    ModelSection, Result,
    charts::{self, BLUE, FAINT_INK, GREEN, ORANGE},
    choice_chart, filter_charts, loss_charts,
    page::{anchor, figure},
    quantity::{bytes, count, number, seconds},
};
use maud::{Markup, html};
use voxelflow_stage::History;

/// One model.
///
/// # Errors
/// Filters that do not fit their shape.
pub(crate) fn section(model: &ModelSection, number_: usize) -> Result<Markup> {
    Ok(html! {
        section.model id=(anchor("model", number_)) {
            h3 { (model.name) }
            p.lead {
                "Stage " code { (model.stage) } ", " (count(model.parameters as u64)) " parameters"
                @match &model.choice {
                    Some(choice) => (choice_chart::outcome(choice)),
                    None => (outcome(&model.history)),
                }
                "."
            }
            div.columns {
                (facts("Settings", &model.settings))
                (facts("Lineage", &model.lineage))
            }
            (training(model)?)
            (reconstructions(model)?)
            (filters(model)?)
        }
    })
}

fn outcome(history: &History) -> String {
    match history.epochs.last() {
        None if history.steps.is_empty() => "; no training is recorded".into(),
        None => format!("; {} rounds", count(history.steps.len() as u64)),
        Some(last) => {
            let validation = last.validation_loss.map(|v| format!(", on validation data {}", number(v, 4)));
            format!(
                "; mean loss {} before training, {} in the last epoch{}",
                number(history.initial_loss, 4),
                number(last.loss, 4),
                validation.unwrap_or_default()
            )
        }
    }
}

fn facts(title: &str, rows: &[(String, String)]) -> Markup {
    html! {
        @if !rows.is_empty() {
            table.facts {
                caption { (title) }
                tbody { @for (name, value) in rows { tr { th scope="row" { (name) } td { (value) } } } }
            }
        }
    }
}

fn training(model: &ModelSection) -> Result<Markup> {
    let history = &model.history;
    if let Some(choice) = &model.choice {
        return Ok(html! {
            h4 { "Cross-validation" }
            (choice_chart::section(choice)?)
            (ranks(history, "series", "Series, of each target and run, that each rank fitted."))
        });
    }
    let by_round = loss_charts::by_round(history, model.loss_axis)?;
    let by_epoch = loss_charts::by_epoch(history, model.loss_axis)?;
    let validated = history.epochs.iter().any(|e| e.validation_loss.is_some());
    let validation = |key: &'static str| validated.then_some((ORANGE, key, "validation, per epoch"));
    Ok(html! {
        h4 { "Training" }
        @if history.steps.is_empty() && history.epochs.is_empty() { p.empty { "No round and no epoch is recorded." } }
        div.columns {
            @if let Some(chart) = by_round {
                (figure(html! {
                    (charts::legend(&[
                        Some((BLUE, "line", "training, per round")),
                        validation("line dot"),
                        Some((FAINT_INK, "dashed", "before training")),
                    ].into_iter().flatten().collect::<Vec<_>>()))
                    (chart)
                }, "Mean loss per sample of every round as rank 0 saw it (pale), and its running mean over a \
                    fiftieth of the rounds (full); validation loss at the end of each epoch."))
            }
            @if let Some(chart) = by_epoch {
                (figure(html! {
                    (charts::legend(&[
                        Some((GREEN, "line dot", "training, all ranks")),
                        validation("line dot"),
                        Some((FAINT_INK, "dashed", "before training")),
                    ].into_iter().flatten().collect::<Vec<_>>()))
                    (chart)
                }, "Mean loss per sample over each epoch, all ranks together; 0 is the loss before the first step."))
            }
        }
        (step_split(history))
        (ranks(history, "samples", "Samples each rank trained on (over all epochs) and bytes it sent to agree with the others."))
    })
}

/// Where the time of the rounds went, as one bar.
fn step_split(history: &History) -> Markup {
    let sum = |part: fn(&voxelflow_stage::StepRecord) -> f64| -> f64 {
        history.steps.iter().map(part).filter(|s| s.is_finite()).sum()
    };
    let parts = [
        ("feed", "reading rows", sum(|s| s.feed_seconds)),
        ("compute", "forward and backward", sum(|s| s.compute_seconds)),
        ("sync", "agreeing: sending, waiting, receiving", sum(|s| s.sync_seconds)),
    ];
    let total: f64 = parts.iter().map(|p| p.2).sum();
    if total <= 0.0 {
        return html! {};
    }
    let rounds = history.steps.len();
    let samples: u64 = history.steps.iter().map(|s| s.samples).sum();
    let staleness = history.steps.iter().map(|s| s.staleness as f64).sum::<f64>() / rounds as f64;
    let share = |s: f64| format!("{:.1} %", 100.0 * s / total);
    let bar = html! {
        div.split role="img" aria-label="Share of feed, compute and sync in the time of a round" {
            @for (class, _, s) in &parts {
                @if *s > 0.0 {
                    div class=(class) style=(format!("flex-grow:{:.4}", s / total)) {
                        @if s / total > 0.12 { (class) " " (share(*s)) }
                    }
                }
            }
        }
        table.numbers {
            thead { tr { th { "part of a round" } th { "" } th.n { "total" } th.n { "per round" } th.n { "share" } } }
            tbody {
                @for (class, what, s) in &parts {
                    tr {
                        td { span.swatch.(class) {} (class) } td { (what) } td.n { (seconds(*s)) }
                        td.n { (seconds(s / rounds as f64)) } td.n { (share(*s)) }
                    }
                }
            }
        }
    };
    let caption = format!(
        "Where the {} of {} rounds went on rank 0 ({} samples there, {} samples/s; mean staleness {} updates).",
        seconds(total),
        count(rounds as u64),
        count(samples),
        count((samples as f64 / total) as u64),
        number(staleness, 2)
    );
    figure(bar, &caption)
}

/// What each rank did; `what` it counts, and what the table shows.
fn ranks(history: &History, what: &str, caption: &str) -> Markup {
    let (samples, sent) = (&history.samples_per_rank, &history.bytes_sent_per_rank);
    let ranks = samples.len().max(sent.len());
    if ranks == 0 {
        return html! {};
    }
    let most = samples.iter().copied().max().unwrap_or(0).max(1);
    let table = html! {
        table.numbers {
            thead { tr { th.n { "rank" } th.n { (what) } th { "" } th.n { "sent" } } }
            tbody {
                @for rank in 0..ranks {
                    @let trained = samples.get(rank).copied();
                    tr {
                        td.n { (rank) }
                        td.n { (trained.map_or("–".into(), count)) }
                        td.meter { div style=(format!("width:{:.1}%", 100.0 * trained.unwrap_or(0) as f64 / most as f64)) {} }
                        td.n { (sent.get(rank).map_or("–".into(), |b| bytes(*b))) }
                    }
                }
            }
            tfoot {
                tr {
                    th.n { "all" } th.n { (count(samples.iter().sum())) } th {} th.n { (bytes(sent.iter().sum())) }
                }
            }
        }
    };
    figure(table, caption)
}

fn reconstructions(model: &ModelSection) -> Result<Markup> {
    if model.reconstructions.is_empty() {
        return Ok(html! {});
    }
    let mut panels = Vec::new();
    for example in &model.reconstructions {
        let chart = loss_charts::reconstruction(example)?;
        panels.push(html! {
            div.panel { div.title { span { (example.label) } span.r { "r = " (number(example.r, 3)) } } (chart) }
        });
    }
    let body = html! {
        (charts::legend(&[(FAINT_INK, "line", "series"), (ORANGE, "line", "reconstruction")]))
        div.panels { @for panel in &panels { (panel) } }
    };
    let caption = "Series as the model saw them (standardised units) and its reconstructions; r is the Pearson \
                   correlation of the two over time.";
    Ok(html! { h4 { "Reconstructions" } (figure(body, caption)) })
}

fn filters(model: &ModelSection) -> Result<Markup> {
    if model.filters.is_empty() {
        return Ok(html! {});
    }
    let mut figures = Vec::new();
    for layer in &model.filters {
        let [filters, channels, length] = layer.shape;
        let drawn = filter_charts::draw(layer)?;
        let body = html! {
            h5 { code { (layer.layer) } " " span.shape { (filters) " × " (channels) " × " (length) } }
            (drawn.drawing)
        };
        figures.push(figure(body, &drawn.caption));
    }
    Ok(html! { h4 { "Filters" } @for figure in &figures { (figure) } })
}
