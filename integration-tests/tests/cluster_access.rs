//! Who may use a cluster, from the command line, and where its secrets are not.

use crate::{
    cluster_by_hand::{Cluster, KEY_BYTE, Setup, key_file},
    counting::Counting,
    program::{Ended, files_below, voxelflow},
};
use std::{fs, path::Path};

#[test]
fn another_key_is_refused_and_none_is_not_enough() {
    let cluster = Cluster::with(1);
    cluster.ask(&["jobs"]).expect_code(0);
    let other = key_file(cluster.work.path(), "other.key", "5d");
    let ask = |more: &[&str]| voxelflow(["jobs", "--cluster", &cluster.url].iter().chain(more));
    let refused = ask(&["--cluster-key", other.to_str().unwrap()]).expect_code(1).stderr;
    assert!(refused.contains("does it have the same key"), "{refused}");
    let none = ask(&[]).expect_code(2).stderr;
    assert!(none.contains("--cluster-key"), "{none}");
    let query = |more: &[&str]| voxelflow(["sql", "SELECT 1", "--cluster", &cluster.url].iter().chain(more));
    let refused = query(&["--cluster-key", other.to_str().unwrap()]).expect_code(1).stderr;
    assert!(
        refused.contains("no scheduler answers") && refused.contains("does it have the same key"),
        "{refused}"
    );
    let none = query(&[]).expect_code(2).stderr;
    assert!(none.contains("a cluster serves those who have its key"), "{none}");

    let counting = Counting::new(1, "ranks => 1");
    let train = |more: &[&str]| {
        let mut flags = vec!["--cluster", cluster.url.as_str()];
        flags.extend(more);
        let (status, stderr) = counting.start(&flags).end();
        Ended { code: status.code(), stdout: String::new(), stderr }
    };
    let refused = train(&["--cluster-key", other.to_str().unwrap()]).expect_code(1).stderr;
    assert!(refused.contains("does it have the same key"), "{refused}");
    let none = train(&[]).expect_code(2).stderr;
    assert!(none.contains("--cluster-key"), "{none}");
    assert!(!counting.out().join("models/counts").exists());
    counting.start(&cluster.flags()).succeed();
    counting.assert_every_series_once_an_epoch();
}

#[test]
fn nothing_listens_without_a_key_and_nothing_publicly_without_being_told() {
    let scheduler = voxelflow(["scheduler", "--port", "0"]).expect_code(2).stderr;
    assert!(scheduler.contains("--cluster-key"), "{scheduler}");
    let folder = tempfile::tempdir().unwrap();
    let key = key_file(folder.path(), "key", KEY_BYTE);
    let key = key.to_str().unwrap();
    // Nobody has this address: it is refused before it is bound.
    let public = voxelflow(["scheduler", "--bind", "8.8.8.8", "--port", "0", "--cluster-key", key]);
    let public = public.expect_code(2).stderr;
    assert!(public.contains("a public address") && public.contains("--public"), "{public}");
}

#[test]
fn a_key_is_changed_while_the_cluster_is_there() {
    let mut cluster = Cluster::with(1);
    let folder = tempfile::tempdir().unwrap();
    let new = key_file(folder.path(), "new.key", "5e");
    let (old_text, new_text) = (KEY_BYTE.repeat(32), "5e".repeat(32));
    let ask = |cluster: &Cluster, key: &Path| {
        let flags = ["jobs", "--cluster", &cluster.url, "--cluster-key", key.to_str().unwrap()];
        voxelflow(flags).code
    };
    let old = key_file(folder.path(), "old.key", KEY_BYTE);
    assert_eq!((ask(&cluster, &old), ask(&cluster, &new)), (Some(0), Some(1)));
    // Both are accepted: the cluster shows the new one, which drivers with both files accept.
    let both = |first: &str, second: &str| fs::write(&cluster.key, format!("{first}\n{second}\n")).unwrap();
    both(&old_text, &new_text);
    cluster.restart_scheduler();
    assert_eq!(ask(&cluster, &cluster.key), Some(0));
    assert_eq!(ask(&cluster, &old), Some(0), "who has not heard of the change goes on");
    fs::write(&cluster.key, format!("{new_text}\n{old_text}\n")).unwrap();
    cluster.restart_scheduler();
    assert_eq!(ask(&cluster, &new), Some(0));
    fs::write(&cluster.key, format!("{new_text}\n")).unwrap();
    cluster.restart_scheduler();
    assert_eq!(
        (ask(&cluster, &new), ask(&cluster, &old)),
        (Some(0), Some(1)),
        "the old key is nothing any more"
    );
}

#[test]
fn keys_and_tokens_are_in_no_log_no_setting_and_no_file() {
    let mut cluster = Cluster::start(&Setup { log: "debug", ..Setup::default() });
    cluster.add(2, 1);
    let counting = Counting::new(2, "ranks => 2");
    let mut run = counting.start(&cluster.flags());
    run.wait_for_epoch(0);
    let (job, noted) = (counting.job(), counting.noted());
    let logs = cluster.ask(&["logs", &job]).expect_code(0).stdout;
    let said = run.succeed();
    let shown = cluster.ask(&["sql", "SHOW ALL"]).expect_code(0).stdout;
    assert!(shown.contains("datafusion."), "{shown}");

    let key = KEY_BYTE.repeat(32);
    let secrets = [key.as_str(), "-----BEGIN"];
    let hidden = |place: &str, text: &str| {
        for secret in secrets {
            assert!(!text.contains(secret), "{secret} is in {place}");
        }
    };
    [
        ("the driver's output", &said),
        ("the settings", &shown),
        ("the job's log", &logs),
        ("the note", &noted),
    ]
    .into_iter()
    .for_each(|(place, text)| hidden(place, text));
    let (parts, out) = (cluster.work.path(), counting.out());
    for folder in [parts, out.as_path()] {
        for file in files_below(folder).into_iter().filter(|file| !file.ends_with(".key")) {
            hidden(&file, &String::from_utf8_lossy(&fs::read(folder.join(&file)).unwrap()));
        }
    }
    assert!(files_below(parts).iter().any(|file| file.starts_with("executor-1")), "{:?}", files_below(parts));
}
