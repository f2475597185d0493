//! Every subcommand, as a process.

use crate::program::{Ended, files_below, program, root, run_text, voxelflow};
use std::{fs, io::Read, process::Stdio};

const BOLD: &str = "examples/data/ds003_sub-01_mc.nii.gz";

fn pipeline(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::Builder::new().suffix(".vf").tempfile().unwrap();
    fs::write(file.path(), text).unwrap();
    file
}

#[test]
fn check_reads_no_data_and_writes_nothing() {
    let out = tempfile::tempdir().unwrap();
    let out = out.path().join("out");
    let ended =
        voxelflow(["check", "examples/01_autoencoder.vf", "--out", out.to_str().unwrap()]).expect_code(0);
    assert!(ended.stdout.contains("9 of 9 statements checked"), "{}", ended.stdout);
    assert!(!out.exists());

    let wrong = pipeline("SELECT 1;\nSELEC 2;\n");
    let ended = voxelflow(["check".as_ref(), wrong.path().as_os_str()]).expect_code(2);
    assert!(ended.stderr.contains(":2:1") && ended.stderr.contains("^^^^^"), "{}", ended.stderr);
}

#[test]
fn plan_and_explain_name_ranks_and_shards() {
    let ended = voxelflow(["plan", "examples/01_autoencoder.vf"]).expect_code(0);
    for shown in ["TRAIN MODEL dca", "CleanExec", "NiftiExec", "Rank 0", "Rank 1", "ParameterShard 1"] {
        assert!(ended.stdout.contains(shown), "{shown} is missing in\n{}", ended.stdout);
    }
    let out = tempfile::tempdir().unwrap();
    let text = format!(
        "CREATE EXTERNAL TABLE bold STORED AS NIFTI LOCATION '{BOLD}' OPTIONS (mask 'none');
         EXPLAIN TRAIN MODEL dca USING dist_dca (hidden => $hidden) ON bold WITH (ranks => 3, parameter_servers => 2);"
    );
    let file = pipeline(&text);
    let arguments =
        ["run", file.path().to_str().unwrap(), "--set", "hidden=16", "--out", out.path().to_str().unwrap()];
    let ended = voxelflow(arguments).expect_code(0);
    for shown in ["Rank 0", "Rank 2", "ParameterShard 0", "ParameterShard 1"] {
        assert!(ended.stdout.contains(shown), "{shown} is missing in\n{}", ended.stdout);
    }
    assert!(!out.path().join("models").exists(), "EXPLAIN trains nothing");

    let ended = voxelflow(["run", file.path().to_str().unwrap()]).expect_code(2);
    assert!(ended.stderr.contains("hidden"), "the variable that has no value is named: {}", ended.stderr);
}

#[test]
fn sql_prints_a_table_csv_json_or_writes_parquet() {
    let query = "SELECT 1 AS a, 'x' AS b UNION ALL SELECT 2, 'y' ORDER BY a";
    let say = |format: &str| voxelflow(["sql", query, "--format", format]).expect_code(0).stdout;
    assert!(say("table").contains("| 1 | x |"));
    assert_eq!(say("csv"), "a,b\n1,x\n2,y\n");
    assert_eq!(say("json"), "{\"a\":1,\"b\":\"x\"}\n{\"a\":2,\"b\":\"y\"}\n");

    let folder = tempfile::tempdir().unwrap();
    let rows = folder.path().join("rows");
    voxelflow(["sql", query, "--format", "parquet", "--output", rows.to_str().unwrap()]).expect_code(0);
    let count = format!("SELECT sum(a) AS s FROM '{}/'", rows.display());
    assert_eq!(voxelflow(["sql", &count, "--format", "csv"]).expect_code(0).stdout, "s\n3\n");
    let csv = folder.path().join("rows.csv");
    voxelflow(["sql", query, "--format", "csv", "--output", csv.to_str().unwrap()]).expect_code(0);
    assert_eq!(fs::read_to_string(csv).unwrap(), "a,b\n1,x\n2,y\n");

    voxelflow(["sql", query, "--format", "parquet"]).expect_code(2);
    voxelflow(["sql", "SELECT nothing FROM nowhere"]).expect_code(2);
}

