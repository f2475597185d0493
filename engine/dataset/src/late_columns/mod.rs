//! Late materialization: series wait on disk while their keys are sorted, joined and numbered.
//!
//! A row of a series table is a few bytes of keys and thousands of bytes of series. Sorts, joins and windows hold rows, but look
//! at keys only. So lists that an operator only passes on are written to a file first, and what the operator moves is
//! where they lie:
//!
//! ```text
//!   SortExec: voxel          TakeBackExec: series
//!     scan            ──►      SortExec: voxel                  rows of 16 bytes
//!                                PutAsideExec: series ──► file  rows of 4,800 bytes
//!                                  scan
//! ```
//! Where lists are grouped by, equal ones get one address. Memory then holds keys. Lists go to the disk and back once, however many such operators follow one another, where a sort that
//! spills writes them once for every operator.
//!
//! It is done to the plan that a process is about to run, in this one or in an executor: files do not travel.

mod exec;
mod rule;
mod shelf;
#[cfg(test)]
mod tests;

pub use rule::with_late_columns;
