//! The page: its frame, its table of contents, and the sections that are tables.
//!
//! HTML is made with maud: what is spliced in is escaped unless a type says otherwise, so a file name is text
//! whatever it holds.

use crate::{
    Report, Result, ResultTable, StatementRow, ledger_page, map_page, model_page,
    quantity::{bytes, count, number, seconds},
};
use maud::{DOCTYPE, Markup, PreEscaped, html};

const STYLE: &str = include_str!("../assets/report.css");
const SCRIPT: &str = include_str!("../assets/viewer.js");
/// Nothing may be loaded; images are data, style and script are in the page.
const POLICY: &str = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                      base-uri 'none'; form-action 'none'";

/// The id of the part numbered `number` of a section.
pub(crate) fn anchor(section: &str, number: usize) -> String {
    format!("{section}-{}", number + 1)
}

/// A figure with its caption.
pub(crate) fn figure(body: Markup, caption: &str) -> Markup {
    html! { figure { (body) figcaption { (caption) } } }
}

/// The whole page.
///
/// # Errors
/// Maps or filters that do not fit their shapes.
pub(crate) fn render(report: &Report) -> Result<Markup> {
    let mut models = Vec::new();
    for (number, model) in report.models.iter().enumerate() {
        models.push(model_page::section(model, number)?);
    }
    let mut maps = Vec::new();
    for (number, map) in report.maps.iter().enumerate() {
        maps.push(map_page::section(map, number, report.convention)?);
    }
    Ok(html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="generator" content=(format!("voxelflow {}", report.version));
                title { (report.title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                (contents(report))
                main {
                    header {
                        h1 { (report.title) }
                        p.made { "voxelflow " (report.version) @if !report.created.is_empty() { " · " time { (report.created) } } }
                        (highlights(report))
                    }
                    (what_ran(report))
                    (ledger_page::section(&report.ledger))
                    (results(&report.results))
                    section id="models" {
                        h2 { "Models" }
                        @if models.is_empty() { p.empty { "No model was trained or read." } }
                        @for model in &models { (model) }
                    }
                    section id="maps" {
                        h2 { "Maps" }
                        @if maps.is_empty() { p.empty { "No map was made." } }
                        @for map in &maps { (map) }
                    }
                    (outputs(report))
                    footer { "Written by voxelflow " (report.version) ". This page is one file and loads nothing from a network." }
                }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    })
}

fn contents(report: &Report) -> Markup {
    let parts = |section: &'static str, names: Vec<&str>| {
        html! {
            @if !names.is_empty() {
                ol { @for (n, name) in names.iter().enumerate() { li { a href=(format!("#{}", anchor(section, n))) { (name) } } } }
            }
        }
    };
    html! {
        nav aria-label="Contents" {
            p.brand { "voxelflow" }
            ol {
                li { a href="#ran" { "What ran" } }
                li { a href="#quality" { "Data quality" } }
                @if !report.results.is_empty() { li { a href="#results" { "Results" } } }
                li { a href="#models" { "Models" } (parts("model", report.models.iter().map(|m| m.name.as_str()).collect())) }
                li { a href="#maps" { "Maps" } (parts("map", report.maps.iter().map(|m| m.name.as_str()).collect())) }
                li { a href="#outputs" { "Tables and files" } }
            }
        }
    }
}

fn highlights(report: &Report) -> Markup {
    let total: f64 = report.statements.iter().map(|s| s.seconds).filter(|s| s.is_finite()).sum();
    let loss = report.models.iter().find(|m| m.choice.is_none() && !m.history.epochs.is_empty());
    let card =
        |value: String, label: String| html! { div.card { div.value { (value) } div.label { (label) } } };
    html! {
        div.cards {
            @if !report.statements.is_empty() {
                (card(seconds(total), format!("{} statements", report.statements.len())))
            }
            @if let Some(rows) = report.tables.iter().map(|t| t.rows).max() {
                (card(count(rows), "rows in the largest table".into()))
            }
            @if let Some(model) = loss {
                (card(
                    format!("{} → {}", number(model.history.initial_loss, 3), number(model.history.last_loss(), 3)),
                    format!("mean loss of {}, before → after", model.name),
                ))
            }
            @if !report.ledger.is_empty() { (card(count(report.ledger.len() as u64), "lines in the data-quality ledger".into())) }
            @if !report.files.is_empty() {
                (card(count(report.files.len() as u64), format!("files written, {}", bytes(report.files.iter().map(|f| f.bytes).sum()))))
            }
        }
    }
}

fn what_ran(report: &Report) -> Markup {
    let row = |s: &StatementRow| {
        let state = if s.note == "ran" { "state ran" } else { "state" };
        html! {
            tr {
                td { code.statement { (s.statement) } }
                td.n { (seconds(s.seconds)) }
                td.n { (s.rows.map_or("–".into(), count)) }
                td { span class=(state) { (s.note) } }
            }
        }
    };
    html! {
        section id="ran" {
            h2 { "What ran" }
            @if report.statements.is_empty() { p.empty { "No statement was run." } } @else {
                table.wide {
                    thead { tr { th { "statement" } th.n { "time" } th.n { "rows" } th { "" } } }
                    tbody { @for s in &report.statements { (row(s)) } }
                }
            }
            @if let Some(text) = &report.pipeline_text {
                details { summary { "The pipeline as it was run" } pre { code { (text) } } }
            }
        }
    }
}

fn results(tables: &[ResultTable]) -> Markup {
    let is_number = |cell: &String| cell.starts_with(|c: char| c.is_ascii_digit() || "-−+.".contains(c));
    html! {
        @if !tables.is_empty() {
            section id="results" {
                h2 { "Results" }
                @for table in tables {
                    h3 { (table.title) }
                    (figure(html! {
                        table.wide {
                            thead { tr { @for (n, name) in table.header.iter().enumerate() {
                                th.n[table.rows.iter().filter_map(|r| r.get(n)).any(is_number)] { (name) }
                            } } }
                            tbody { @for row in &table.rows { tr { @for cell in row { td.n[is_number(cell)] { (cell) } } } } }
                        }
                    }, &table.caption))
                }
            }
        }
    }
}

fn outputs(report: &Report) -> Markup {
    html! {
        section id="outputs" {
            h2 { "Tables and files" }
            @if report.tables.is_empty() { p.empty { "No table was made." } } @else {
                table.wide {
                    thead { tr { th { "table" } th.n { "rows" } th { "columns" } th { "where" } th.n { "size" } } }
                    tbody { @for t in &report.tables { tr {
                        td { code { (t.name) } } td.n { (count(t.rows)) } td.list { (t.columns.join(", ")) }
                        td { (t.path.as_deref().unwrap_or("not stored")) } td.n { (t.bytes.map_or("–".into(), bytes)) }
                    } } }
                }
            }
            @if report.files.is_empty() { p.empty { "No file was written." } } @else {
                table.wide {
                    thead { tr { th { "file" } th { "what it holds" } th.n { "size" } } }
                    tbody { @for f in &report.files { tr { td { code { (f.path) } } td { (f.what) } td.n { (bytes(f.bytes)) } } } }
                }
            }
        }
    }
}
