//! Kernels of our own: compiled by NVRTC for the card at hand, once a machine.
//!
//! What was compiled is kept in a cache folder under a name that is a hash of all that it depends on, so that a machine
//! with the same kind of card needs no compiler if it is given the file. A damaged file is compiled anew.

use crate::{Error, Result, error::During, libraries};
use cudarc::nvrtc::{result as nvrtc, sys};
use std::{
    ffi::{CStr, CString, c_char},
    fs,
    path::{Path, PathBuf},
};

/// Where compiled kernels are kept: `kernels` in `VOXELFLOW_CACHE`, else in `voxelflow` of the user's cache folder;
/// nowhere if the user has no home.
pub fn cache_folder() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let user = || set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    set("VOXELFLOW_CACHE").or_else(|| user().map(|c| c.join("voxelflow"))).map(|c| c.join("kernels"))
}

/// The name under which kernels are kept: of their source and of the options they are compiled with.
pub fn cache_key(source: &str, options: &[String]) -> String {
    let mut hasher = blake3::Hasher::new();
    for part in std::iter::once(source).chain(options.iter().map(String::as_str)) {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.finalize().to_hex()[..32].to_owned()
}

/// Options for a card of this compute capability: its own machine code, so that nothing is compiled on loading.
pub(crate) fn options((major, minor): (i32, i32)) -> Vec<String> {
    // Hopper's own instructions are in the variant with an `a`, which runs on Hopper alone.
    let variant = if major == 9 { "a" } else { "" };
    vec![format!("--gpu-architecture=sm_{major}{minor}{variant}"), "--std=c++17".into()]
}

/// Machine code of `source` for a card of this compute capability: from `folder`, or compiled and left there.
///
/// # Errors
/// No NVRTC on this machine, or a source that it does not take. A cache that cannot be read or written is no error.
pub(crate) fn compiled(source: &str, capability: (i32, i32), folder: Option<&Path>) -> Result<Vec<u8>> {
    let options = options(capability);
    let path = folder.map(|folder| folder.join(format!("{}.cubin", cache_key(source, &options))));
    if let Some(kept) = path.as_deref().and_then(read) {
        return Ok(kept);
    }
    let image = compile(source, &options)?;
    if let Some(path) = path.as_deref() {
        // If it cannot be kept, the next process compiles again.
        let _ = write(path, &image);
    }
    Ok(image)
}

/// A kept file: the hash of what follows, then the machine code.
fn read(path: &Path) -> Option<Vec<u8>> {
    let bytes = fs::read(path).ok()?;
    let (hash, image) = bytes.split_at_checked(blake3::OUT_LEN)?;
    (blake3::hash(image).as_bytes() == hash).then(|| image.to_vec())
}

fn write(path: &Path, image: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let temporary = folder.join(format!(
        ".{}.{}",
        std::process::id(),
        path.file_name().unwrap_or_default().to_string_lossy()
    ));
    fs::write(&temporary, [blake3::hash(image).as_bytes(), image].concat())?;
    fs::rename(&temporary, path)
}

/// A program of NVRTC, destroyed when it is left.
struct Program(sys::nvrtcProgram);

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: made by `create_program`, and destroyed only here.
        let _ = unsafe { nvrtc::destroy_program(self.0) };
    }
}

fn compile(source: &str, options: &[String]) -> Result<Vec<u8>> {
    libraries::find(libraries::Part::Nvrtc)?;
    let failed = |reason: String| Error::Compile { reason };
    let text = CString::new(source).map_err(|e| failed(e.to_string()))?;
    let program =
        Program(nvrtc::create_program(&text, Some(c"voxelflow.cu")).during("the kernels' compilation")?);
    // SAFETY: the program is alive, and so is its source.
    unsafe {
        if nvrtc::compile_program(program.0, options).is_err() {
            let log = nvrtc::get_program_log(program.0).unwrap_or_default();
            return Err(failed(text_of(&log)));
        }
        let mut size = 0;
        sys::nvrtcGetCUBINSize(program.0, &mut size).result().during("the kernels' compilation")?;
        let mut image = vec![0u8; size];
        sys::nvrtcGetCUBIN(program.0, image.as_mut_ptr().cast())
            .result()
            .during("the kernels' compilation")?;
        Ok(image)
    }
}

fn text_of(log: &[c_char]) -> String {
    if !log.contains(&0) {
        return "the compiler left no log".into();
    }
    // SAFETY: it ends in a zero.
    unsafe { CStr::from_ptr(log.as_ptr()) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_name_depends_on_source_and_options() {
        let options = options((9, 0));
        let key = cache_key("source", &options);
        assert_eq!(key, cache_key("source", &options));
        assert_eq!(key.len(), 32);
        assert_ne!(key, cache_key("another", &options));
        assert_ne!(key, cache_key("source", &super::options((8, 0))));
        // Where one part ends and the next begins counts.
        assert_ne!(cache_key("ab", &["c".into()]), cache_key("a", &["bc".into()]));
    }

    #[test]
    fn what_is_kept_comes_back_and_damage_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("inner").join("k.cubin");
        assert_eq!(read(&path), None);
        write(&path, b"machine code").unwrap();
        assert_eq!(read(&path).unwrap(), b"machine code");
        let mut bytes = fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&path, bytes).unwrap();
        assert_eq!(read(&path), None);
        fs::write(&path, b"short").unwrap();
        assert_eq!(read(&path), None);
    }

    #[test]
    fn a_kept_file_needs_no_compiler() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(format!("{}.cubin", cache_key("source", &options((9, 0)))));
        write(&path, b"machine code").unwrap();
        assert_eq!(compiled("source", (9, 0), Some(folder.path())).unwrap(), b"machine code");
    }
}
