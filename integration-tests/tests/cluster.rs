//! The same work in one process and on a cluster of real processes.

use crate::{
    cluster_by_hand::{Cluster, KEY_BYTE, Setup, key_file, strings},
    processes::wait_for,
    program::{Ended, files_below, program, voxelflow},
};
use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

/// A table of `rows` rows in `files` files: n, g = n mod 13, v = n / 2.
fn table(folder: &Path, rows: i64, files: usize) -> String {
    let target = folder.join("numbers");
    let one = |file: usize| {
        let (from, to) = (rows * file as i64 / files as i64, rows * (file + 1) as i64 / files as i64);
        let query = format!(
            "SELECT value AS n, value % 13 AS g, value * 0.5 AS v, CAST(value AS VARCHAR) AS t \
             FROM generate_series({from}, {})",
            to - 1
        );
        let part = folder.join(format!("part-{file}"));
        voxelflow(["sql", &query, "--format", "parquet", "--output", part.to_str().unwrap()]).expect_code(0);
        fs::create_dir_all(&target).unwrap();
        for name in files_below(&part) {
            fs::rename(part.join(&name), target.join(format!("{file}-{name}"))).unwrap();
        }
    };
    (0..files).for_each(one);
    target.to_str().unwrap().to_owned()
}

fn sql(query: &str, more: &[&str]) -> Ended {
    voxelflow(["sql", query, "--format", "csv"].iter().chain(more))
}

#[test]
fn queries_give_the_same_rows_on_executors() {
    let folder = tempfile::tempdir().unwrap();
    let numbers = table(folder.path(), 20_000, 3);
    for query in [
        format!("SELECT count(*) AS rows, sum(v) AS sum FROM '{numbers}'"),
        format!(
            "SELECT g, count(*) AS rows, sum(n) AS sum, min(t) AS first FROM '{numbers}' GROUP BY g ORDER BY g"
        ),
        format!(
            "SELECT a.n, b.v FROM '{numbers}' a JOIN '{numbers}' b ON a.n = b.n * 3 WHERE a.g = 5 ORDER BY a.n LIMIT 50"
        ),
        format!(
            "SELECT n, sum(v) OVER (PARTITION BY g ORDER BY n) AS running FROM '{numbers}' ORDER BY n LIMIT 40"
        ),
        format!(
            "SELECT n FROM '{numbers}' WHERE n NOT IN (SELECT n * 2 FROM '{numbers}') ORDER BY n LIMIT 20"
        ),
        format!("SELECT n FROM '{numbers}' WHERE v > (SELECT avg(v) FROM '{numbers}') ORDER BY n LIMIT 20"),
        format!("SELECT row_hash(7, n) AS h FROM '{numbers}' WHERE n < 5 ORDER BY n"),
        "SELECT 1 AS one UNION ALL SELECT 2 ORDER BY one".to_owned(),
        // What must see a whole side, in one place.
        format!(
            "SELECT count(*) AS rows FROM '{numbers}' WHERE nullif(n, 7) NOT IN (SELECT n FROM '{numbers}' WHERE g = 5)"
        ),
        format!(
            "SELECT count(*) AS rows FROM '{numbers}' WHERE n NOT IN (SELECT nullif(n, 3) FROM '{numbers}')"
        ),
        format!(
            "SELECT count(*) AS rows, count(b.n) AS pairs, sum(a.n) AS sum FROM '{numbers}' a \
             LEFT JOIN (SELECT n FROM '{numbers}' WHERE n < 20) b ON a.n BETWEEN b.n * 100 AND b.n * 100 + 3"
        ),
        format!(
            "SELECT count(*) AS rows, count(a.n) AS pairs, sum(b.n) AS sum FROM '{numbers}' a \
             FULL JOIN (SELECT n - 5 AS n FROM '{numbers}' WHERE n < 20) b ON a.n < b.n"
        ),
        format!(
            "SELECT n FROM '{numbers}' WHERE n < 3 UNION ALL SELECT g FROM '{numbers}' WHERE n > 19996 ORDER BY n"
        ),
        format!(
            "WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r WHERE i < 5) \
             SELECT r.i, a.t FROM r JOIN '{numbers}' a ON a.n = r.i ORDER BY r.i"
        ),
    ] {
        let here = sql(&query, &[]).expect_code(0);
        let there = sql(&query, &["--executors", "2"]).expect_code(0);
        assert_eq!(there.stdout, here.stdout, "{query}");
    }
}

