//! Who may take part in a job: an authority of the job's own, one certificate for all its members, and a
//! random token.
//!
//! ```text
//!   driver ── JobCredentials::generate() ──► seal(…, cluster key) ──► plan ──► open(…) ── executor
//!                                                                                          │
//!            mutual TLS: only certificates that the job's authority has signed  ◄──────────┘
//! ```
//!
//! The authority's key is dropped as soon as it has signed the one certificate, so nobody can make another.
//! Members are known by that certificate and by the token; names and addresses say nothing about them.

use crate::{Error, Result};
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use ring::{
    hmac,
    rand::{SecureRandom, SystemRandom},
};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    server::WebPkiClientVerifier,
};
use serde::{Deserialize, Serialize};
use std::{fmt, sync::Arc};

/// The name in the certificate. Members ask for it wherever they connect to: addresses come and go.
pub(crate) const NAME: &str = "gang.voxelflow.internal";

/// A secret that the members of one job share.
#[derive(Clone, Serialize, Deserialize)]
pub struct Token([u8; 32]);

impl Token {
    /// A new random token.
    ///
    /// # Errors
    /// [`Error::Credentials`] when the system has no random numbers.
    pub fn random() -> Result<Self> {
        random().map(Self)
    }

    pub(crate) fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Whether `other` is this token, in a time that does not tell how much of it is right: authentication
    /// codes of one message under both are compared, by the cryptographic library.
    pub fn admits(&self, other: &Self) -> bool {
        const MESSAGE: &[u8] = b"voxelflow job token";
        let key = |token: &Self| hmac::Key::new(hmac::HMAC_SHA256, &token.0);
        hmac::verify(&key(self), MESSAGE, hmac::sign(&key(other), MESSAGE).as_ref()).is_ok()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// What a member of a job shows to the others, and how it knows them.
#[derive(Clone, Serialize, Deserialize)]
pub struct JobCredentials {
    /// Certificates of the authorities that are trusted, PEM; one but for a cluster whose key is being changed.
    authority: String,
    /// Certificate of the members, PEM.
    certificate: String,
    /// Its key, PEM.
    key: String,
    token: Token,
}

impl fmt::Debug for JobCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobCredentials(…)")
    }
}

impl JobCredentials {
    /// Credentials of a new job.
    ///
    /// # Errors
    /// [`Error::Credentials`] when they cannot be made.
    pub fn generate() -> Result<Self> {
        let failed = |e: rcgen::Error| credentials("the job's certificate", e);
        let authority_key = KeyPair::generate().map_err(failed)?;
        let mut authority = CertificateParams::new(Vec::new()).map_err(failed)?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let authority_certificate = authority.self_signed(&authority_key).map_err(failed)?;
        signed_member(authority_certificate.pem(), &Issuer::new(authority, authority_key), Token::random()?)
    }

    /// Authority, certificate and key in PEM, for tonic.
    pub(crate) fn pem(&self) -> [&str; 3] {
        [&self.authority, &self.certificate, &self.key]
    }

    /// Mutual TLS for those who listen: only members may connect.
    ///
    /// # Errors
    /// [`Error::Credentials`] when the certificates cannot be read.
    pub fn server(&self) -> Result<Arc<ServerConfig>> {
        let provider = provider();
        let verifier = WebPkiClientVerifier::builder_with_provider(self.roots()?, Arc::clone(&provider));
        let verifier = verifier.build().map_err(|e| credentials(AUTHORITY, e))?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|e| credentials(TLS, e))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(self.chain()?, self.private_key()?)
            .map_err(|e| credentials(CERTIFICATE, e))?;
        // Nobody resumes a session. A ticket that the client never reads would turn its orderly end into a
        // reset, and the end of what it sent could be lost.
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }

    /// Mutual TLS for those who connect: only to members.
    ///
    /// # Errors
    /// [`Error::Credentials`] when the certificates cannot be read.
    pub fn client(&self) -> Result<Arc<ClientConfig>> {
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|e| credentials(TLS, e))?
            .with_root_certificates(self.roots()?)
            .with_client_auth_cert(self.chain()?, self.private_key()?)
            .map_err(|e| credentials(CERTIFICATE, e))?;
        config.resumption = rustls::client::Resumption::disabled();
        Ok(Arc::new(config))
    }

    fn roots(&self) -> Result<Arc<RootCertStore>> {
        let mut roots = RootCertStore::empty();
        for authority in CertificateDer::pem_slice_iter(self.authority.as_bytes()) {
            let authority = authority.map_err(|e| credentials(AUTHORITY, e))?;
            roots.add(authority).map_err(|e| credentials(AUTHORITY, e))?;
        }
        if roots.is_empty() {
            return Err(credentials(AUTHORITY, "it is no certificate"));
        }
        Ok(Arc::new(roots))
    }

    fn chain(&self) -> Result<Vec<CertificateDer<'static>>> {
        let certificate = CertificateDer::from_pem_slice(self.certificate.as_bytes());
        Ok(vec![certificate.map_err(|e| credentials(CERTIFICATE, e))?])
    }

    fn private_key(&self) -> Result<PrivateKeyDer<'static>> {
        PrivateKeyDer::from_pem_slice(self.key.as_bytes()).map_err(|e| credentials("the members' key", e))
    }
}

