//! The same plans on a Ballista cluster: scheduler, executors, how plans travel, and who runs when.

pub mod policy;
