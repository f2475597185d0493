//! What stands beside an image as text: confounds, events, FSL's EV files, movement regressors, b-values and
//! participants.
//!
//! ```text
//!  *.tsv  ──► Table (text, every line numbered) ──► Confounds   all numbers
//!                                               └─► Events      onset, duration, trial_type
//!  *.tsv, *.txt ──► ParcelNames               names of an atlas
//!  *.txt  ──► lines of numbers ──► EvFile, MovementRegressors, UnnamedColumns
//!  *.bval, *.bvec ──► lines of numbers ──► Gradients
//! ```
//!
//! A null is written `n/a` in these files (BIDS); in columns of numbers it is NaN here, and nothing else is:
//! infinite numbers are refused. A table is held whole, for it has one row per volume or per subject.

mod confounds;
mod ev;
mod events;
mod gradients;
mod movement;
mod number_lines;
mod parcel_names;
mod tsv;
mod unnamed;

pub use confounds::Confounds;
pub use ev::{EvEvent, EvFile};
pub use events::{Event, Events};
pub use gradients::Gradients;
pub use movement::MovementRegressors;
pub use parcel_names::ParcelNames;
pub use tsv::Table;
pub use unnamed::UnnamedColumns;
