//! Credentials of a cluster: not drawn for a job, but made from the key that all processes of the cluster have.
//!
//! ```text
//!   cluster key ──HMAC──► key of the authority ──signs──► certificate of this process
//!              └──HMAC──► token
//! ```
//!
//! Each process makes a certificate of its own, and all of them are signed by the same authority: two processes
//! trust each other when they have the same key, and nothing has to be sent before. While a key is being changed, a
//! process trusts the authorities of both keys that it has.

use super::{
    ClusterKey, JobCredentials, Token,
    credentials::{NAME, credentials, signed_member},
};
use crate::Result;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use ring::hmac;
use rustls::pki_types::PrivatePkcs8KeyDer;
use tonic::transport::{Certificate, ClientTlsConfig, Identity, ServerTlsConfig};

/// What stands before an Ed25519 key of 32 bytes in PKCS #8 (RFC 8410).
const ED25519: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

impl JobCredentials {
    /// Credentials of a process of the cluster that has `key`.
    ///
    /// # Errors
    /// [`Error::Credentials`](crate::Error::Credentials) when they cannot be made.
    pub fn of_cluster(key: &ClusterKey) -> Result<Self> {
        let keys = key.all();
        let authorities = keys.iter().map(authority).collect::<Result<Vec<_>>>()?;
        let trusted: String = authorities.iter().map(|(certificate, _)| certificate.as_str()).collect();
        let Some(((_, issuer), used)) = authorities.into_iter().zip(&keys).next() else {
            return Err(credentials("the cluster's key", "there is none"));
        };
        let token = Token::from_bytes(derived(used, b"voxelflow cluster token"));
        signed_member(trusted, &issuer, token)
    }

    /// Mutual TLS of a tonic server.
    pub fn server_tls(&self) -> ServerTlsConfig {
        let [authority, certificate, key] = self.pem();
        let identity = Identity::from_pem(certificate, key);
        ServerTlsConfig::new().identity(identity).client_ca_root(Certificate::from_pem(authority))
    }

    /// Mutual TLS of a tonic client.
    pub fn client_tls(&self) -> ClientTlsConfig {
        let [authority, certificate, key] = self.pem();
        let identity = Identity::from_pem(certificate, key);
        let config = ClientTlsConfig::new().identity(identity).domain_name(NAME);
        config.ca_certificate(Certificate::from_pem(authority))
    }
}

/// The authority of a key: its certificate as PEM, and what signs in its name.
fn authority(key: &[u8; 32]) -> Result<(String, Issuer<'static, KeyPair>)> {
    let failed = |e: rcgen::Error| credentials("the cluster's certificate", e);
    let pkcs8 = [&ED25519[..], &derived(key, b"voxelflow cluster authority")].concat();
    let authority_key = KeyPair::try_from(&PrivatePkcs8KeyDer::from(pkcs8)).map_err(failed)?;
    let mut authority = CertificateParams::new(Vec::new()).map_err(failed)?;
    // An authority is known by its name and its public key, so both must be the same in every process.
    authority.distinguished_name = DistinguishedName::new();
    authority.distinguished_name.push(DnType::CommonName, "voxelflow cluster");
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let certificate = authority.self_signed(&authority_key).map_err(failed)?.pem();
    Ok((certificate, Issuer::new(authority, authority_key)))
}

/// 32 bytes that only those can know who have `key`, another 32 for every `purpose`.
fn derived(key: &[u8; 32], purpose: &[u8]) -> [u8; 32] {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), purpose);
    let mut bytes = [0; 32];
    bytes.copy_from_slice(tag.as_ref());
    bytes
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use rustls::{ClientConnection, ServerConnection};
    use std::io;

    /// Shakes hands in memory; whether both ends are content.
    fn meet(server: &JobCredentials, client: &JobCredentials) -> bool {
        let name = crate::network::credentials::server_name().unwrap();
        let mut client = ClientConnection::new(client.client().unwrap(), name).unwrap();
        let mut server = ServerConnection::new(server.server().unwrap()).unwrap();
        while client.is_handshaking() || server.is_handshaking() {
            let mut wire = Vec::new();
            while client.wants_write() {
                client.write_tls(&mut wire).unwrap();
            }
            let mut sent = io::Cursor::new(&wire);
            while sent.position() < wire.len() as u64 {
                server.read_tls(&mut sent).unwrap();
                if server.process_new_packets().is_err() {
                    return false;
                }
            }
            let mut wire = Vec::new();
            while server.wants_write() {
                server.write_tls(&mut wire).unwrap();
            }
            let mut sent = io::Cursor::new(&wire);
            while sent.position() < wire.len() as u64 {
                client.read_tls(&mut sent).unwrap();
                if client.process_new_packets().is_err() {
                    return false;
                }
            }
        }
        true
    }

    #[test]
    fn while_a_key_is_changed_both_are_accepted() {
        let folder = tempfile::tempdir().unwrap();
        let (old, new) = (ClusterKey::generate().unwrap(), ClusterKey::generate().unwrap());
        let both = |first: &ClusterKey, second: &ClusterKey, name: &str| {
            let path = folder.path().join(name);
            ClusterKey { previous: Some(second.all()[0]), ..first.clone() }.write(&path).unwrap();
            ClusterKey::read(&path).unwrap()
        };
        // The old key is used while the new one is brought to all processes, then the new one.
        let (announced, changed) = (both(&old, &new, "announced"), both(&new, &old, "changed"));
        let of = |key: &ClusterKey| JobCredentials::of_cluster(key).unwrap();
        for (one, two) in [(&old, &announced), (&announced, &changed), (&changed, &new)] {
            assert!(meet(&of(one), &of(two)) && meet(&of(two), &of(one)));
        }
        assert!(!meet(&of(&old), &of(&changed)), "who has the old key alone does not trust the new one");
        assert!(!meet(&of(&new), &of(&old)) && !meet(&of(&announced), &of(&ClusterKey::generate().unwrap())));
        use crate::network::{open, seal};
        assert_eq!(open(&seal(b"secret", &old).unwrap(), &changed).unwrap(), b"secret");
        assert!(open(&seal(b"secret", &old).unwrap(), &new).is_err());
    }

    #[test]
    fn processes_with_one_key_trust_each_other_and_nobody_else() {
        let (key, other) = (ClusterKey::generate().unwrap(), ClusterKey::generate().unwrap());
        let of = |key: &ClusterKey| JobCredentials::of_cluster(key).unwrap();
        let (one, two, stranger) = (of(&key), of(&key), of(&other));
        assert!(meet(&one, &two) && meet(&two, &one));
        assert!(!meet(&one, &stranger) && !meet(&stranger, &one));
        assert!(!meet(&one, &JobCredentials::generate().unwrap()));
        let token =
            |credentials: &JobCredentials| crate::network::Security::Tls(credentials.clone()).token().clone();
        assert!(token(&one).admits(&token(&two)) && !token(&one).admits(&token(&stranger)));
    }
}
