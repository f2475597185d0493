//! DuckDB, which answers the same questions in a process of its own.

use crate::answer::Answer;
use serde::Deserialize;
use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};
use voxelflow::{Error, Result};

/// The process. It ends with this.
pub struct DuckDb {
    child: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

#[derive(Deserialize)]
struct Said {
    rows: Option<Vec<Vec<String>>>,
    error: Option<String>,
}

impl DuckDb {
    /// DuckDB, if it can be had; in CI it must.
    pub fn start() -> Result<Option<Self>> {
        match Self::started() {
            Ok(duckdb) => Ok(Some(duckdb)),
            Err(e) if std::env::var_os("CI").is_some() => Err(e),
            Err(e) => {
                println!("SKIPPED: nothing is compared with DuckDB, which cannot be had: {e}");
                Ok(None)
            }
        }
    }

    fn started() -> Result<Self> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("servers/duckdb.sh");
        let failed = |e: &dyn std::fmt::Display| Error::input(script.display(), e);
        let mut command = Command::new(&script);
        command.arg("serve").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|e| failed(&e))?;
        let (Some(questions), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(failed(&"it has no pipes"));
        };
        let mut duckdb = Self { child, questions, answers: BufReader::new(answers) };
        duckdb.set_up(&[])?;
        Ok(duckdb)
    }

    fn ask(&mut self, question: &serde_json::Value) -> Result<Answer> {
        let failed = |e: &dyn std::fmt::Display| Error::input("duckdb", e);
        writeln!(self.questions, "{question}").map_err(|e| failed(&e))?;
        let mut line = String::new();
        self.answers.read_line(&mut line).map_err(|e| failed(&e))?;
        let said: Said = serde_json::from_str(&line).map_err(|e| failed(&format!("`{line}`: {e}")))?;
        Ok(match said.error {
            Some(error) => Err(error),
            None => Ok(said.rows.unwrap_or_default()),
        })
    }

    /// Runs `statements`.
    pub fn set_up(&mut self, statements: &[String]) -> Result<()> {
        match self.ask(&serde_json::json!({ "setup": statements }))? {
            Ok(_) => Ok(()),
            Err(e) => Err(Error::input("duckdb", e)),
        }
    }

    /// The answer to `query`.
    pub fn query(&mut self, query: &str) -> Result<Answer> {
        self.ask(&serde_json::json!({ "query": query }))
    }
}

impl Drop for DuckDb {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
