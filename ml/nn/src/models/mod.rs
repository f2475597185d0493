//! Models: those composed of [`crate::layers`], and one that only counts.

pub mod dist_dca;
pub(crate) mod folder;
pub mod histogram;
