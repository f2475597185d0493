//! Log lines of jobs, kept at the scheduler: the last ones of each job, for the jobs that wrote last.

use super::messages::{JobLine, LogPage};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};
use voxelflow_dataset::log_tail::LogLine;

/// Lines of a job that are kept.
const LINES_OF_JOB: usize = 2000;

/// Jobs whose lines are kept.
const JOBS: usize = 256;

/// Log lines of jobs.
#[derive(Debug, Default)]
pub(super) struct LogStore {
    books: Mutex<Books>,
}

#[derive(Debug, Default)]
struct Books {
    jobs: BTreeMap<String, JobLog>,
    /// Grows with every line, to find the job that wrote least recently.
    clock: u64,
}

#[derive(Debug, Default)]
struct JobLog {
    lines: VecDeque<JobLine>,
    next: u64,
    written: u64,
}

impl LogStore {
    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps what the tasks of `process` wrote; lines outside of tasks are left out.
    pub(super) fn add(&self, process: &str, lines: Vec<LogLine>) {
        let mut books = self.books();
        for line in lines {
            let job = line.job().to_owned();
            if !job.is_empty() {
                books.add(job, JobLine { process: process.to_owned(), line });
            }
        }
    }

    /// The last `most` lines of `job` from number `from` on.
    pub(super) fn page(&self, job: &str, from: u64, most: usize) -> LogPage {
        let books = self.books();
        let Some(log) = books.jobs.get(job) else { return LogPage { next: from, ..LogPage::default() } };
        let first = log.next - log.lines.len() as u64;
        let skip = usize::try_from(from.saturating_sub(first)).unwrap_or(usize::MAX);
        let skip = skip.max(log.lines.len().saturating_sub(most));
        LogPage { lines: log.lines.iter().skip(skip).cloned().collect(), next: log.next, ended: false }
    }
}

impl Books {
    fn add(&mut self, job: String, line: JobLine) {
        self.clock += 1;
        if self.jobs.len() >= JOBS && !self.jobs.contains_key(&job) {
            let oldest = self.jobs.iter().min_by_key(|(_, log)| log.written).map(|(job, _)| job.clone());
            oldest.map(|oldest| self.jobs.remove(&oldest));
        }
        let log = self.jobs.entry(job).or_default();
        if log.lines.len() == LINES_OF_JOB {
            log.lines.pop_front();
        }
        log.lines.push_back(line);
        log.next += 1;
        log.written = self.clock;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(task: &str, text: &str) -> LogLine {
        let (level, target) = ("WARN".to_owned(), "test".to_owned());
        LogLine { time_ms: 0, level, target, task: task.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn lines_are_kept_by_job_and_can_be_followed() {
        let store = LogStore::default();
        store.add("cpu-1", vec![line("j1/1/0", "a"), line("", "nobody's"), line("j2/1/0", "b")]);
        store.add("cpu-2", vec![line("j1/1/1", "c")]);
        let page = store.page("j1", 0, 100);
        let texts: Vec<_> = page.lines.iter().map(|l| (l.process.as_str(), l.line.text.as_str())).collect();
        assert_eq!((texts, page.next), (vec![("cpu-1", "a"), ("cpu-2", "c")], 2));
        assert!(store.page("j1", page.next, 100).lines.is_empty());
        store.add("cpu-1", vec![line("j1/1/0", "d")]);
        assert_eq!(store.page("j1", page.next, 100).lines[0].line.text, "d");
        assert_eq!(store.page("j1", 0, 1).lines[0].line.text, "d");
        assert_eq!(store.page("none", 7, 1), LogPage { next: 7, ..LogPage::default() });
    }

    #[test]
    fn memory_is_bounded() {
        let store = LogStore::default();
        let many = (0..LINES_OF_JOB + 5).map(|i| line("j0/1/0", &i.to_string())).collect();
        store.add("cpu-1", many);
        let page = store.page("j0", 0, usize::MAX);
        assert_eq!((page.lines.len(), page.lines[0].line.text.as_str()), (LINES_OF_JOB, "5"));
        assert_eq!(store.page("j0", 3, usize::MAX).lines.len(), LINES_OF_JOB, "what is gone is left out");
        for job in 1..=JOBS {
            store.add("cpu-1", vec![line(&format!("j{job}/1/0"), "x")]);
        }
        assert!(store.page("j0", 0, 1).lines.is_empty(), "the job that wrote least recently is forgotten");
        assert_eq!(store.books().jobs.len(), JOBS);
    }
}
