//! Nothing secret is in what is shown: what `Debug` prints, errors, and the log at its most talkative.

use crate::{s3_location, s3_options, servers};
use object_store::ObjectStoreExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use voxelflow_storage::{Purpose, StoreRegistry, check};

/// Counts the lines of the log, and those with the secret.
struct Watch {
    lines: AtomicUsize,
    leaks: AtomicUsize,
}

impl log::Log for Watch {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }
    fn log(&self, record: &log::Record<'_>) {
        self.lines.fetch_add(1, Ordering::Relaxed);
        if record.args().to_string().contains(servers::SECRET_KEY) {
            self.leaks.fetch_add(1, Ordering::Relaxed);
        }
    }
    fn flush(&self) {}
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_shows_a_secret() {
    static WATCH: Watch = Watch { lines: AtomicUsize::new(0), leaks: AtomicUsize::new(0) };
    log::set_logger(&WATCH).unwrap();
    log::set_max_level(log::LevelFilter::Trace);
    let Some(server) = servers::s3() else { return };
    let location = s3_location(server, "s3://tests/secrets/x");
    location.store.put(&location.path, "x".into()).await.unwrap();
    let options = s3_options(&server.endpoint);
    let registry = StoreRegistry::default();
    registry.resolve_with("s3://tests/x", &options).unwrap();

    let mut shown = vec![format!("{location:?} {location} {options:?} {registry:?} {:?}", options.said())];
    let mut wrong_key = options.clone();
    wrong_key.s3.keys.as_mut().unwrap().access_key_id = "nobody".into();
    for (text, options) in
        [("s3://absent/x", &options), ("s3://tests/absent", &options), ("s3://tests/x", &wrong_key)]
    {
        let e = check(text, options, Purpose::Read).await.unwrap_err();
        shown.push(format!("{e} {e:?}"));
        let e = registry.resolve_with(text, options).unwrap();
        let e = e.store.get(&"absent".into()).await.unwrap_err();
        shown.push(format!("{e} {e:?}"));
    }
    assert!(shown[0].contains("tests"), "{}", shown[0]);
    for text in shown {
        assert!(!text.contains(servers::SECRET_KEY), "{text}");
    }
    assert!(WATCH.lines.load(Ordering::Relaxed) > 0, "nothing was logged, so nothing was looked at");
    assert_eq!(WATCH.leaks.load(Ordering::Relaxed), 0, "the secret is in the log");
}
