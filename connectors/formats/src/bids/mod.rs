//! BIDS datasets and folders of the HCP pipelines: which runs there are, and which files belong together.
//!
//! Nothing is read but listings and small JSON files, and those through the caller's hands: disks and object stores
//! serve alike.
//!
//! ```text
//!   paths ─► BidsDataset ─┐                       ┌─► BidsRun: image(s), mask, confounds, events, timing
//!            (names, JSON)├─ BidsQuery ─► select_runs
//!   raw's ─► BidsDataset ─┘   (task, space, …)    └─► Problem: what is wrong, what was found, what to do
//! ```
//!
//! ```
//! use voxelflow_formats::bids::{BidsDataset, BidsQuery, select_runs};
//!
//! let run = "sub-01/func/sub-01_task-motor";
//! let paths = [
//!     format!("{run}_space-T1w_desc-preproc_bold.nii.gz"),
//!     format!("{run}_space-T1w_desc-preproc_bold.json"),
//!     format!("{run}_space-T1w_desc-brain_mask.nii.gz"),
//! ];
//! let read = |_: &str| Ok(r#"{"RepetitionTime": 2.0}"#.to_owned());
//! let found = select_runs(&BidsDataset::new(&paths, &read), None, &BidsQuery::default().with("task", "motor"));
//! assert_eq!(found.runs[0].mask.as_ref(), Some(&paths[2]));
//! assert_eq!(found.runs[0].t_r, Some(2.0));
//! assert!(found.problems[0].reason.starts_with("no confounds file"));
//! ```
//!
//! Source: the Brain Imaging Data Structure, version 1.10 (<https://bids-specification.readthedocs.io>), and the
//! outputs of fMRIPrep 1 to 25 (<https://fmriprep.org/en/stable/outputs.html>).

mod dataset;
mod hcp;
mod name;
mod partners;
mod query;
mod role;
mod run;
mod select;
#[cfg(test)]
mod trees;

pub use dataset::{BidsDataset, BidsFile, ReadText};
pub use hcp::{HcpQuery, hcp_run_of, select_hcp_runs};
pub use name::{BidsName, entities_in};
pub use query::{BidsQuery, ENTITIES, NONE, key_of};
pub use role::{BoldKind, Role};
pub use run::{BidsRun, ConfoundFiles, Effect, EventFiles, Located, Part, Problem, Root, Selection};
pub use select::{select_runs, variants_of};
