//! The log of a process: lines for people on standard error, and the last ones kept, so that the first cause of
//! a failure can be told together with what came before it.
//!
//! ```text
//!   log::warn!(…) ──► Logger ──┬─► standard error, what VOXELFLOW_LOG lets through
//!      in a task's scope       └─► ring of the last lines ──► log_tail, lines_after (sent to the scheduler)
//! ```
//!
//! `VOXELFLOW_LOG` is a level, or levels by module: `warn`, `info,ballista_scheduler=debug`. The ring has what
//! standard error has, and also what our own crates say at `info`. Secrets are taken out before a line goes
//! anywhere: values of environment variables that are named as secrets, and what was given to [`keep_secret`].

use datafusion::execution::TaskContext;
use log::{Level, LevelFilter, Log, Metadata, Record};
use serde::{Deserialize, Serialize};
use std::{
    cell::RefCell,
    collections::VecDeque,
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    task::{Context, Poll},
    time::{SystemTime, UNIX_EPOCH},
};
use tokio::sync::Notify;

/// The environment variable that says what is written to standard error.
pub const LOG_VARIABLE: &str = "VOXELFLOW_LOG";

/// Lines that are kept.
const KEPT: usize = 4096;

/// Bytes of a line that are kept.
const LINE_BYTES: usize = 4096;

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// Milliseconds since 1970.
    pub time_ms: u64,
    /// `ERROR`, `WARN`, `INFO`, `DEBUG` or `TRACE`.
    pub level: String,
    /// The module that wrote it.
    pub target: String,
    /// The task that was at work, `job/stage/task`; empty outside of tasks.
    pub task: String,
    /// What it says.
    pub text: String,
}

impl LogLine {
    /// The job whose task wrote the line; empty outside of tasks.
    pub fn job(&self) -> &str {
        self.task.split('/').next().unwrap_or_default()
    }
}

impl fmt::Display for LogLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { time_ms, level, target, task, text } = self;
        write!(f, "{} {level:5} {target}", utc(*time_ms))?;
        if !task.is_empty() {
            write!(f, " [{task}]")?;
        }
        write!(f, " {text}")
    }
}

/// Starts the log of this process, once; panics are written to it too. What `VOXELFLOW_LOG` says is taken, or
/// `warn`.
pub fn start_log() {
    let levels = std::env::var(LOG_VARIABLE).unwrap_or_default();
    let logger = LOGGER.get_or_init(|| Logger::new(&levels, environment_secrets(std::env::vars_os())));
    if log::set_logger(logger).is_ok() {
        log::set_max_level(logger.shown.most().max(logger.kept.most()));
        std::panic::set_hook(Box::new(|info| log::error!(target: "voxelflow::panic", "{info}")));
    }
}

/// Takes `secret` out of every line from now on.
pub fn keep_secret(secret: &str) {
    if secret.len() >= SHORTEST_SECRET
        && let Some(logger) = LOGGER.get()
    {
        lock(&logger.secrets).push(secret.to_owned());
    }
}

/// The last `n` lines that belong to `task` or a part of it: `job`, or `job/stage/task`. All tasks if empty.
pub fn log_tail(task: &str, n: usize) -> Vec<LogLine> {
    let Some(logger) = LOGGER.get() else { return Vec::new() };
    let ring = lock(&logger.ring);
    let mut tail: Vec<_> =
        ring.lines.iter().rev().filter(|line| is_of(line, task)).take(n).cloned().collect();
    tail.reverse();
    tail
}

/// Lines from number `from` on, and the number that the next line will have. Lines that are not kept any more
/// are left out.
pub fn lines_after(from: u64) -> (Vec<LogLine>, u64) {
    let Some(logger) = LOGGER.get() else { return (Vec::new(), from) };
    let ring = lock(&logger.ring);
    let first = ring.next - ring.lines.len() as u64;
    let skip = usize::try_from(from.saturating_sub(first)).unwrap_or(usize::MAX);
    (ring.lines.iter().skip(skip).cloned().collect(), ring.next)
}

