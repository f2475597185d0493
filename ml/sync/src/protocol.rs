//! The protocol of an elastic gang, without effects: messages, and state machines that turn them into decisions.
//!
//! ```text
//!            ToCoordinator                              ShardRequest + values
//!   Member ───────────────► Coordinator      Member ───────────────────────► Replica (primary)
//!     ▲                       │ LeaseBook      ▲                               │ Replicate
//!     └───────────────────────┘                └───────────────────────────────┤
//!              ToMember                           ShardReply + values          ▼
//!                                                                     Replica (backup)
//! ```
//!
//! Nothing here has a clock, a thread or a socket: transports move the messages, between threads of a process or
//! between machines.

mod coordinator;
mod ending;
mod forming;
mod identity;
mod lease;
mod member;
mod messages;
mod placement;
mod ranges;
mod replica;
mod rounds;
mod rules;
mod shard_messages;
#[cfg(test)]
mod simulation;
mod versions;
mod view;

pub use coordinator::{Action, Coordinator, Event, GangState, LinkId, MemberState};
pub use ending::{Failure, FirstCause, Leave, Outcome, Reason, Stop};
pub use identity::{Generation, Incarnation, MemberId, Role, RunId, ShardId, Stamp};
pub use lease::LeaseBook;
pub use member::{Call, Done, Member, MemberAction, MemberSettings, Payload};
pub use messages::{Hello, Meeting, Passed, ReplicaStatus, ToCoordinator, ToMember};
pub use replica::{Caller, Replica, ReplicaAction, ReplicaSettings, Values};
pub use rules::{Pace, Rules};
pub use shard_messages::{Answer, Ask, Refusal, ShardReply, ShardRequest, Wanted};
pub use view::{Attendant, Begin, Holders, Placement, View};

#[cfg(test)]
mod wire_tests;
