//! The parameter service: shards own equal ranges of the flat parameters and apply the optimizer.
//!
//! ```text
//!   rank 0 ──Request──►┌─────────────────────────┐
//!   rank 1 ──────────► │ Shard 0  [0, N/S)       │──Reply──► every rank that waited
//!   rank 2 ──────────► │  parameters, optimizer, │
//!                      │  version, who has come  │
//!                      └─────────────────────────┘   … Shard 1, Shard 2
//! ```
//!
//! What to do is decided in [`round`], without effects; [`in_process`] carries the messages between threads.
//! A transport over a network puts the same [`round::Shard`] behind its connections.

pub mod in_process;
pub mod round;
