//! Real servers for tests, on loopback, by the scripts of `integration-tests/servers`: each is started once for a
//! test program, on first use, and ends with it, however it ends, for its standard input ends then.
//!
//! Where `CI` is set a server that cannot start fails the test; elsewhere it is said what is skipped.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock};

/// The key that the S3 server knows.
pub const ACCESS_KEY: &str = "voxelflow";
/// The secret that belongs to it: a text that is found again wherever it slips out.
pub const SECRET_KEY: &str = "a+secret/that+nobody/shows=";

/// SeaweedFS. It has the bucket `tests`, and `public`, which all may read.
#[derive(Debug)]
pub struct S3Server {
    /// Of S3.
    pub endpoint: String,
    /// Under which the same objects are plain files: `{files}/buckets/{bucket}/{key}`.
    pub files: String,
}

/// One name node and one data node.
#[derive(Debug)]
pub struct HdfsServer {
    /// `hdfs://host:port`.
    pub url: String,
}

/// The S3 server of this test program, if it can be started.
pub fn s3() -> Option<&'static S3Server> {
    static SERVER: OnceLock<Option<S3Server>> = OnceLock::new();
    let make = || {
        let [endpoint, files] = start("s3.sh")?.try_into().ok()?;
        Some(S3Server { endpoint, files })
    };
    SERVER.get_or_init(make).as_ref()
}

/// The HDFS of this test program, if it can be started.
pub fn hdfs() -> Option<&'static HdfsServer> {
    static SERVER: OnceLock<Option<HdfsServer>> = OnceLock::new();
    let make = || {
        let [url] = start("hdfs.sh")?.try_into().ok()?;
        Some(HdfsServer { url })
    };
    SERVER.get_or_init(make).as_ref()
}

/// What the script says when its server is ready.
fn start(script: &str) -> Option<Vec<String>> {
    match ready(&folder().join(script)) {
        Ok(addresses) => Some(addresses),
        Err(why) => {
            let text = format!("{script} cannot start its server: {why}");
            assert!(std::env::var_os("CI").is_none(), "{text}");
            // Not by a macro, whose output the test harness would keep to itself.
            let _ = writeln!(std::io::stderr(), "\nSKIPPED what needs it: {text}\n");
            None
        }
    }
}

fn ready(script: &Path) -> Result<Vec<String>, String> {
    // Servers live as long as the pipes to their scripts, and those as long as this program.
    static RUNNING: Mutex<Vec<Child>> = Mutex::new(Vec::new());
    let mut child = Command::new(script)
        .arg("serve")
        .env("VOXELFLOW_TEST_SECRET", SECRET_KEY)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| e.to_string())?;
    let output = child.stdout.take().ok_or("it has no output")?;
    let mut line = String::new();
    // The script ends by itself when its server does not come up.
    BufReader::new(output).read_line(&mut line).map_err(|e| e.to_string())?;
    let addresses = line.strip_prefix("ready ").ok_or("it ended without being ready; its words are above")?;
    RUNNING.lock().map_err(|e| e.to_string())?.push(child);
    Ok(addresses.split_whitespace().map(Into::into).collect())
}

/// `integration-tests/servers`, from whichever crate uses this module.
fn folder() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = here.ancestors().map(|folder| folder.join("integration-tests/servers"));
    folders.into_iter().find(|folder| folder.is_dir()).unwrap_or_default()
}
