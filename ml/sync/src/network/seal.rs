//! Sealed bytes: what must travel inside a plan, which anybody who sees the plan may read, but which only the
//! processes of one cluster may understand.
//!
//! ```text
//!   sealed = nonce (12 bytes) | ChaCha20-Poly1305(bytes, key of the cluster, nonce) | tag (16 bytes)
//! ```
//!
//! A nonce is drawn at random for every seal: a cluster seals a few times for each job, far from the 2³² at
//! which 96 random bits begin to repeat.

use super::credentials::{credentials, random};
use crate::Result;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use std::{
    fmt, fs,
    io::{self, Write},
    path::Path,
};

/// A secret that all processes of a cluster share: a file of 64 hexadecimal digits that only its owner reads.
///
/// While a key is being changed the file has two lines, the new key and the old one: processes show and seal with the
/// first, and accept both. So no two processes of a cluster ever need the same file at the same time.
#[derive(Clone)]
pub struct ClusterKey {
    pub(super) current: [u8; 32],
    /// The other key that is accepted while the key is being changed.
    pub(super) previous: Option<[u8; 32]>,
}

impl fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterKey(…)")
    }
}

impl ClusterKey {
    /// A new random key.
    ///
    /// # Errors
    /// [`Error::Credentials`](crate::Error::Credentials) when the system has no random numbers.
    pub fn generate() -> Result<Self> {
        Ok(Self { current: random()?, previous: None })
    }

    /// The key in the file `path`, or the two keys of a cluster whose key is being changed.
    ///
    /// # Errors
    /// [`Error::Credentials`](crate::Error::Credentials) when it cannot be read, when others than its owner may
    /// read it, or when it holds no key.
    pub fn read(path: &Path) -> Result<Self> {
        let failed = |reason: String| credentials(shown(path), reason);
        let file = fs::File::open(path).map_err(|e| failed(e.to_string()))?;
        // Of the open file, so that nobody can put another one in its place between the two.
        let metadata = file.metadata().map_err(|e| failed(e.to_string()))?;
        only_its_owner_reads(path, &metadata).map_err(failed)?;
        let text = io::read_to_string(io::Read::take(file, 1024)).map_err(|e| failed(e.to_string()))?;
        let keys: Option<Vec<[u8; 32]>> = text.split_whitespace().map(from_hexadecimal).collect();
        match keys.as_deref() {
            Some([current]) => Ok(Self { current: *current, previous: None }),
            Some([current, previous]) => Ok(Self { current: *current, previous: Some(*previous) }),
            _ => Err(failed(
                "must hold 64 hexadecimal digits, as `openssl rand -hex 32` writes; or two such lines while the key \
                 is being changed: the key to use, then the other one that is accepted"
                    .into(),
            )),
        }
    }

    /// Writes the key to the new file `path`, which only its owner may read.
    ///
    /// # Errors
    /// [`Error::Credentials`](crate::Error::Credentials) when the file exists or cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let line =
            |key: &[u8; 32]| key.iter().map(|byte| format!("{byte:02x}")).chain(["\n".into()]).collect();
        let text: String = self.all().iter().map(line).collect::<Vec<String>>().concat();
        let written = options.open(path).and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(|e| credentials(shown(path), e))
    }

    /// The key that is used, then the other one that is accepted.
    pub(crate) fn all(&self) -> Vec<[u8; 32]> {
        [self.current].into_iter().chain(self.previous).collect()
    }
}

fn aead(key: &[u8; 32]) -> Result<LessSafeKey> {
    let key = UnboundKey::new(&CHACHA20_POLY1305, key).map_err(|e| credentials("the cluster's key", e))?;
    Ok(LessSafeKey::new(key))
}

fn shown(path: &Path) -> String {
    format!("the cluster's key {}", path.display())
}

#[cfg(unix)]
fn only_its_owner_reads(path: &Path, metadata: &fs::Metadata) -> Result<(), String> {
    let mode = std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o777;
    if mode & 0o077 == 0 {
        return Ok(());
    }
    Err(format!("has mode {mode:03o}, so others may read it; run `chmod 600 {}`", path.display()))
}

#[cfg(not(unix))]
fn only_its_owner_reads(_: &Path, _: &fs::Metadata) -> Result<(), String> {
    Ok(())
}

