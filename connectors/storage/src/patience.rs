//! How long a store may take: bounded for work, short for a look before it.

use object_store::{BackoffConfig, ClientOptions, RetryConfig};
use std::time::Duration;

/// How long a store may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Faults that pass (a dropped connection, a busy server) are tried again: four times within a minute.
    Work,
    /// The same faults are tried again for a few seconds: a wrong description stays wrong.
    Check,
}

impl Patience {
    pub fn retries(self) -> RetryConfig {
        match self {
            Self::Work => RetryConfig {
                backoff: BackoffConfig {
                    init_backoff: Duration::from_millis(200),
                    max_backoff: Duration::from_secs(10),
                    base: 2.,
                },
                max_retries: 4,
                retry_timeout: Duration::from_secs(60),
            },
            Self::Check => RetryConfig {
                backoff: BackoffConfig {
                    init_backoff: Duration::from_millis(100),
                    max_backoff: Duration::from_millis(800),
                    base: 2.,
                },
                max_retries: 4,
                retry_timeout: Duration::from_secs(3),
            },
        }
    }

    /// Settings of HTTP clients; `plain` lets them speak without encryption.
    pub fn client(self, plain: bool) -> ClientOptions {
        let (connect, whole) = match self {
            // A request may carry an image of some gigabytes.
            Self::Work => (5, 300),
            Self::Check => (3, 4),
        };
        ClientOptions::new()
            .with_allow_http(plain)
            .with_connect_timeout(Duration::from_secs(connect))
            .with_timeout(Duration::from_secs(whole))
    }
}