/// Waits until there is a line with number `from`.
pub async fn line_after(from: u64) {
    let Some(logger) = LOGGER.get() else { return std::future::pending().await };
    loop {
        let written = logger.written.notified();
        if lock(&logger.ring).next > from {
            return;
        }
        written.await;
    }
}

/// Runs `work` as part of `task`, `job/stage/task`: lines that it writes on this thread are the task's.
pub fn in_task<T>(task: &Arc<str>, work: impl FnOnce() -> T) -> T {
    let _restore = Restore(CURRENT.with(|c| c.replace(Some(Arc::clone(task)))));
    work()
}

/// The task that is at work on this thread.
pub fn current_task() -> Option<Arc<str>> {
    CURRENT.with(|c| c.borrow().clone())
}

/// The task that a plan runs in, as Ballista names it; none outside of clusters.
pub fn task_of(context: &TaskContext) -> Option<Arc<str>> {
    let id = context.task_id()?;
    Some(id.strip_prefix("TID ").unwrap_or(&id).into())
}

/// As [`in_task`], for a future; what it spawns is not part of it.
pub fn task_scope<F: Future>(task: Arc<str>, future: F) -> TaskScope<F> {
    TaskScope { task, future: Box::pin(future) }
}

/// A future that runs as part of a task; see [`task_scope`].
pub struct TaskScope<F> {
    task: Arc<str>,
    future: Pin<Box<F>>,
}

impl<F> fmt::Debug for TaskScope<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TaskScope").field(&self.task).finish()
    }
}

impl<F: Future> Future for TaskScope<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let Self { task, future } = self.get_mut();
        in_task(task, || future.as_mut().poll(context))
    }
}

thread_local! {
    static CURRENT: RefCell<Option<Arc<str>>> = const { RefCell::new(None) };
}

/// Puts the outer task back, also when the work unwinds.
struct Restore(Option<Arc<str>>);

impl Drop for Restore {
    fn drop(&mut self) {
        let outer = self.0.take();
        CURRENT.with(|c| *c.borrow_mut() = outer);
    }
}

static LOGGER: OnceLock<Logger> = OnceLock::new();

struct Logger {
    /// What standard error gets.
    shown: Levels,
    /// What is kept beside that.
    kept: Levels,
    secrets: Mutex<Vec<String>>,
    ring: Mutex<Ring>,
    written: Notify,
}

#[derive(Default)]
struct Ring {
    lines: VecDeque<LogLine>,
    /// Lines ever written.
    next: u64,
}

impl Logger {
    fn new(levels: &str, secrets: Vec<String>) -> Self {
        Self {
            shown: Levels::parse(levels),
            kept: Levels::parse("warn,voxelflow=info"),
            secrets: Mutex::new(secrets),
            ring: Mutex::default(),
            written: Notify::new(),
        }
    }

    /// The line of `record`, without secrets, not longer than a line is kept.
    fn line(&self, record: &Record<'_>) -> LogLine {
        let mut text = record.args().to_string();
        for secret in lock(&self.secrets).iter() {
            if text.contains(secret.as_str()) {
                text = text.replace(secret.as_str(), "[secret]");
            }
        }
        if text.len() > LINE_BYTES {
            let end = (0..=LINE_BYTES).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
            text.truncate(end);
            text.push('…');
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        LogLine {
            time_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
            level: record.level().to_string(),
            target: record.target().to_owned(),
            task: CURRENT
                .try_with(|c| c.borrow().as_deref().unwrap_or_default().to_owned())
                .unwrap_or_default(),
            text,
        }
    }
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let (target, level) = (metadata.target(), metadata.level());
        self.shown.lets(target, level) || self.kept.lets(target, level)
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let line = self.line(record);
        if self.shown.lets(record.target(), record.level()) {
            eprintln!("{line}");
        }
        let mut ring = lock(&self.ring);
        if ring.lines.len() == KEPT {
            ring.lines.pop_front();
        }
        ring.lines.push_back(line);
        ring.next += 1;
        drop(ring);
        self.written.notify_waiters();
    }

