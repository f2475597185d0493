//! What other users can read of a cluster's files, and what can be heard of its work on the network.

use super::{PROBE, cluster_on, knock::as_nobody, long_job, sniffer::Sniffer};
use crate::{
    cluster_by_hand::{Cluster, Setup},
    cluster_nodes::{Agent, at_work, key_file},
    network::Network,
    processes::wait_for,
    program::{Ended, program},
};
use arrow::{
    array::{ArrayRef, Int64Array, StringArray},
    record_batch::RecordBatch,
};
use parquet::arrow::ArrowWriter;
use std::{
    fs::{self, File, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
};

/// What another user can read below `paths`.
fn readable(paths: &[PathBuf]) -> Vec<String> {
    let mut find = Command::new("find");
    find.args(paths).args(["(", "-readable", "-o", "-writable", ")", "-print"]);
    // It complains about what it may not enter.
    let ended = Ended::from(as_nobody(&find).output().unwrap());
    ended.stdout.lines().map(str::to_owned).collect()
}

/// A folder that other users may enter.
fn open_folder(folder: &Path) {
    fs::set_permissions(folder, Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn keys_and_rows_on_disk_are_their_owners() {
    let Some(network) = Network::build() else { return };
    let cluster = cluster_on(&network);
    open_folder(cluster.work.path());
    let (mut driver, _) = long_job(&cluster);
    let at = |name: &str| cluster.work.path().join(name);
    assert_eq!(readable(&[at("ticks")]).len(), 1, "another user can look into this folder");
    let own = [at("executor-0"), at("executor-1"), at("cluster.key")];
    assert!(own.iter().all(|path| path.exists()), "{own:?}");
    assert_eq!(readable(&own), Vec::<String>::new());
    driver.kill().unwrap();
    driver.wait().unwrap();

    // A cluster that a driver starts for itself.
    let temporary = tempfile::tempdir().unwrap();
    open_folder(temporary.path());
    let ticks = temporary.path().join("ticks");
    let mut driver = program(PROBE);
    driver.arg("slow").arg(&ticks).env("VOXELFLOW_EXECUTORS", "2").env("TMPDIR", temporary.path());
    driver.env("VOXELFLOW_OUT", temporary.path().join("out")).stdout(Stdio::null()).stderr(Stdio::null());
    let mut driver = driver.spawn().unwrap();
    wait_for("work to begin", || ticks.exists().then_some(()));
    let inside = fs::read_dir(temporary.path()).unwrap().map(|entry| entry.unwrap().path());
    let own: Vec<PathBuf> = inside.filter(|path| path.is_dir() && !path.ends_with("out")).collect();
    assert!(!own.is_empty(), "the cluster has no folder");
    let found = readable(&own);
    driver.kill().unwrap();
    driver.wait().unwrap();
    assert_eq!(found, Vec::<String>::new());

    // An agent, and what it has started.
    let folder = tempfile::tempdir().unwrap();
    open_folder(folder.path());
    let key = key_file(folder.path(), "cluster.key", 'a');
    let agent = Agent::start(folder.path(), "agent", &key, &["--cores", "2", "--memory-mib", "1024"]);
    let mut driver = at_work(&agent, &key, folder.path(), 2);
    let found = readable(&[agent.work_dir.clone(), key]);
    driver.kill().unwrap();
    driver.wait().unwrap();
    assert_eq!(found, Vec::<String>::new());
}

/// Names that nobody must hear.
const PATH: &str = "planted-path";
const COLUMN: &str = "planted_column";
const VALUE: &str = "planted-value";
const LITERAL: &str = "planted-literal";
const NAMES: [&str; 4] = [PATH, COLUMN, VALUE, LITERAL];

/// A table with all the names, and a query that sends its rows from executor to executor.
fn planted(folder: &Path) -> String {
    let table = folder.join(PATH);
    fs::create_dir(&table).unwrap();
    for file in 0..4_i64 {
        let numbers = file * 5_000..(file + 1) * 5_000;
        let texts = StringArray::from_iter_values(numbers.clone().map(|n| format!("{VALUE}-{}", n % 3_000)));
        let columns: [(&str, ArrayRef); 2] =
            [(COLUMN, Arc::new(texts)), ("n", Arc::new(Int64Array::from_iter_values(numbers)))];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let out = File::create(table.join(format!("{file}.parquet"))).unwrap();
        let mut writer = ArrowWriter::try_new(out, batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
    }
    format!(
        "SELECT {COLUMN}, count(*) AS rows, sum(n) AS n FROM '{}/' WHERE {COLUMN} <> '{LITERAL}' \
         GROUP BY {COLUMN} ORDER BY {COLUMN}",
        table.display()
    )
}

/// Runs the query in the namespace, where everything is heard.
#[track_caller]
fn runs_unheard(network: &Network, query: &str, flags: &[String]) {
    let sniffer = Sniffer::start(network, &NAMES);
    let mut driver = program("voxelflow");
    driver.args(["sql", query, "--format", "csv"]).args(flags);
    let rows = Ended::from(network.inside(&driver).output().unwrap()).expect_code(0).stdout;
    assert_eq!(rows.lines().count(), 3_001, "a head and a row for every value");
    sniffer.has_heard_nothing();
}

#[test]
fn nothing_of_a_query_is_heard_on_the_network_of_a_cluster() {
    let Some(network) = Network::build() else { return };
    let mut cluster = Cluster::start(&Setup { scheduler: &["--bind", &network.here], ..Setup::default() });
    let inside = ["--bind", &network.there, "--slots", "2"];
    (0..2).for_each(|_| cluster.executor(&inside, Some(&network.namespace)));
    let query = planted(cluster.work.path());
    runs_unheard(&network, &query, &cluster.flags());
}

#[test]
fn nothing_of_a_query_is_heard_on_a_machine_with_executors_of_its_own() {
    let Some(network) = Network::build() else { return };
    let folder = tempfile::tempdir().unwrap();
    let query = planted(folder.path());
    runs_unheard(&network, &query, &["--executors".into(), "2".into()]);
}
