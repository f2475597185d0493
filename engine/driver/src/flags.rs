//! The command line as typed. What it means is decided in `command/`, one file a subcommand.

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
};
use voxelflow_cluster::EXECUTOR_TIMEOUT;
use voxelflow_tables::ByteSize;

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
    Check(CheckFlags),
    /// Run one statement and print its rows.
    Sql(SqlFlags),
    /// Say what a file is: shape, repetition time, affine, faults found.
    Inspect(InspectFlags),
    /// Make data with planted truth.
    Synth(SynthFlags),
    /// Compile what an NVIDIA card needs, so that training on it begins at once.
    WarmUp(WarmUpFlags),
    /// Run the scheduler of a cluster: it gives out the work.
    Scheduler(SchedulerFlags),
    /// Run an executor of a cluster: it does the work.
    Executor(ExecutorFlags),
    /// Run the agent of this machine: it runs driver programs' own schedulers and executors.
    Node(NodeFlags),
    /// List the jobs of a cluster.
    Jobs(JobsFlags),
    /// Show what the tasks of a job wrote to their logs.
    Logs(LogsFlags),
    /// Say which stages of a job wait for room, and why.
    WhyWaiting(JobFlags),
    /// End a job.
    Cancel(JobFlags),
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
    /// What it may take.
    #[command(flatten)]
    pub memory: MemoryFlags,
}

/// Flags of `check`.
#[derive(Debug, Args)]
pub struct CheckFlags {
    /// What to check.
    #[command(flatten)]
    pub file: FileFlags,
    /// The cluster that the file is to run on, as `run` takes it. It is not asked; cards are then the cluster's, and not
    /// looked for on this machine.
    #[arg(long, value_name = "URL")]
    pub cluster: Option<String>,
}

/// The memory of a session.
#[derive(Clone, Copy, Debug, Args)]
pub struct MemoryFlags {
    /// Memory that the process should need, for example 1.5GB or 800MB: sorts, joins and images that are read take their
    /// shares of it and go on in temporary files where these end.
    #[arg(long, value_name = "SIZE", default_value = "1.5GB")]
    pub memory: ByteSize,
}

impl MemoryFlags {
    /// In bytes.
    pub fn bytes(self) -> usize {
        self.memory.0
    }
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
    /// Keep the results of unchanged statements that another build of the program made, instead of running them again.
    #[arg(long, conflicts_with = "fresh")]
    pub keep_results: bool,
    /// Where it runs.
    #[command(flatten)]
    pub cluster: ClusterFlags,
}

/// Where plans run: in this process, unless told otherwise.
#[derive(Clone, Debug, Default, Args)]
pub struct ClusterFlags {
    /// Run on the cluster of this scheduler, for example df://host:50050, or on the machines of these agents, for
    /// example nodes://host:50070,host:50070.
    #[arg(long, value_name = "URL", conflicts_with = "executors")]
    pub cluster: Option<String>,
    /// Run on a cluster of so many executors that is started on this machine for this run; they share its cores.
    #[arg(long, value_name = "N")]
    pub executors: Option<usize>,
    /// Tasks that each of these executors runs at once; as many as the machine has cores if not given.
    #[arg(long, value_name = "N", requires = "executors")]
    pub slots: Option<usize>,
    /// File of the cluster's key: a cluster serves only those who have it.
    #[arg(long, value_name = "FILE", requires = "cluster")]
    pub cluster_key: Option<PathBuf>,
}

/// Where a part of a cluster listens, and who may reach it.
#[derive(Debug, Args)]
pub struct ReachFlags {
    /// Address to bind to.
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    pub bind: IpAddr,
    /// Name or address under which the others reach it, if not the one it is bound to.
    #[arg(long)]
    pub external_host: Option<String>,
    /// Bind also where strangers may reach it; only who has the cluster's key is answered.
    #[arg(long)]
    pub public: bool,
    /// File of the cluster's key, which all its parts and its users have: 64 hexadecimal digits, as `openssl rand -hex
    /// 32` writes. While the key is being changed, two lines: the key to use, then the other one that is accepted.
    #[arg(long, value_name = "FILE")]
    pub cluster_key: PathBuf,
    /// Say on the standard output when it is ready, and end with the standard input.
    #[arg(long, hide = true)]
    pub child: bool,
}

