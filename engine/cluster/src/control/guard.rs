//! Who may use the control service: those who have the cluster's key, from which both ends make the certificates
//! of mutual TLS.

use super::error::{Error, Result};
use std::net::IpAddr;
use tonic::transport::{Endpoint, Server};
use voxelflow_sync::network::{ClusterKey, JobCredentials};

/// How the two ends of a control service trust each other.
#[derive(Clone, Debug)]
pub struct Guard {
    credentials: Option<JobCredentials>,
}

impl Guard {
    /// Mutual TLS with certificates from the cluster's key.
    ///
    /// # Errors
    /// A key that no certificates can be made from.
    pub fn of_key(key: &ClusterKey) -> Result<Self> {
        let credentials = JobCredentials::of_cluster(key);
        let credentials = credentials.map_err(|e| Error::setup("the cluster's key")(e.to_string()))?;
        Ok(Self { credentials: Some(credentials) })
    }

    /// No key: for a cluster within one machine, or one whose user said `--insecure`.
    pub fn open() -> Self {
        Self { credentials: None }
    }

    /// The guard of a cluster that may have a key.
    ///
    /// # Errors
    /// As [`Guard::of_key`].
    pub fn of(key: Option<&ClusterKey>) -> Result<Self> {
        key.map_or_else(|| Ok(Self::open()), Self::of_key)
    }

    /// Refuses to serve what anybody on the network could use and read.
    ///
    /// # Errors
    /// No key at an address that is not this machine's own, unless `insecure`.
    pub fn check(&self, address: IpAddr, insecure: bool) -> Result<()> {
        if self.credentials.is_some() || address.is_loopback() || insecure {
            return Ok(());
        }
        let reason = format!(
            "anybody who reaches {address} could end jobs and read logs: give --cluster-key FILE, or say --insecure \
             if the network keeps strangers out"
        );
        Err(Error::setup("the control service")(reason))
    }

    pub(super) fn server(&self) -> Result<Server> {
        match &self.credentials {
            Some(credentials) => Server::builder()
                .tls_config(credentials.server_tls())
                .map_err(|e| Error::setup("the control service's certificate")(e.to_string())),
            None => Ok(Server::builder()),
        }
    }

    /// The service at `address`, `host:port`.
    pub(super) fn endpoint(&self, address: &str) -> Result<Endpoint> {
        let scheme = if self.credentials.is_some() { "https" } else { "http" };
        let endpoint = Endpoint::from_shared(format!("{scheme}://{address}"));
        let endpoint = endpoint.map_err(|e| Error::setup("the cluster's address")(e.to_string()))?;
        match &self.credentials {
            Some(credentials) => endpoint
                .tls_config(credentials.client_tls())
                .map_err(|e| Error::setup("the control service's certificate")(e.to_string())),
            None => Ok(endpoint),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn nothing_plain_is_served_to_a_network() {
        let guard = Guard::of(Some(&ClusterKey::generate().unwrap())).unwrap();
        let (loopback, lab): (IpAddr, IpAddr) = ("127.0.0.1".parse().unwrap(), "10.0.0.7".parse().unwrap());
        assert!(guard.check(lab, false).is_ok() && guard.check(loopback, false).is_ok());
        assert_eq!(format!("{guard:?}"), "Guard { credentials: Some(JobCredentials(…)) }");
        let open = Guard::of(None).unwrap();
        let refusal = open.check(lab, false).unwrap_err();
        assert!(refusal.is_input() && refusal.to_string().contains("--insecure"), "{refusal}");
        assert!(open.check(lab, true).is_ok() && open.check(loopback, false).is_ok());
    }
}