#[test]
fn inspect_says_what_images_tables_and_models_are() {
    let ended = voxelflow(["inspect", BOLD]).expect_code(0);
    for shown in ["16×16×9", "2.000000 s", "left and right are a guess", "nothing missing"] {
        assert!(ended.stdout.contains(shown), "{shown} is missing in\n{}", ended.stdout);
    }
    let out = tempfile::tempdir().unwrap();
    let text = format!(
        "CREATE EXTERNAL TABLE bold STORED AS NIFTI LOCATION '{BOLD}' OPTIONS (mask 'auto');
         CREATE TABLE series AS SELECT * FROM clean(bold, detrend => true);
         TRAIN MODEL dca USING dist_dca (hidden => 4, filters => [4], kernels => [5], pools => 1) ON series;"
    );
    run_text(&text, out.path()).expect_code(0);
    let table = |file: &String| file.starts_with("tables/") && file.ends_with(".parquet");
    let parquet = files_below(out.path()).into_iter().find(table).unwrap();
    let ended = voxelflow(["inspect", out.path().join(parquet).to_str().unwrap()]).expect_code(0);
    for shown in ["rows        324", "series", "16x16x9", "detrend"] {
        assert!(ended.stdout.contains(shown), "{shown} is missing in\n{}", ended.stdout);
    }
    let ended = voxelflow(["inspect", out.path().join("models/dca").to_str().unwrap()]).expect_code(0);
    for shown in ["dist_dca", "encode: 20 to 4 values", "hidden = 4"] {
        assert!(ended.stdout.contains(shown), "{shown} is missing in\n{}", ended.stdout);
    }
    voxelflow(["inspect", "README.md"]).expect_code(2);
    voxelflow(["inspect", "no/such/file"]).expect_code(2);
}

#[test]
fn synth_makes_the_same_data_from_the_same_seed_and_a_pipeline_reads_them() {
    let folder = tempfile::tempdir().unwrap();
    let make = |name: &str| {
        let out = folder.path().join(name);
        let flags = ["--subjects", "2", "--voxels", "300", "--time-points", "120", "--seed", "7"];
        let arguments = ["synth", "hcp", "--out", out.to_str().unwrap()].into_iter().chain(flags);
        voxelflow(arguments).expect_code(0);
        out
    };
    let (a, b) = (make("a"), make("b"));
    assert!(files_below(&a).len() >= 5, "{:?}", files_below(&a));
    assert_eq!(files_below(&a), files_below(&b));
    for file in files_below(&a) {
        assert_eq!(fs::read(a.join(&file)).unwrap(), fs::read(b.join(&file)).unwrap(), "{file}");
    }
    let out = folder.path().join("out");
    let text = format!(
        "CREATE TABLE series AS SELECT * FROM clean((SELECT * FROM '{}/series/'), standardize => 'zscore_sample');
         TRAIN MODEL dca USING dist_dca (hidden => 8, filters => [4], kernels => [9], pools => 1)
           ON (SELECT * FROM series WHERE subject = '{{1}}') VALIDATE ON (SELECT * FROM series WHERE subject = '{{2}}')
           WITH (minibatch => 100);",
        a.display()
    );
    let subjects = voxelflow([
        "sql",
        &format!("SELECT DISTINCT subject FROM '{}/series/' ORDER BY 1", a.display()),
        "--format",
        "csv",
    ]);
    let subjects: Vec<String> = subjects.expect_code(0).stdout.lines().skip(1).map(str::to_owned).collect();
    let text = text.replace("{1}", &subjects[0]).replace("{2}", &subjects[1]);
    run_text(&text, &out).expect_code(0);
    assert!(out.join("models/dca/model.safetensors").exists());
}