#[test]
fn a_program_gives_the_same_on_executors() {
    let run = |executors: Option<&str>| {
        let out = tempfile::tempdir().unwrap();
        let mut verbs = program("verbs");
        verbs.env("VOXELFLOW_OUT", out.path());
        executors.map(|n| verbs.env("VOXELFLOW_EXECUTORS", n));
        Ended::from(verbs.output().unwrap()).expect_code(0)
    };
    let here = run(None);
    assert!(here.stdout.contains("accumulated: 1000 rows"), "{}", here.stdout);
    let there = run(Some("2"));
    assert_eq!(there.stdout, here.stdout, "stderr: {}", there.stderr);
}

#[test]
fn a_function_that_fails_is_told_as_in_one_process() {
    let run = |executors: Option<&str>| {
        let out = tempfile::tempdir().unwrap();
        let mut verbs = program("verbs");
        verbs.env("VOXELFLOW_OUT", out.path()).env("VERBS_FAIL", "1");
        executors.map(|n| verbs.env("VOXELFLOW_EXECUTORS", n));
        Ended::from(verbs.output().unwrap()).expect_code(1).stderr
    };
    let told = "partition 2 of 4: function `fails at 700` at ";
    let here = run(None);
    assert!(here.contains(told) && here.contains(": 700 is too much"), "{here}");
    let there = run(Some("2"));
    assert!(there.contains(told) && there.contains(": 700 is too much"), "{there}");
}

#[test]
fn a_pipeline_of_images_gives_the_same_files_on_executors() {
    let text = "CREATE EXTERNAL TABLE bold STORED AS NIFTI LOCATION 'examples/data/ds003_sub-01_mc.nii.gz';
        CREATE TABLE series AS SELECT * FROM clean(bold, detrend => true, standardize => 'zscore_sample');
        CREATE TABLE means AS SELECT k, count(*) AS voxels, avg(list_std(series)) AS deviation
          FROM series GROUP BY k;
        SELECT * FROM means ORDER BY k;
        EXPORT MAPS FROM (SELECT subject, voxel, i, j, k, list_mean(series) AS mean FROM series) TO 'maps/mean.nii.gz';";
    let run = |more: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("images.vf");
        fs::write(&file, text).unwrap();
        let out = folder.path().join("out");
        let arguments = ["run", file.to_str().unwrap(), "--out", out.to_str().unwrap()];
        let ended = voxelflow(arguments.iter().chain(more)).expect_code(0);
        // The table of statements that follows has times in it.
        let query = ended.stdout.lines().take_while(|line| !line.contains("statement"));
        let rows: Vec<String> = query.map(str::to_owned).collect();
        let map = fs::read(out.join("maps/mean.nii.gz")).unwrap();
        let record = fs::read_to_string(out.join("voxelflow.json")).unwrap();
        let record: serde_json::Value = serde_json::from_str(&record).unwrap();
        let ledger = record["statements"]["table series"]["ledger"].clone();
        (rows, map, ledger)
    };
    let here = run(&[]);
    assert!(here.0.iter().any(|line| line.contains("deviation")), "{:?}", here.0);
    let there = run(&["--executors", "2"]);
    assert_eq!(there.0, here.0);
    assert!(there.1 == here.1, "the maps differ");
    assert_eq!(there.2, here.2, "what was counted comes back");
}

#[test]
fn a_cluster_that_is_there_serves_programs_of_its_build_and_refuses_others() {
    let mut cluster = Cluster::start(&Setup::default());
    cluster.add(1, 2);
    let flags = cluster.flags();
    for _ in 0..2 {
        let ended = sql("SELECT sum(value) AS sum FROM generate_series(1, 100)", &strings(&flags));
        assert_eq!(ended.expect_code(0).stdout, "sum\n5050\n");
    }
    let out = cluster.work.path().join("out");
    let mut other = program("verbs");
    other
        .env("VOXELFLOW_OUT", out)
        .env("VOXELFLOW_CLUSTER", &cluster.url)
        .env("VOXELFLOW_CLUSTER_KEY", &cluster.key);
    let other = other.output().unwrap();
    let refusal = Ended::from(other).expect_code(1).stderr;
    assert!(refusal.contains("refused the plan") && refusal.contains("from the same program"), "{refusal}");
}

