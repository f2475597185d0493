//! Who may use a cluster, from the command line, and where its secrets are not.

use crate::{
    cluster_by_hand::{Cluster, KEY_BYTE, Setup},
    counting::Counting,
    program::{Ended, files_below, voxelflow},
};
use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
};

#[test]
fn another_key_is_refused_and_none_is_not_enough() {
    let cluster = Cluster::with_key(1);
    cluster.ask(&["jobs"]).expect_code(0);
    let other = cluster.work.path().join("other.key");
    fs::write(&other, "5d".repeat(32)).unwrap();
    fs::set_permissions(&other, Permissions::from_mode(0o600)).unwrap();
    let ask =
        |more: &[&str]| voxelflow(["jobs", "--cluster", &cluster.url].iter().chain(more)).expect_code(1);
    for refused in [ask(&[]), ask(&["--cluster-key", other.to_str().unwrap()])] {
        assert!(refused.stderr.contains("does it have the same key"), "{}", refused.stderr);
    }

    let counting = Counting::new(1, "ranks => 1");
    let train = |more: &[&str]| {
        let mut flags = vec!["--cluster", cluster.url.as_str()];
        flags.extend(more);
        let (status, stderr) = counting.start(&flags).end();
        Ended { code: status.code(), stdout: String::new(), stderr }
    };
    let sealed = train(&["--cluster-key", other.to_str().unwrap()]).expect_code(1).stderr;
    assert!(sealed.contains("key"), "{sealed}");
    let plain = train(&[]).expect_code(2).stderr;
    assert!(plain.contains("--cluster-key") && plain.contains("--insecure"), "{plain}");
    assert!(!counting.out().join("models/counts").exists());
    counting.start(&cluster.flags()).succeed();
    counting.assert_every_series_once_an_epoch();
}

#[test]
fn nothing_plain_is_bound_where_others_reach_it() {
    // Nobody has this address: it is refused before it is bound.
    let scheduler = voxelflow(["scheduler", "--bind", "10.255.255.1", "--port", "0"]).expect_code(2).stderr;
    assert!(scheduler.contains("--cluster-key") && scheduler.contains("--insecure"), "{scheduler}");
    let public = voxelflow(["scheduler", "--bind", "8.8.8.8", "--port", "0"]).expect_code(2).stderr;
    assert!(public.contains("a public address") && public.contains("--insecure"), "{public}");
}

#[test]
fn keys_and_tokens_are_in_no_log_no_setting_and_no_file() {
    let mut cluster = Cluster::start(&Setup { key: true, log: "debug", ..Setup::default() });
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
        for file in files_below(folder).into_iter().filter(|file| file != "cluster.key") {
            hidden(&file, &String::from_utf8_lossy(&fs::read(folder.join(&file)).unwrap()));
        }
    }
    assert!(files_below(parts).iter().any(|file| file.starts_with("executor-1")), "{:?}", files_below(parts));
}