/// Flags of `scheduler`.
#[derive(Debug, Args)]
pub struct SchedulerFlags {
    /// Who reaches it, and how.
    #[command(flatten)]
    pub reach: ReachFlags,
    /// Port to bind to; 0: one that is free.
    #[arg(long, default_value_t = 50050)]
    pub port: u16,
    /// Seconds of silence after which an executor counts as lost.
    #[arg(long, value_name = "SECONDS", default_value_t = EXECUTOR_TIMEOUT.as_secs(), value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub executor_timeout: u64,
    /// Share of a queue, against 1 of the others.
    #[arg(long = "weight", value_name = "QUEUE=SHARE", value_parser = weight)]
    pub weights: Vec<(String, u32)>,
}

/// Flags of `executor`.
#[derive(Debug, Args)]
pub struct ExecutorFlags {
    /// The scheduler, for example df://host:50050.
    #[arg(long, value_name = "URL")]
    pub scheduler: String,
    /// Who reaches it, and how.
    #[command(flatten)]
    pub reach: ReachFlags,
    /// Port at which others fetch rows; 0: one that is free.
    #[arg(long, default_value_t = 0)]
    pub port: u16,
    /// Tasks that it runs at once; as many as the machine has cores if not given.
    #[arg(long)]
    pub slots: Option<usize>,
    /// Memory that it gives to tasks, in MiB.
    #[arg(long, default_value_t = 1024)]
    pub memory_mib: u64,
    /// Accelerator cards that it has.
    #[arg(long, default_value_t = 0)]
    pub cards: u32,
    /// Its pool, for jobs that ask for one.
    #[arg(long, default_value = "cpu")]
    pub pool: String,
    /// Folder for rows that pass between stages.
    #[arg(long, default_value = "voxelflow-work")]
    pub work_dir: PathBuf,
}

/// Flags of `node`.
#[derive(Debug, Args)]
pub struct NodeFlags {
    /// Where it listens for driver programs: the machine's own address, under which what it starts is reached too.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:50070")]
    pub listen: SocketAddr,
    /// Cores that it may give to applications; all of the machine if not given.
    #[arg(long)]
    pub cores: Option<usize>,
    /// Memory that it may give to applications, in MiB; three quarters of the machine's, or of its container's, if not given.
    #[arg(long)]
    pub memory_mib: Option<usize>,
    /// Accelerator cards that it may give to applications.
    #[arg(long, default_value_t = 0)]
    pub cards: usize,
    /// File of the key that all parts of the cluster share; who has it may run programs here.
    #[arg(long, value_name = "FILE")]
    pub cluster_key: PathBuf,
    /// Folder or URL where programs are kept by their hash, for the agents of all machines.
    #[arg(long, value_name = "FOLDER|URL")]
    pub store: Option<String>,
    /// Folder for programs and for rows that pass between stages.
    #[arg(long, default_value = "voxelflow-node")]
    pub work_dir: PathBuf,
    /// Seconds that an application lives on when its driver cannot be reached.
    #[arg(long, default_value_t = 10)]
    pub grace_seconds: u64,
    /// Listen also where strangers may reach it, and what it starts; only who has the key is answered.
    #[arg(long)]
    pub public: bool,
}

/// What a driver program answers to when it is started as a part of a cluster: its functions live in its own binary.
#[derive(Debug, Parser)]
pub struct PartFlags {
    /// The part.
    #[command(subcommand)]
    pub part: Part,
}

/// Parts of a cluster.
#[derive(Debug, Subcommand)]
pub enum Part {
    /// The scheduler.
    Scheduler(SchedulerFlags),
    /// An executor.
    Executor(ExecutorFlags),
}

