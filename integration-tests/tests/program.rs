//! Runs the real programs as processes, from the repository's root.

use std::{
    io::{Read, Seek},
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::OnceLock,
};

/// The repository's root: example pipelines name their data relative to it.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// The larger real data, or `None` (said aloud) where they are absent. In CI their absence is a failure.
pub fn larger_data() -> Option<PathBuf> {
    let folder =
        std::env::var_os("VOXELFLOW_DATA").map_or_else(|| root().join("../shared/data"), PathBuf::from);
    if folder.is_dir() {
        return Some(folder);
    }
    assert!(
        std::env::var_os("CI").is_none(),
        "CI needs the larger data; VOXELFLOW_DATA is {}",
        folder.display()
    );
    println!("skipped: no larger data at {}", folder.display());
    None
}

/// The folder that this test was built into, which holds the programs too. They are built once, by the same
/// cargo with the same profile; where the tests have just been built there is nothing to do.
///
/// What cargo tells a test about its package is not passed on: build scripts read the same names for theirs, and
/// one that finds others there (ring's) runs again, with everything that depends on it.
fn programs() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        build.args(["build", "--bins", "--locked"]).current_dir(root());
        for (name, _) in std::env::vars_os() {
            if ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|of| name.to_string_lossy().starts_with(of)) {
                build.env_remove(name);
            }
        }
        let build = build.output().unwrap();
        assert!(build.status.success(), "{}", String::from_utf8_lossy(&build.stderr));
        std::env::current_exe().unwrap().ancestors().nth(2).unwrap().to_owned()
    })
}

/// A program of the workspace, to be started in the repository's root.
pub fn program(name: &str) -> Command {
    let mut command = Command::new(programs().join(name));
    command.current_dir(root()).env_remove("VOXELFLOW_OUT");
    command
}

/// What a process said and how it ended.
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Ended {
    /// Fails with everything that was said unless the process ended with `code`.
    #[track_caller]
    pub fn expect_code(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }
}

/// `voxelflow` with these arguments.
pub fn voxelflow<S: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = S>) -> Ended {
    program("voxelflow").args(arguments).output().unwrap().into()
}

/// Runs a process to its end and gives its peak resident memory in MiB, by the kernel's own account of it.
///
/// What a parent learns of a child's peak when it has ended counts the parent's own memory, which the child had before it became
/// another program: so the account is looked at while it runs.
pub fn with_peak_memory(mut command: Command) -> (Ended, u64) {
    // Output goes to files: a pipe that nobody empties would stop the process.
    let (stdout, stderr) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
    command.stdout(stdout.try_clone().unwrap()).stderr(stderr.try_clone().unwrap());
    let mut child = command.spawn().unwrap();
    let account = format!("/proc/{}/status", child.id());
    let mut peak_kib = 0;
    let status = loop {
        let text = std::fs::read_to_string(&account).unwrap_or_default();
        let peak = text
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse().ok());
        peak_kib = peak_kib.max(peak.unwrap_or(0));
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    };
    let text = |mut file: std::fs::File| {
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        text
    };
    let ended = Ended { code: status.code(), stdout: text(stdout), stderr: text(stderr) };
    (ended, peak_kib >> 10)
}

/// Runs a pipeline text into `out`.
pub fn run_text(text: &str, out: &Path) -> Ended {
    let file = tempfile::Builder::new().suffix(".vf").tempfile().unwrap();
    std::fs::write(file.path(), text).unwrap();
    voxelflow(["run".as_ref(), file.path().as_os_str(), "--out".as_ref(), out.as_os_str()])
}

/// All files below a folder, relative to it, sorted.
pub fn files_below(folder: &Path) -> Vec<String> {
    fn collect(folder: &Path, root: &Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                collect(&path, root, found);
            } else {
                found.push(path.strip_prefix(root).unwrap().display().to_string());
            }
        }
    }
    let mut found = Vec::new();
    collect(folder, folder, &mut found);
    found.sort();
    found
}
