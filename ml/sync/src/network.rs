//! Ranks in different processes: connections, who may make them, and what travels on them.
//!
//! ```text
//!   control     tonic, one stream of small messages a member      member ◄──────────► coordinator
//!   tensors     frames over blocking TCP, one connection a way    member ───► member
//!                 frame ◄ stream (TLS) ◄ handshake ◄ listener
//! ```
//!
//! Control messages are few and want deadlines, multiplexing and keep-alive: tonic has them. Tensors want bandwidth:
//! they go from slice to socket without a copy, for which a gRPC message has no room.

mod cluster_credentials;
mod codec;
mod communicator;
mod control;
mod control_client;
mod credentials;
pub mod frame;
mod handshake;
mod listener;
mod mesh;
mod native;
mod payload;
mod seal;
mod stream;

pub use codec::{PostcardCodec, PostcardDecoder, PostcardEncoder};
pub use communicator::{Bound, Interrupter, NetworkCommunicator};
pub use control::{Attendance, ControlServer, Outbox};
pub use control_client::{ControlClient, ControlEvent};
pub use credentials::{JobCredentials, Security, Token, server_name};
pub use handshake::Passport;
pub use listener::{Listener, Visitors};
pub use mesh::{Direction, Inbox, Mesh};
pub use payload::Payload;
pub use seal::{ClusterKey, open, seal};
pub use stream::{Closer, TensorStream};

pub(crate) use credentials::random;