#[test]
fn an_executor_of_another_build_is_refused_and_named() {
    let mut cluster = Cluster::start(&Setup::default());
    cluster.add(1, 1);
    let work = cluster.work.path().join("another");
    let mut other = program("gang_probe");
    other.args(["executor", "--scheduler", &cluster.url, "--work-dir", work.to_str().unwrap()]);
    other.arg("--cluster-key").arg(&cluster.key);
    let refusal = Ended::from(other.output().unwrap()).expect_code(2).stderr;
    let told = ["an executor at 127.0.0.1 is build", "and the scheduler is build", "from the same program"];
    told.iter().for_each(|part| assert!(refusal.contains(part), "{part}: {refusal}"));
    let listed = cluster.ask(&["jobs", "--list-executors", "--json"]).expect_code(0).stdout;
    assert_eq!(listed.lines().count(), 1, "{listed}");
    assert!(!listed.contains("\"build\":\"\""), "{listed}");
}

#[test]
fn what_cannot_be_reached_or_must_not_be_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let key = key_file(folder.path(), "key", KEY_BYTE);
    let key = ["--cluster-key", key.to_str().unwrap()];
    let at = |url: &str| sql("SELECT 1", &["--cluster", url, key[0], key[1]]);
    let nobody = at("df://127.0.0.1:9").expect_code(1).stderr;
    assert!(nobody.contains("no scheduler answers at df://127.0.0.1:9"), "{nobody}");
    let scheme = at("http://127.0.0.1:9").expect_code(2).stderr;
    assert!(scheme.contains("df://host:port"), "{scheme}");
    let none = sql("SELECT 1", &["--executors", "0"]).expect_code(2).stderr;
    assert!(none.contains("0 executors"), "{none}");
    let part = |arguments: &[&str]| voxelflow(arguments.iter().chain(&key)).expect_code(2).stderr;
    let open = part(&["scheduler", "--bind", "0.0.0.0", "--port", "0"]);
    assert!(open.contains("every interface") && open.contains("--public"), "{open}");
    let lonely = part(&["executor", "--bind", "8.8.8.8", "--scheduler", "df://127.0.0.1:9"]);
    assert!(lonely.contains("a public address"), "{lonely}");
}

#[test]
fn a_lost_scheduler_is_noticed_and_a_dropped_job_cancelled() {
    let mut cluster = Cluster::start(&Setup::default());
    cluster.add(1, 2);
    // It takes long enough to be interrupted.
    let slow = "SELECT count(*) FROM generate_series(1, 3000000) a, generate_series(1, 1000000) b WHERE (a.value * b.value) % 7 = 3";
    let mut driver = program("voxelflow");
    driver.args(["sql", slow]).args(cluster.flags()).env("VOXELFLOW_LOG", "info").stderr(Stdio::piped());
    let mut driver = driver.spawn().unwrap();
    let mut lines = BufReader::new(driver.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(
        lines.by_ref().any(|line| line.contains("job ") && line.contains(" runs on ")),
        "no job was submitted"
    );
    cluster.kill_scheduler();
    let killed = Instant::now();
    let rest: Vec<String> = lines.collect();
    assert_eq!(driver.wait().unwrap().code(), Some(1), "{rest:?}");
    assert!(killed.elapsed() < Duration::from_secs(12), "noticed after {:?}", killed.elapsed());
    let told = rest.iter().any(|l| l.contains("was lost while job") && l.contains("start it again"));
    assert!(told, "{rest:?}");
}

#[test]
fn executors_end_with_the_driver_that_was_killed_and_its_files_with_the_next_one() {
    let temporary = tempfile::tempdir().unwrap();
    let driver = |query: &str| {
        let mut driver = program("voxelflow");
        driver.args(["sql", query, "--executors", "2"]);
        driver.env("TMPDIR", temporary.path()).env("VOXELFLOW_LOG", "info");
        driver
    };
    let slow = "SELECT count(*) FROM generate_series(1, 3000000) a, generate_series(1, 1000000) b WHERE (a.value * b.value) % 7 = 3";
    let mut killed = driver(slow).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(killed.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("job ") && line.contains(" runs on ")), "no job was submitted");
    let children = || {
        let own = killed.id().to_string();
        let all = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            let parent = stat.rsplit_once(") ")?.1.split_whitespace().nth(1)?.to_owned();
            (parent == own).then(|| entry.path())
        });
        all.collect::<Vec<_>>()
    };
    let started = children();
    assert_eq!(started.len(), 3, "a scheduler and two executors: {started:?}");
    killed.kill().unwrap();
    killed.wait().unwrap();
    wait_for("the parts of the cluster to end", || {
        started.iter().all(|process| !process.exists()).then_some(())
    });
    let folders = || {
        let names =
            fs::read_dir(temporary.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with("voxelflow-cluster-")).count()
    };
    assert_eq!(folders(), 1, "nobody was left to remove it");
    Ended::from(driver("SELECT 1").output().unwrap()).expect_code(0);
    assert_eq!(folders(), 0);
}
