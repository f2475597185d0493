//! Finding CUDA's libraries at run time, before the bindings would look for them and panic.
//!
//! The bindings open libraries by name, which finds what the system's loader knows. A toolkit often lies in a folder that
//! it does not know: a library of such a folder is opened here by its path, after which it is found by its name.

use crate::{Error, Result};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use std::{
    path::{Path, PathBuf},
    sync::Mutex,
};

/// A library of CUDA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The driver, which comes with the card's own software.
    Driver,
    /// The compiler of kernels.
    Nvrtc,
    /// Matrix products.
    Cublas,
    /// Matrix products with more to choose.
    CublasLt,
    /// Decompositions.
    Cusolver,
}

const TOOLKIT: &str = "install NVIDIA's CUDA toolkit 12 or 13, or set CUDA_PATH to where it is (its lib64 holds it), or use device => 'cpu'";

impl Part {
    fn name(self) -> &'static str {
        match self {
            Self::Driver => "libcuda",
            Self::Nvrtc => "libnvrtc",
            Self::Cublas => "libcublas",
            Self::CublasLt => "libcublasLt",
            Self::Cusolver => "libcusolver",
        }
    }

    fn advice(self) -> &'static str {
        match self {
            Self::Driver => "this machine has no NVIDIA driver; install it, or use device => 'cpu'",
            _ => TOOLKIT,
        }
    }

    /// What must be open for this one to open, and is in the same folder.
    fn needs(self) -> &'static [&'static str] {
        match self {
            Self::Driver | Self::Nvrtc | Self::CublasLt => &[],
            Self::Cublas => &["libcublasLt"],
            Self::Cusolver => &["libcublasLt", "libcublas", "libnvJitLink", "libcusparse"],
        }
    }

    /// True if the bindings will find it.
    fn is_known(self) -> bool {
        // SAFETY: opening one of NVIDIA's libraries runs its initialisation only.
        unsafe {
            match self {
                Self::Driver => cudarc::driver::sys::is_culib_present(),
                Self::Nvrtc => cudarc::nvrtc::sys::is_culib_present(),
                Self::Cublas => cudarc::cublas::sys::is_culib_present(),
                Self::CublasLt => cudarc::cublaslt::sys::is_culib_present(),
                Self::Cusolver => cudarc::cusolver::sys::is_culib_present(),
            }
        }
    }
}

/// Makes sure that the bindings will find `part`: to be called before any other use of it, or they panic.
///
/// # Errors
/// [`Error::Library`] if it is not on this machine.
pub fn find(part: Part) -> Result<()> {
    static LOCK: Mutex<()> = Mutex::new(());
    let _one_at_a_time = LOCK.lock();
    if part.is_known() {
        return Ok(());
    }
    for folder in folders() {
        part.needs().iter().for_each(|name| {
            open_newest(&folder, name);
        });
        if open_newest(&folder, part.name()) && part.is_known() {
            return Ok(());
        }
    }
    Err(Error::Library { library: part.name(), advice: part.advice() })
}

/// Where toolkits lie that the loader does not know.
fn folders() -> Vec<PathBuf> {
    let of_variables = ["CUDA_PATH", "CUDA_HOME", "CUDA_ROOT"].into_iter().filter_map(std::env::var_os);
    let roots =
        of_variables.map(PathBuf::from).chain([PathBuf::from("/usr/local/cuda"), PathBuf::from("/opt/cuda")]);
    roots
        .flat_map(|root| ["lib64", "lib", "targets/x86_64-linux/lib"].map(|inner| root.join(inner)))
        .collect()
}

/// Opens the newest `name.so.*` of `folder` for the rest of the process; false if there is none that opens.
fn open_newest(folder: &Path, name: &str) -> bool {
    let Ok(entries) = std::fs::read_dir(folder) else { return false };
    let start = format!("{name}.so");
    let names = entries.flatten().map(|entry| entry.path());
    let mut paths: Vec<PathBuf> =
        names.filter(|p| p.file_name().is_some_and(|f| f.to_string_lossy().starts_with(&start))).collect();
    paths.sort();
    paths.iter().rev().any(|path| {
        // SAFETY: as in `Part::is_known`; it is never closed, so that what was found in it stays valid.
        let opened = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) };
        opened.map(std::mem::forget).is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_without_the_library_opens_nothing() {
        assert!(!open_newest(Path::new("/nowhere/at/all"), "libcuda"));
        let own = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert!(!open_newest(own, "libcublas"));
    }

    #[test]
    fn what_is_missing_is_named_with_what_to_do() {
        let e = Error::Library { library: Part::Cublas.name(), advice: Part::Cublas.advice() };
        assert!(
            e.is_input() && e.to_string().contains("libcublas") && e.to_string().contains("CUDA_PATH"),
            "{e}"
        );
        if !Part::Driver.is_known() {
            assert_eq!(
                find(Part::Driver),
                Err(Error::Library { library: "libcuda", advice: Part::Driver.advice() })
            );
        }
    }
}