/// A cluster that is asked something.
#[derive(Clone, Debug, Args)]
pub struct ControlFlags {
    /// The cluster's scheduler, for example df://host:50050.
    #[arg(long, value_name = "URL")]
    pub cluster: String,
    /// File of the cluster's key.
    #[arg(long, value_name = "FILE")]
    pub cluster_key: PathBuf,
}

/// Flags of `jobs`.
#[derive(Debug, Args)]
pub struct JobsFlags {
    /// Whom to ask.
    #[command(flatten)]
    pub control: ControlFlags,
    /// List the executors instead.
    #[arg(long)]
    pub list_executors: bool,
}

/// Flags of `logs`.
#[derive(Debug, Args)]
pub struct LogsFlags {
    /// The job's id, as `jobs` shows it.
    pub job: String,
    /// Whom to ask.
    #[command(flatten)]
    pub control: ControlFlags,
    /// The last lines only.
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub last: usize,
    /// Go on with lines that come, until the job ends.
    #[arg(long)]
    pub follow: bool,
}

/// Flags of `cancel` and `why-waiting`.
#[derive(Debug, Args)]
pub struct JobFlags {
    /// The job's id, as `jobs` shows it.
    pub job: String,
    /// Whom to ask.
    #[command(flatten)]
    pub control: ControlFlags,
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
    /// Folder that a pipeline file was run into: the table `ledger` is what it left out, filled or found odd.
    #[arg(long)]
    pub out: Option<PathBuf>,
    /// What it may take.
    #[command(flatten)]
    pub memory: MemoryFlags,
    /// Where it runs.
    #[command(flatten)]
    pub cluster: ClusterFlags,
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
    /// NIfTI image, Parquet file or folder, model folder, or a folder (also a URL) of BIDS derivatives or of the HCP
    /// pipelines.
    pub path: PathBuf,
    /// The raw dataset (a folder or a URL) of BIDS derivatives, where events and more sidecars lie.
    #[arg(long, value_name = "FOLDER|URL")]
    pub raw: Option<PathBuf>,
}

/// Flags of `warm-up`.
#[derive(Debug, Args)]
pub struct WarmUpFlags {
    /// The card, or several: cuda:0,1.
    #[arg(long, default_value = "cuda:0")]
    pub device: String,
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
    /// HCP-shaped motor-task series with six planted regressors, as Parquet.
    Hcp(HcpFlags),
    /// One BOLD image with the same regressors, by default of the size of a resting run of the HCP.
    Bold(BoldFlags),
}

/// Flags of `synth bold`.
#[derive(Debug, Args)]
pub struct BoldFlags {
    /// Voxels along i, j, k.
    #[arg(long, value_name = "NI,NJ,NK", default_value = "91,109,91", value_parser = shape)]
    pub shape: [usize; 3],
    /// Volumes of the run.
    #[arg(long, default_value_t = 1200)]
    pub volumes: usize,
    /// Seconds between volumes.
    #[arg(long, default_value_t = 0.72)]
    pub t_r: f64,
    /// Seed of everything random.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Standard deviation of the planted signal over that of the noise.
    #[arg(long, default_value_t = 0.5)]
    pub snr: f64,
    /// File to write, `.nii` or `.nii.gz`; its sidecar is written beside it.
    #[arg(long)]
    pub out: PathBuf,
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

fn shape(text: &str) -> Result<[usize; 3], String> {
    let lengths: Option<Vec<usize>> = text.split(',').map(|n| n.trim().parse().ok()).collect();
    let shape = lengths.and_then(|lengths| <[usize; 3]>::try_from(lengths).ok());
    shape.ok_or_else(|| format!("`{text}` is no shape: give three whole numbers, for example 91,109,91"))
}

fn weight(text: &str) -> Result<(String, u32), String> {
    let (queue, share) = text.split_once('=').ok_or_else(|| format!("`{text}` is not QUEUE=SHARE"))?;
    match share.parse() {
        Ok(share @ 1..) => Ok((queue.to_owned(), share)),
        _ => Err(format!("`{share}` is no share: give a whole number, 1 or more")),
    }
}
