//! Where results go to be looked at: one self-contained `report.html`.
//!
//! A [`Report`] is plain data: what ran, what was left out, what training did, which maps came out. It is drawn
//! in Rust (charts and slices as inline SVG, pixels as PNG data URIs), so that the file needs no network, prints,
//! and shows the same in twenty years; a script of a few lines only adds a slice viewer where one is allowed.
//!
//! ```text
//!   Report ─┬─ ModelSection ─► charts  (plotters, SVG) ─┐
//!           ├─ MapSection ─► orientation ─► slices (SVG around PNG) ─┼─► page (maud) ─► report.html
//!           └─ rows of tables ──────────────────────────┘
//! ```
//!
//! ```
//! use voxelflow_report::{Report, StatementRow};
//! let mut report = Report::new("First run", "2026-01-31 12:00 UTC", "0.1.0");
//! report.statements.push(StatementRow::ran("CREATE TABLE series AS …", 3.2, Some(48_751)));
//! assert!(report.to_html()?.contains("First run"));
//! # Ok::<(), voxelflow_report::Error>(())
//! ```

mod charts;
mod choice_chart;
mod colour;
mod error;
mod filter_charts;
mod histogram;
mod ledger_page;
mod loss_charts;
mod map_page;
mod map_statistics;
mod model_page;
mod orientation;
mod page;
mod quantity;
mod raster;
mod report;
mod slices;
mod viewer;

pub use error::{Error, Result};
pub use report::{
    Convention, Cut, FileRow, LedgerRow, LossAxis, MapKind, MapSection, ModelSection, ReconstructionExample,
    Report, ResultTable, StatementRow, TableRow, Volume,
};
