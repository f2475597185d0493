//! The command line as typed. What it means is decided in `command/`, one file a subcommand.

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// From scanner derivatives to trained model, maps and report.
#[derive(Debug, Parser)]
#[command(name = "voxelflow", version, about, propagate_version = true)]
pub struct Flags {
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
    /// Progress and results as JSON lines, for machines.
    #[arg(long, global = true)]
    pub json: bool,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a pipeline file.
    Run(RunFlags),
    /// Show the plan of every statement of a pipeline file; nothing runs.
    Plan(FileFlags),
    /// Check a pipeline file: syntax, names, types; no data is read beyond headers.
    Check(FileFlags),
    /// Run one statement and print its rows.
    Sql(SqlFlags),
    /// Say what a file is: shape, repetition time, affine, faults found.
    Inspect(InspectFlags),
    /// Make data with planted truth.
    Synth(SynthFlags),
    /// Print shell completions.
    Completions {
        /// The shell to complete for.
        shell: clap_complete::Shell,
    },
    /// Print the manual page in roff.
    Man,
}

/// A pipeline file and its variables.
#[derive(Debug, Args)]
pub struct FileFlags {
    /// The pipeline file.
    pub file: PathBuf,
    /// Value of `$name` in the file.
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = assignment)]
    pub set: Vec<(String, String)>,
    /// Folder of everything that is written.
    #[arg(long, default_value = "voxelflow-out")]
    pub out: PathBuf,
    /// Memory for sorts, joins and imports, in MiB.
    #[arg(long, default_value_t = 1024)]
    pub memory_mib: usize,
}

/// Flags of `run`.
#[derive(Debug, Args)]
pub struct RunFlags {
    /// What to run.
    #[command(flatten)]
    pub file: FileFlags,
    /// Run every statement, also those that have not changed.
    #[arg(long)]
    pub fresh: bool,
}

/// Flags of `sql`.
#[derive(Debug, Args)]
pub struct SqlFlags {
    /// The statement. Files can be named directly: SELECT * FROM 'series.parquet'.
    pub statement: String,
    /// How to print the rows.
    #[arg(long, value_enum, default_value_t = RowFormat::Table)]
    pub format: RowFormat,
    /// Where to write the rows (needed for parquet).
    #[arg(long)]
    pub output: Option<PathBuf>,
}

/// How rows are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RowFormat {
    /// A table for the terminal.
    Table,
    /// Comma-separated values.
    Csv,
    /// JSON lines.
    Json,
    /// A Parquet file at `--output`.
    Parquet,
}

/// Flags of `inspect`.
#[derive(Debug, Args)]
pub struct InspectFlags {
    /// NIfTI image, Parquet file or folder, or model folder.
    pub path: PathBuf,
}

/// Flags of `synth`.
#[derive(Debug, Args)]
pub struct SynthFlags {
    /// What to make.
    #[command(subcommand)]
    pub what: SynthWhat,
}

/// What can be made.
#[derive(Debug, Subcommand)]
pub enum SynthWhat {
    /// HCP-shaped motor-task series with six planted regressors.
    Hcp(HcpFlags),
}

/// Flags of `synth hcp`.
#[derive(Debug, Args)]
pub struct HcpFlags {
    /// Number of subjects.
    #[arg(long, default_value_t = 4)]
    pub subjects: usize,
    /// Voxels of each subject.
    #[arg(long, default_value_t = 20_000)]
    pub voxels: usize,
    /// Volumes of each run.
    #[arg(long, default_value_t = 284)]
    pub time_points: usize,
    /// Seed of everything random.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Standard deviation of the planted signal over that of the noise.
    #[arg(long, default_value_t = 0.5)]
    pub snr: f64,
    /// Folder to write to.
    #[arg(long)]
    pub out: PathBuf,
}

fn assignment(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("`{text}` is not NAME=VALUE"))?;
    if name.is_empty() || !name.chars().all(|c| c.is_alphanumeric() || c == '_') {
        return Err(format!("`{name}` is not a variable name: letters, digits and _ only"));
    }
    Ok((name.to_owned(), value.to_owned()))
}