    fn flush(&self) {}
}

/// Levels by module: the longest name that a module begins with decides.
struct Levels {
    default: LevelFilter,
    modules: Vec<(String, LevelFilter)>,
}

impl Levels {
    /// Reads `warn` or `info,module=debug`; what cannot be read is left out.
    fn parse(text: &str) -> Self {
        let mut levels = Self { default: LevelFilter::Warn, modules: Vec::new() };
        for part in text.split(',').map(str::trim) {
            match part.split_once('=') {
                Some((module, level)) => {
                    if let Ok(level) = level.trim().parse() {
                        levels.modules.push((module.trim().to_owned(), level));
                    }
                }
                None => levels.default = part.parse().unwrap_or(levels.default),
            }
        }
        levels
    }

    fn lets(&self, target: &str, level: Level) -> bool {
        let of_module = self.modules.iter().filter(|(module, _)| target.starts_with(module.as_str()));
        let filter =
            of_module.max_by_key(|(module, _)| module.len()).map_or(self.default, |(_, level)| *level);
        level <= filter
    }

    fn most(&self) -> LevelFilter {
        self.modules.iter().map(|(_, level)| *level).fold(self.default, std::cmp::max)
    }
}

/// Shorter texts are not taken out: they would be found in ordinary words.
const SHORTEST_SECRET: usize = 8;

/// Values of the variables that are named as secrets; a variable that names a file is none.
fn environment_secrets(
    variables: impl Iterator<Item = (std::ffi::OsString, std::ffi::OsString)>,
) -> Vec<String> {
    let is_secret = |name: &str| {
        let named = ["SECRET", "TOKEN", "PASSWORD", "PASSWD", "_KEY"].iter().any(|part| name.contains(part));
        named && !["_FILE", "_PATH", "_DIR"].iter().any(|end| name.ends_with(end))
    };
    let named = variables.filter(|(name, _)| is_secret(&name.to_string_lossy().to_uppercase()));
    let values = named.filter_map(|(_, value)| value.into_string().ok());
    values.filter(|value| value.len() >= SHORTEST_SECRET).collect()
}