#[test]
fn deterministic_training_gives_equal_bytes_twice() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "CREATE EXTERNAL TABLE bold STORED AS NIFTI LOCATION '{BOLD}' OPTIONS (mask 'auto');
         CREATE TABLE series AS SELECT * FROM clean(bold, detrend => true, standardize => 'zscore_sample');
         TRAIN MODEL dca USING dist_dca (hidden => 4, filters => [8], kernels => [5], pools => 1) ON series
           WITH (ranks => 4, parameter_servers => 3, deterministic => true, minibatch => 10, epochs => 2);"
    );
    let weights = |name: &str| {
        let out = folder.path().join(name);
        run_text(&text, &out).expect_code(0);
        fs::read(out.join("models/dca/model.safetensors")).unwrap()
    };
    assert_eq!(weights("first"), weights("second"));
}

#[test]
fn completions_and_the_manual_come_from_the_flags() {
    assert!(voxelflow(["completions", "bash"]).expect_code(0).stdout.contains("voxelflow"));
    assert!(voxelflow(["man"]).expect_code(0).stdout.contains(".TH"));
    voxelflow(["no-such-command"]).expect_code(2);
    assert!(root().join(BOLD).exists());
}

/// No machine has so many cards, and most that run this have none: what is missing is said, and it is the user's to mend.
#[test]
fn a_card_that_is_not_there_is_not_warmed_up_or_trained_on() {
    let wrong = [
        ("cuda:97", "device => 'cpu'"),
        ("cuda:97,98", "device => 'cpu'"),
        ("cuda:1,1", "cuda:1 twice"),
        ("cuda:0;1", "cuda:0,1 for both"),
        ("tpu", "cuda:0"),
    ];
    for (device, said) in wrong {
        let ended = voxelflow(["warm-up", "--device", device]).expect_code(2);
        let option = "option `--device` of warm-up";
        assert!(ended.stderr.contains(option) && ended.stderr.contains(said), "{device}: {}", ended.stderr);

        let text = format!(
            "CREATE EXTERNAL TABLE bold STORED AS NIFTI LOCATION '{BOLD}' OPTIONS (mask 'none');
             TRAIN MODEL dca USING dist_dca () ON bold WITH (device => '{device}', epochs => 1);"
        );
        let out = tempfile::tempdir().unwrap();
        let ended = run_text(&text, out.path()).expect_code(2);
        assert!(ended.stderr.contains(said), "{device}: {}", ended.stderr);
        assert!(!out.path().join("models/dca").exists());
    }
}

#[test]
fn results_can_be_written_above_the_working_folder() {
    let folder = tempfile::tempdir().unwrap();
    let work = folder.path().join("work");
    fs::create_dir(&work).unwrap();
    fs::write(
        work.join("p.vf"),
        "CREATE TABLE t AS SELECT 1 AS x; COPY t TO '../copied/' STORED AS PARQUET; COPY t TO '../one.csv';",
    )
    .unwrap();
    let here = |arguments: &[&str]| {
        let ended = program("voxelflow").args(arguments).current_dir(&work).output().unwrap();
        Ended::from(ended).expect_code(0)
    };
    here(&["run", "p.vf", "--out", "../out"]);
    assert!(here(&["run", "p.vf", "--out", "../out"]).stdout.contains("unchanged"));
    here(&["sql", "SELECT 2 AS x", "--format", "parquet", "--output", "../rows"]);
    assert_eq!(fs::read_to_string(folder.path().join("one.csv")).unwrap(), "x\n1\n");
    let written = files_below(folder.path());
    for (rows, x) in [("out/tables/t/", 1), ("copied/", 1), ("rows/", 2)] {
        let file = written.iter().find(|file| file.starts_with(rows) && file.ends_with(".parquet")).unwrap();
        let query = format!("SELECT x FROM '../{file}'");
        assert_eq!(here(&["sql", &query, "--format", "csv"]).stdout, format!("x\n{x}\n"), "{rows}");
    }
}

