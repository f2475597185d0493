//! Agents: the part of a cluster that stays while applications come and go.
//!
//! A driver program has functions of its own, so its scheduler and executors must be the same build. An agent
//! (`voxelflow node`) runs on every machine; it takes a program's binary by its hash and starts scheduler and
//! executors *of that application*, within what the application was granted, as Spark's workers do.
//!
//! ```text
//!   driver program                                   agent of each machine
//!   ──────────────                                   ─────────────────────
//!   Nodes ── knock: sealed credentials ────────────► opens them with the cluster's key
//!         ◄─────────── mutual TLS (channel) ───────► both show these credentials
//!         ── Have? Send chunks ────────────────────► binary_cache: verified, executable
//!         ── Want (wish) ──────────────────────────► grant: what is left, which cards
//!         ── Start scheduler, executor ────────────► process: with its log, ended with its agent
//!         ── Watch … every second ─────────────────► exit status, log lines
//!         ── End, or silence beyond the grace ─────► all is killed, its folder removed
//! ```
//!
//! Who has the cluster's key may run programs as the agent's user: that is what the key is for. Credentials are
//! made for each application, so what one application sends cannot be read or continued by another.

mod agent;
mod application;
mod binary_cache;
mod channel;
mod error;
mod grant;
mod link;
mod message;
mod nodes;
mod placement;
mod process;
mod roles;

pub use agent::{Agent, AgentConfig};
pub use binary_cache::BinaryStore;
pub use error::{Error, Result};
pub use grant::{Resources, Wish};
pub use nodes::{Nodes, NodesConfig};
pub use placement::{SCHEME, agents};

#[cfg(test)]
mod tests;