fn is_of(line: &LogLine, task: &str) -> bool {
    task.is_empty()
        || line.task.strip_prefix(task).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `2026-01-31T23:59:59.123Z`: days are counted from a March, so that leap days end a year.
fn utc(time_ms: u64) -> String {
    let (seconds, ms) = (time_ms / 1000, time_ms % 1000);
    let (days, second) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    /// The process's own log, at `warn`: tests of one binary share it.
    fn started() {
        LOGGER.get_or_init(|| Logger::new("off", vec!["hunter2-hunter2".into()]));
        start_log();
    }

    #[test]
    fn lines_belong_to_the_task_that_wrote_them() {
        started();
        let (one, other): (Arc<str>, Arc<str>) = ("tail-1/2/3".into(), "tail-10/1/0".into());
        in_task(&one, || {
            log::warn!(target: "voxelflow_test", "from one");
            in_task(&other, || log::info!(target: "voxelflow_test", "from the other"));
            log::debug!(target: "voxelflow_test", "nobody keeps this");
            log::warn!(target: "voxelflow_test", "the key is hunter2-hunter2!");
        });
        assert_eq!(current_task(), None);
        let texts = |task: &str, n| log_tail(task, n).into_iter().map(|l| l.text).collect::<Vec<_>>();
        assert_eq!(texts("tail-1", 9), ["from one", "the key is [secret]!"]);
        assert_eq!(texts("tail-1/2/3", 1), ["the key is [secret]!"]);
        assert_eq!(texts("tail-10", 9), ["from the other"]);
        assert_eq!(texts("tail", 9), Vec::<String>::new());
        assert_eq!(log_tail("tail-10", 1)[0].job(), "tail-10");
        keep_secret("another secret");
        in_task(&one, || log::error!(target: "voxelflow_test", "{}", "another secret ".repeat(2000)));
        let long = &texts("tail-1", 1)[0];
        assert!(long.starts_with("[secret] [secret]") && long.len() < LINE_BYTES + 8 && long.ends_with('…'));
    }

    #[tokio::test]
    async fn a_future_is_part_of_its_task_and_new_lines_are_seen() {
        started();
        let (_, next) = lines_after(0);
        let waits = tokio::spawn(line_after(next));
        let work = async {
            tokio::task::yield_now().await;
            log::warn!(target: "voxelflow_test", "from a future");
            current_task()
        };
        assert_eq!(task_scope("scope/1/1".into(), work).await.as_deref(), Some("scope/1/1"));
        waits.await.unwrap();
        let (lines, after) = lines_after(next);
        assert!(after > next && lines.iter().any(|l| l.text == "from a future" && l.job() == "scope"));
        assert_eq!(lines_after(after).0.len() as u64, lines_after(after).1 - after);
    }

    #[test]
    fn a_task_is_known_from_where_its_plan_runs() {
        let context = datafusion::prelude::SessionContext::new().task_ctx();
        assert_eq!(task_of(&context), None);
        let runtime = context.runtime_env();
        let (config, none) = (context.session_config().clone(), std::collections::HashMap::new);
        let id = Some("TID j1/2.0/3.1".to_owned());
        let context = TaskContext::new(
            id,
            "s".into(),
            config,
            none(),
            Default::default(),
            Default::default(),
            Default::default(),
            runtime,
        );
        assert_eq!(task_of(&context).as_deref(), Some("j1/2.0/3.1"));
    }

    #[test]
    fn a_panic_is_a_line() {
        started();
        let task: Arc<str> = "panics/1/1".into();
        let caught = std::panic::catch_unwind(|| in_task(&task, || panic!("out of cheese")));
        assert!(caught.is_err() && current_task().is_none());
        let line = log_tail("panics", 1).remove(0);
        assert!(line.text.contains("out of cheese") && line.text.contains("log_tail.rs"), "{line}");
    }

    #[test]
    fn levels_are_by_module() {
        let levels = Levels::parse("info, ballista=error,ballista_scheduler=debug,nonsense=9,");
        assert!(levels.lets("voxelflow", Level::Info) && !levels.lets("voxelflow", Level::Debug));
        assert!(!levels.lets("ballista_core", Level::Warn));
        assert!(levels.lets("ballista_scheduler::state", Level::Debug));
        assert_eq!((levels.most(), Levels::parse("").most()), (LevelFilter::Debug, LevelFilter::Warn));
        assert_eq!(Levels::parse("off").most(), LevelFilter::Off);
    }

    #[test]
    fn secrets_of_the_environment_are_known_by_their_names() {
        let variables = [
            ("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG"),
            ("AWS_SESSION_TOKEN", "short"),
            ("VOXELFLOW_CLUSTER_KEY_FILE", "/etc/voxelflow/cluster.key"),
            ("HOME", "/home/somebody"),
        ];
        let secrets = environment_secrets(variables.iter().map(|(n, v)| (n.into(), v.into())));
        assert_eq!(secrets, ["wJalrXUtnFEMI/K7MDENG"]);
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(utc(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(utc(951_827_696_789), "2000-02-29T12:34:56.789Z");
        assert_eq!(utc(1_798_761_599_999), "2026-12-31T23:59:59.999Z");
        let line = LogLine {
            time_ms: 0,
            level: "WARN".into(),
            target: "voxelflow".into(),
            task: "j/1/2".into(),
            text: "slow".into(),
        };
        assert_eq!(line.to_string(), "1970-01-01T00:00:00.000Z WARN  voxelflow [j/1/2] slow");
    }
}