/// Credentials with a new key and its certificate, signed by `issuer`, whose own certificate is `authority`.
pub(crate) fn signed_member(
    authority: String,
    issuer: &Issuer<'_, KeyPair>,
    token: Token,
) -> Result<JobCredentials> {
    let failed = |e: rcgen::Error| credentials(CERTIFICATE, e);
    let key = KeyPair::generate().map_err(failed)?;
    let mut member = CertificateParams::new(vec![NAME.to_owned()]).map_err(failed)?;
    member.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    member.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let certificate = member.signed_by(&key, issuer).map_err(failed)?;
    Ok(JobCredentials { authority, certificate: certificate.pem(), key: key.serialize_pem(), token })
}

const AUTHORITY: &str = "the job's authority";
const CERTIFICATE: &str = "the members' certificate";
const TLS: &str = "TLS 1.3";

/// AES-128 first: half the rounds of what the library prefers, and no less safe for the hours that a job lasts.
fn provider() -> Arc<CryptoProvider> {
    use rustls::crypto::ring::{self, cipher_suite};
    let cipher_suites = vec![
        cipher_suite::TLS13_AES_128_GCM_SHA256,
        cipher_suite::TLS13_AES_256_GCM_SHA384,
        cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    ];
    Arc::new(CryptoProvider { cipher_suites, ..ring::default_provider() })
}

/// The name that a client asks a server for.
///
/// # Errors
/// [`Error::Credentials`] when it is no name, which it is.
pub fn server_name() -> Result<ServerName<'static>> {
    ServerName::try_from(NAME).map_err(|e| credentials("the members' name", e))
}

/// How the members of a job trust each other.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Security {
    /// Mutual TLS with certificates of the job's own.
    Tls(JobCredentials),
    /// Only the token, readable to whoever listens on the network: for those who asked for it.
    Insecure {
        /// What members show to each other.
        token: Token,
    },
}

impl Security {
    /// Mutual TLS for a new job.
    ///
    /// # Errors
    /// [`Error::Credentials`] when no credentials can be made.
    pub fn tls() -> Result<Self> {
        JobCredentials::generate().map(Self::Tls)
    }

    /// Plain connections for a new job.
    ///
    /// # Errors
    /// [`Error::Credentials`] when the system has no random numbers.
    pub fn insecure() -> Result<Self> {
        Ok(Self::Insecure { token: Token::random()? })
    }

    /// The job's token.
    pub fn token(&self) -> &Token {
        match self {
            Self::Tls(credentials) => &credentials.token,
            Self::Insecure { token } => token,
        }
    }
}

pub(crate) fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| credentials("random bytes", "the system has none"))?;
    Ok(bytes)
}

pub(crate) fn credentials(what: impl fmt::Display, reason: impl fmt::Display) -> Error {
    Error::Credentials { what: what.to_string(), reason: reason.to_string() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn only_the_same_token_is_admitted() {
        let token = Token::random().unwrap();
        assert!(token.admits(&token.clone()));
        for place in 0..32 {
            let mut other = token.clone();
            other.0[place] ^= 1;
            assert!(!token.admits(&other), "byte {place}");
        }
        assert!(!token.admits(&Token::random().unwrap()));
    }

    #[test]
    fn credentials_travel_and_show_nothing() {
        let security = Security::tls().unwrap();
        let bytes = postcard::to_stdvec(&security).unwrap();
        let back: Security = postcard::from_bytes(&bytes).unwrap();
        assert!(security.token().admits(back.token()));
        let Security::Tls(credentials) = &back else { panic!("{back:?}") };
        credentials.server().unwrap();
        credentials.client().unwrap();
        for shown in [format!("{back:?}"), format!("{credentials:#?}"), format!("{:?}", back.token())] {
            assert!(shown.len() < 40, "{shown}");
            assert!(!shown.contains("PRIVATE") && !shown.contains("BEGIN"), "{shown}");
        }
        let shown = format!("{:?}", Security::insecure().unwrap());
        assert_eq!(shown, "Insecure { token: Token(…) }");
    }

    #[test]
    fn what_is_no_certificate_is_named() {
        let mut odd = JobCredentials::generate().unwrap();
        odd.authority = "nonsense".into();
        let error = odd.client().unwrap_err().to_string();
        assert!(error.contains("the job's authority"), "{error}");
    }
}