fn from_hexadecimal(text: &str) -> Option<[u8; 32]> {
    let mut key = [0; 32];
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != key.len() || !rest.is_empty() {
        return None;
    }
    for (byte, pair) in key.iter_mut().zip(pairs) {
        let digit = |b: u8| char::from(b).to_digit(16);
        *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
    }
    Some(key)
}

/// Bound to every seal, so that bytes sealed for another purpose do not open here.
const PURPOSE: &[u8] = b"voxelflow sealed credentials 1";

/// Seals `bytes` so that only those who have `key` can read them, and any change is found.
///
/// # Errors
/// [`Error::Credentials`](crate::Error::Credentials) when the system has no random numbers.
pub fn seal(bytes: &[u8], key: &ClusterKey) -> Result<Vec<u8>> {
    let nonce: [u8; NONCE_LEN] = random()?;
    let mut sealed = nonce.to_vec();
    let mut body = bytes.to_vec();
    aead(&key.current)?
        .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(PURPOSE), &mut body)
        .map_err(|_| credentials("sealing", "the bytes are too many"))?;
    sealed.append(&mut body);
    Ok(sealed)
}

/// What [`seal`] was given.
///
/// # Errors
/// [`Error::Credentials`](crate::Error::Credentials) for another key, or bytes that were changed.
pub fn open(sealed: &[u8], key: &ClusterKey) -> Result<Vec<u8>> {
    let refused = || {
        credentials(
            "sealed credentials",
            "they do not open with this process's cluster key; give all processes of the cluster the same key",
        )
    };
    let (nonce, body) = sealed.split_first_chunk::<NONCE_LEN>().ok_or_else(refused)?;
    for key in key.all() {
        let mut body = body.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        if let Ok(opened) = aead(&key)?.open_in_place(nonce, Aad::from(PURPOSE), &mut body) {
            let length = opened.len();
            body.truncate(length);
            return Ok(body);
        }
    }
    Err(refused())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_sealed_opens_and_any_change_is_found(
            bytes in proptest::collection::vec(any::<u8>(), 0..200), at in any::<proptest::sample::Index>(), bit in 0..8_u8,
        ) {
            let key = ClusterKey::generate().unwrap();
            let mut sealed = seal(&bytes, &key).unwrap();
            prop_assert_eq!(open(&sealed, &key).unwrap(), bytes);
            prop_assert!(open(&sealed, &ClusterKey::generate().unwrap()).is_err());
            let at = at.index(sealed.len());
            prop_assert!(open(&sealed[..at], &key).is_err());
            sealed[at] ^= 1_u8 << bit;
            prop_assert!(open(&sealed, &key).is_err());
        }
    }

    #[test]
    fn two_seals_of_the_same_bytes_differ() {
        let key = ClusterKey::generate().unwrap();
        assert_ne!(seal(b"secret", &key).unwrap(), seal(b"secret", &key).unwrap());
    }

    #[test]
    fn a_key_survives_its_file_and_shows_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let key = ClusterKey::generate().unwrap();
        key.write(&path).unwrap();
        assert_eq!(ClusterKey::read(&path).unwrap().all(), key.all());
        assert_eq!(format!("{key:?}"), "ClusterKey(…)");
        let error = key.write(&path).unwrap_err().to_string();
        assert!(error.contains("exists"), "a key is never overwritten: {error}");
    }

    #[cfg(unix)]
    #[test]
    fn a_key_that_others_may_read_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        ClusterKey::generate().unwrap().write(&path).unwrap();
        for mode in [0o640, 0o604, 0o660] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = ClusterKey::read(&path).unwrap_err().to_string();
            assert!(error.contains(&format!("{mode:o}")) && error.contains("chmod 600"), "{error}");
        }
    }

    #[test]
    fn a_file_without_a_key_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let key = ClusterKey::generate().unwrap();
        let three = [&*"0".repeat(64), &"1".repeat(64), &"2".repeat(64)].join("\n");
        for content in ["", "abc", &"0".repeat(63), &"g".repeat(64), &"é".repeat(32), &"0".repeat(66), &three]
        {
            let _ = fs::remove_file(&path);
            key.write(&path).unwrap();
            fs::write(&path, content).unwrap();
            let error = ClusterKey::read(&path).unwrap_err().to_string();
            assert!(error.contains("64 hexadecimal digits"), "{content:?}: {error}");
        }
        assert!(ClusterKey::read(&folder.path().join("none")).is_err());
    }
}
