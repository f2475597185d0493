//! Which build a process is: functions are known by name, so only processes of one build mean the same by them.

use crate::error::{Error, Result};
use std::{
    env,
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::OnceLock,
};

/// The running image itself, also when its file was replaced since.
const RUNNING_IMAGE: &str = "/proc/self/exe";

/// The BLAKE3 hash of the running executable, 64 hexadecimal digits. Read once a process.
///
/// # Errors
/// An executable that cannot be read.
pub fn build_id() -> Result<&'static str> {
    static ID: OnceLock<String> = OnceLock::new();
    if let Some(known) = ID.get() {
        return Ok(known);
    }
    let path = match File::open(RUNNING_IMAGE) {
        Ok(_) => PathBuf::from(RUNNING_IMAGE),
        Err(_) => env::current_exe().map_err(|e| Error::target("the running program", e))?,
    };
    let id =
        hash_of(&path).map_err(|e| Error::target(path.display(), format!("the running program: {e}")))?;
    Ok(ID.get_or_init(|| id))
}

fn hash_of(path: &Path) -> io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(File::open(path)?)?;
    Ok(hasher.finalize().to_hex().to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn the_id_is_the_hash_of_the_program() {
        let bytes = std::fs::read(env::current_exe().unwrap()).unwrap();
        assert_eq!(build_id().unwrap(), blake3::hash(&bytes).to_hex().as_str());
    }
}