/// `voxelflow … | head` takes what it wants; the rest of the output goes nowhere, and the run goes on.
#[test]
fn a_reader_that_has_seen_enough_ends_no_run() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("p.vf");
    fs::write(&file, "SELECT * FROM generate_series(1, 30); CREATE TABLE t AS SELECT 1 AS x;").unwrap();
    let (file, out) = (file.to_str().unwrap(), folder.path().join("out"));
    let many = "SELECT value FROM generate_series(1, 3000000)";
    for arguments in [
        vec!["sql", many, "--format", "csv"],
        vec!["sql", many, "--format", "json"],
        vec!["inspect", BOLD],
        vec!["run", file, "--out", out.to_str().unwrap()],
    ] {
        let mut child = program("voxelflow");
        child.args(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = child.spawn().unwrap();
        let mut first = [0];
        child.stdout.take().unwrap().read_exact(&mut first).unwrap();
        let ended = Ended::from(child.wait_with_output().unwrap()).expect_code(0);
        assert_eq!(ended.stderr, "", "{arguments:?}");
    }
    assert!(!files_below(&out.join("tables/t")).is_empty());

    // A disk that is full is a failure all the same.
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let ended = program("voxelflow").args(["inspect", BOLD]).stdout(full).output().unwrap();
    let ended = Ended::from(ended).expect_code(1);
    assert!(ended.stderr.contains("standard output"), "{}", ended.stderr);
}

#[test]
fn a_table_on_the_terminal_is_cut_and_says_so() {
    let ended = voxelflow(["sql", "SELECT value FROM generate_series(1, 1001)"]).expect_code(0);
    assert!(
        ended.stdout.contains("the first 1000 rows") && !ended.stdout.contains("1001"),
        "{}",
        ended.stdout
    );
    let ended = voxelflow(["sql", "SELECT value FROM generate_series(1, 1000)"]).expect_code(0);
    assert!(ended.stdout.contains("1000") && !ended.stdout.contains("the first"));
}

/// Its parts are this program again: they refuse to start a cluster of their own, and the program says how to begin.
#[test]
fn a_program_with_a_main_of_its_own_does_not_start_itself_without_end() {
    let folder = tempfile::tempdir().unwrap();
    let starts = folder.path().join("starts");
    let ended = program("own_main").env("OWN_MAIN_STARTS", &starts).output().unwrap();
    assert!(!ended.status.success());
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(said.contains("#[voxelflow::main]"), "{said}");
    assert_eq!(fs::read_to_string(&starts).unwrap().lines().count(), 2, "the program and its scheduler");
}

#[test]
fn what_types_and_constants_decide_is_decided_by_check() {
    let bold = format!("CREATE EXTERNAL TABLE bold STORED AS NIFTI LOCATION '{BOLD}' OPTIONS (mask 'none');");
    let train =
        "TRAIN MODEL dca USING dist_dca (hidden => 2, filters => [2], kernels => [3], pools => 1) ON bold";
    for (statements, said) in [
        ("SELECT * FROM bold WHERE voxel = 'abc';".to_owned(), "abc"),
        (format!("{train}; EXPORT MAPS FROM dca TO 'm/{{column}}.nii';"), "no maps of its own"),
        (format!("{train} WITH (momentum => 0.5);"), "momentum"),
        (format!("{train} WITH (topology => 'ring', codec => 'bf16');"), "codec"),
        (format!("{train} WITH (n_push => 4);"), "async"),
    ] {
        let file = pipeline(&format!("{bold}\n{statements}"));
        let ended = voxelflow(["check".as_ref(), file.path().as_os_str()]).expect_code(2);
        assert!(ended.stderr.contains(said) && ended.stderr.contains(":2"), "{statements}: {}", ended.stderr);
    }
}

/// A loss that grows out of all bounds is no training: there is no model afterwards.
#[test]
fn a_training_that_diverges_fails_and_leaves_no_model() {
    let text = format!(
        "CREATE EXTERNAL TABLE bold STORED AS NIFTI LOCATION '{BOLD}' OPTIONS (mask 'auto');
         TRAIN MODEL dca USING dist_dca (hidden => 2, filters => [2], kernels => [3], pools => 1)
           ON (SELECT * FROM clean(bold, standardize => 'zscore_sample'))
           WITH (optimizer => 'adagrad', learning_rate => 10, epochs => 1, minibatch => 256);"
    );
    let out = tempfile::tempdir().unwrap();
    let ended = run_text(&text, out.path()).expect_code(1);
    assert!(ended.stderr.contains("diverged") && ended.stderr.contains("learning_rate"), "{}", ended.stderr);
    assert!(!out.path().join("models/dca").exists());
}
