//! Models, each composed of [`crate::layers`].

pub mod dist_dca;
