//! Tables of events, confounds, participants and other text files through a session.
#![allow(clippy::unwrap_used)]

use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::prelude::SessionContext;
use std::path::Path;
use std::sync::Arc;
use voxelflow_storage::{StoreRegistry, publish_object};
use voxelflow_tables::{Error, ImageTables, TextTables};

fn session() -> SessionContext {
    let ctx = SessionContext::new();
    for tables in TextTables::ALL {
        ctx.state_ref().write().table_factories_mut().insert(tables.name().into(), Arc::new(tables));
    }
    for tables in ImageTables::ALL {
        ctx.state_ref().write().table_factories_mut().insert(tables.name().into(), Arc::new(tables));
    }
    ctx
}

fn write(folder: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

async fn create(
    ctx: &SessionContext,
    table: &str,
    kind: &str,
    location: &str,
    options: &str,
) -> Result<(), Error> {
    let sql =
        format!("CREATE OR REPLACE EXTERNAL TABLE {table} STORED AS {kind} LOCATION '{location}' {options}");
    ctx.sql(&sql).await.map(|_| ()).map_err(Error::Plan)
}

/// Rows as lines of cells between spaces; `-` is null.
async fn lines(ctx: &SessionContext, sql: &str) -> Vec<String> {
    let batches = ctx.sql(sql).await.unwrap().collect().await.unwrap();
    let table = pretty_format_batches(&batches).unwrap().to_string();
    let cells = |line: &str| -> String {
        let cells = line.trim_matches('|').split('|').map(str::trim);
        cells.map(|cell| if cell.is_empty() { "-" } else { cell }).collect::<Vec<_>>().join(" ")
    };
    table.lines().filter(|line| line.starts_with('|')).map(cells).collect()
}

async fn table(kind: &str, files: &[(&str, &str)], location: &str, options: &str, sql: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), files);
    let ctx = session();
    create(&ctx, "t", kind, folder.path().join(location).to_str().unwrap(), options).await.unwrap();
    lines(&ctx, sql).await
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_all_runs_have_their_keys_and_types() {
    let files = [
        (
            "sub-01/ses-a/func/sub-01_ses-a_task-x_run-1_events.tsv",
            "onset\tduration\ttrial_type\tresponse\n-2\t0.5\t1\t0.61\n4.5\tn/a\tn/a\tn/a\n",
        ),
        ("sub-02/func/sub-02_task-x_events.tsv", "onset\tduration\tnote\n1\t2\tlate\n"),
        ("sub-02/func/sub-02_task-x_bold.json", "{}"),
    ];
    let found = table("EVENTS", &files, "", "", "SELECT * FROM t ORDER BY subject, onset").await;
    assert_eq!(
        found,
        [
            "subject session task run onset duration trial_type response note",
            "01 a x 1 -2.0 0.5 1 0.61 -",
            "01 a x 1 4.5 - - - -",
            "02 - x - 1.0 2.0 - - late",
        ]
    );
    let types = table(
        "EVENTS",
        &files,
        "",
        "",
        "SELECT arrow_typeof(onset) AS o, arrow_typeof(trial_type) AS t FROM t LIMIT 1",
    )
    .await;
    assert_eq!(types[1], "Float64 Utf8");
}

