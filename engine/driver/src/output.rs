//! What commands say on standard output. A reader that has seen enough (`… | head`) ends no run: what else is said goes
//! nowhere. Any other failure, such as a full disk, is the command's.

use crate::{Error, Result};
use std::{
    fmt,
    io::{self, Write},
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

static CLOSED: AtomicBool = AtomicBool::new(false);
static FAILED: Mutex<Option<io::Error>> = Mutex::new(None);

/// Says a line, formatted as by `println!`.
macro_rules! say {
    ($($arguments:tt)*) => {
        $crate::output::say(format_args!("{}\n", format_args!($($arguments)*)))
    };
}

/// Says `text` as it is.
pub(crate) fn say(text: fmt::Arguments<'_>) {
    if let Err(e) = Output.write_fmt(text).and_then(|()| Output.flush()) {
        FAILED.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
    }
}

/// Whether nobody reads any more.
pub(crate) fn is_closed() -> bool {
    CLOSED.load(Ordering::Relaxed)
}

/// The first failure to say something.
///
/// # Errors
/// That failure.
pub(crate) fn check() -> Result<()> {
    match FAILED.lock().unwrap_or_else(PoisonError::into_inner).take() {
        Some(e) => Err(Error::io(Path::new("standard output"), e)),
        None => Ok(()),
    }
}

/// What became of an output; `taken` where nobody reads it any more.
fn unless_closed<T>(done: io::Result<T>, taken: T) -> io::Result<T> {
    match done {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {
            CLOSED.store(true, Ordering::Relaxed);
            Ok(taken)
        }
        done => done,
    }
}

/// Standard output, which takes everything once its reader is gone.
pub(crate) struct Output;

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        unless_closed(io::stdout().write(bytes), bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        unless_closed(io::stdout().flush(), ())
    }
}