#[tokio::test(flavor = "multi_thread")]
async fn confounds_are_numbers_by_volume() {
    let name = "sub-01_task-x_desc-confounds_timeseries.tsv";
    let files = [(name, "trans_x\tframewise_displacement\n0\tn/a\n0.25\t1e-3\n")];
    let found = table("CONFOUNDS", &files, name, "OPTIONS (run 3)", "SELECT * FROM t").await;
    assert_eq!(
        found,
        [
            "subject session task run volume trans_x framewise_displacement",
            "01 - x 3 0 0.0 -",
            "01 - x 3 1 0.25 0.001"
        ]
    );
    // Columns of text, infinity and empty cells take nothing from the others.
    let files = [(name, "trans_x\tnote\tdvars\n0\tfar\tinf\n0.25\tTrue\t\n")];
    let found = table("CONFOUNDS", &files, name, "", "SELECT trans_x, note, dvars FROM t").await;
    assert_eq!(found, ["trans_x note dvars", "0.0 far inf", "0.25 True -"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn participants_join_with_series() {
    let folder = tempfile::tempdir().unwrap();
    write(
        folder.path(),
        &[
            (
                "participants.tsv",
                "participant_id\tage\tgroup\tsite\nsub-01\t34\tcontrol\t007\nsub-02\tn/a\tpatient\t012\n",
            ),
            (
                "phenotype/acds.tsv",
                "participant_id\tsession_id\tscore\tsession\nsub-02\tses-b\t\tlate\nsub-01\tses-a\t5\tn/a\n",
            ),
        ],
    );
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../formats/tests/fixtures/mgh/surface_f4.mgz");
    std::fs::copy(fixture, folder.path().join("sub-02_task-rest.lh.mgz")).unwrap();
    let (ctx, at) = (session(), |name: &str| folder.path().join(name).to_str().unwrap().to_owned());
    create(&ctx, "people", "PARTICIPANTS", &at("participants.tsv"), "").await.unwrap();
    create(&ctx, "scores", "PHENOTYPE", &at("phenotype/acds.tsv"), "").await.unwrap();
    create(&ctx, "rest", "MGH", &at("sub-02_task-rest.lh.mgz"), "").await.unwrap();
    let found = lines(&ctx, "SELECT * FROM people ORDER BY subject").await;
    assert_eq!(
        found,
        [
            "subject session task run participant_id age group site",
            "01 - - - sub-01 34.0 control 007",
            "02 - - - sub-02 - patient 012",
        ]
    );
    // A column of the file that is called as a key stays as it is.
    let found = lines(&ctx, "SELECT * FROM scores ORDER BY subject").await;
    assert_eq!(
        found,
        [
            "subject task run participant_id session_id score session",
            "01 - - sub-01 ses-a 5.0 -",
            "02 - - sub-02 ses-b - late",
        ]
    );
    let sql =
        "SELECT p.\"group\", count(*) AS n FROM rest JOIN people p USING (subject) GROUP BY p.\"group\"";
    assert_eq!(lines(&ctx, sql).await, ["group n", "patient 42"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_fsl_and_hcp_have_the_keys_of_their_place() {
    let run = "100307/MNINonLinear/Results/tfMRI_MOTOR_LR";
    let files = [
        (format!("{run}/EVs/lh.txt"), "71.35 12 1\n130 12 1\n"),
        (format!("{run}/EVs/Sync.txt"), "9\n"),
        (format!("{run}/Movement_Regressors.txt"), "1 2 3 4 5 6 0 0 0 0 0 0\n2 2 3 4 5 6 1 0 0 0 0 0\n"),
    ];
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), *text)).collect();
    let found = table("EV", &files, "", "", "SELECT * FROM t ORDER BY onset").await;
    assert_eq!(
        found,
        [
            "subject session task run condition onset duration amplitude",
            "100307 - MOTOR LR lh 71.35 12.0 1.0",
            "100307 - MOTOR LR lh 130.0 12.0 1.0",
        ]
    );
    let sql = "SELECT subject, run, volume, trans_x, rot_z, trans_x_derivative1 FROM t ORDER BY volume";
    let found = table("MOVEMENT", &files, "", "", sql).await;
    assert_eq!(found[1..], ["100307 LR 0 1.0 6.0 0.0", "100307 LR 1 2.0 6.0 1.0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn gradients_are_b_values_with_their_directions() {
    let files = [
        ("sub-1_dwi.bval", "0 1000\n"),
        ("sub-1_dwi.bvec", "0 0\n0 1\n0 0\n"),
        ("raw/bvals", "5"),
        ("raw/bvecs", "0\n0\n1\n"),
    ];
    let sql = "SELECT subject, volume, b_value, x, y, z FROM t ORDER BY b_value";
    let found = table("GRADIENTS", &files, "", "", sql).await;
    assert_eq!(found[1..], ["1 0 0.0 0.0 0.0 0.0", "- 0 5.0 0.0 0.0 1.0", "1 1 1000.0 0.0 1.0 0.0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_gives_the_same_rows() {
    let there = StoreRegistry::global().resolve("memory://texts/lab").unwrap();
    let text = "onset\tduration\n1\t2\n".as_bytes();
    let path = there.path.clone().join("sub-01").join("sub-01_task-x_events.tsv");
    publish_object(&there.store, &path, text).await.unwrap();
    let ctx = session();
    ctx.register_object_store(&there.store_url, Arc::clone(&there.store));
    for location in ["", "/sub-01/sub-01_task-x_events.tsv", "/**/*_events.tsv"] {
        create(&ctx, "t", "EVENTS", &format!("memory://texts/lab{location}"), "").await.unwrap();
        assert_eq!(lines(&ctx, "SELECT subject, task, onset, duration FROM t").await[1..], ["01 x 1.0 2.0"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_named_with_file_line_and_column() {
    let folder = tempfile::tempdir().unwrap();
    write(
        folder.path(),
        &[
            ("a_events.tsv", "onset\tduration\nn/a\t1\n"),
            ("b.tsv", "id\tage\n1\t2\n"),
            ("c.tsv", "trans_x\n\n1\n"),
            ("e.txt", "1 2\n"),
            ("f.bval", "0 1\n"),
            ("g.txt", "1 2 3\n"),
        ],
    );
    for (kind, name, options, says) in [
        ("EVENTS", "a_events.tsv", "", "a_events.tsv: line 2, column onset"),
        ("PARTICIPANTS", "b.tsv", "", "b.tsv: there is no column 'participant_id'; its columns are id, age"),
        ("CONFOUNDS", "c.tsv", "", "c.tsv: line 2"),
        ("EV", "e.txt", "", "e.txt: line 1"),
        ("GRADIENTS", "f.bval", "", "f.bvec, are not there"),
        ("MOVEMENT", "g.txt", "", "g.txt: line 1"),
        ("TSV", "nothing.tsv", "", "no such file"),
        ("TSV", "*.csv", "", "no .tsv file matches"),
        ("TSV", "b.tsv", "OPTIONS (subjct 1)", "did you mean `subject`?"),
        ("TSV", "b.tsv", "OPTIONS (t_r 1)", "t_r"),
    ] {
        let location = folder.path().join(name);
        let e = create(&session(), "t", kind, location.to_str().unwrap(), options).await.unwrap_err();
        assert!(e.is_input() && e.to_string().contains(says), "{kind} {name}: {e}");
    }
    let sql = format!(
        "CREATE EXTERNAL TABLE t (a INT) STORED AS TSV LOCATION '{}'",
        folder.path().join("b.tsv").display()
    );
    let e = session().sql(&sql).await.unwrap_err();
    assert!(e.to_string().contains("STORED AS TSV takes no column list"), "{e}");
}
