//! Series in S3 and HDFS: written there, read back equal, trained on with the same loss as from disk, on executors
//! too; models published there and applied from there. Against real servers.

use crate::{
    program::{Ended, files_below, program, root},
    servers,
};
use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// Where series and models lie, and what the processes find in their environment.
#[derive(Default)]
pub struct Place<'a> {
    pub url: String,
    /// The same place as plain HTTP, where there is one.
    pub files: Option<String>,
    /// Settings that a pipeline begins with.
    pub settings: String,
    pub environment: Vec<(&'a str, &'a str)>,
}

impl Place<'_> {
    /// Runs `voxelflow`; whatever it says, it does not say the secret.
    pub fn voxelflow(&self, arguments: &[&str]) -> Ended {
        let mut command = program("voxelflow");
        for (name, _) in std::env::vars_os() {
            if ["AWS_", "HADOOP_"].iter().any(|of| name.to_string_lossy().starts_with(of)) {
                command.env_remove(name);
            }
        }
        let output = command.args(arguments).envs(self.environment.iter().copied()).output().unwrap();
        for said in [&output.stdout, &output.stderr] {
            assert!(!holds_secret(said), "{arguments:?} shows the secret key");
        }
        output.into()
    }

    /// Runs a pipeline into `out`.
    pub fn run(&self, text: &str, out: &Path, more: &[&str]) -> Ended {
        let file = out.with_extension("vf");
        std::fs::write(&file, format!("{}\n{text}", self.settings)).unwrap();
        let mut arguments = vec!["run", file.to_str().unwrap(), "--out", out.to_str().unwrap()];
        arguments.extend(more);
        self.voxelflow(&arguments)
    }
}

/// The series of example 01, written to `place`.
fn write_series(place: &str) -> String {
    let bold = root().join("examples/data/ds003_sub-01_mc.nii.gz");
    format!(
        "CREATE EXTERNAL TABLE bold STORED AS NIFTI LOCATION '{}' OPTIONS (mask 'auto', subject '01');
         CREATE TABLE cleaned AS SELECT * FROM clean(bold, detrend => true, standardize => 'zscore_sample');
         COPY (SELECT * FROM cleaned ORDER BY voxel) TO '{place}/series/' STORED AS PARQUET;",
        bold.display()
    )
}

/// Trains on the series at `place`, publishes the model there if asked to, and applies it.
fn train_there(place: &str, publish: &str) -> String {
    format!(
        "CREATE EXTERNAL TABLE series STORED AS PARQUET LOCATION '{place}/series/';
         TRAIN MODEL dca USING dist_dca (hidden => 4, filters => [4], kernels => [5], pools => 1)
           ON (SELECT * FROM series WHERE voxel % 5 <> 0) VALIDATE ON (SELECT * FROM series WHERE voxel % 5 = 0)
           WITH (ranks => 2, epochs => 2, minibatch => 64, seed => 1, deterministic => true {publish});
         CREATE TABLE hidden AS SELECT voxel, encode(dca, series) AS hidden FROM series;"
    )
}

/// Losses of all epochs, to the last digit.
pub fn losses(out: &Path) -> Vec<String> {
    let text = std::fs::read(out.join("models/dca/history.json")).unwrap();
    let history: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let epochs = history["epochs"].as_array().unwrap();
    assert!(epochs.iter().all(|epoch| epoch["loss"].is_f64()) && !epochs.is_empty(), "{history}");
    epochs.iter().map(|epoch| format!("{} {}", epoch["loss"], epoch["validation_loss"])).collect()
}

fn as_from_disk(place: &Place<'_>) {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| -> PathBuf { folder.path().join(name) };
    let disk = Place { url: at("data").to_str().unwrap().to_owned(), ..Place::default() };
    for place in [&disk, place] {
        place.run(&write_series(&place.url), &at("written"), &["--fresh"]).expect_code(0);
    }
    // Every row, with every value.
    let rows = |place: &Place<'_>| {
        let query = format!("SELECT * FROM '{}/series/' ORDER BY voxel", place.url);
        place.voxelflow(&["sql", &query, "--format", "json"]).expect_code(0).stdout
    };
    let expected = rows(&disk);
    assert!(expected.lines().count() > 300, "{expected}");
    assert!(rows(place) == expected, "the rows of {} are not those of the disk", place.url);

    disk.run(&train_there(&disk.url, ""), &at("from-disk"), &[]).expect_code(0);
    let publish = format!(", publish => '{}/models/dca'", place.url);
    let text = train_there(&place.url, &publish);
    place.run(&text, &at("from-store"), &[]).expect_code(0);
    assert_eq!(losses(&at("from-store")), losses(&at("from-disk")));
    place.run(&text, &at("on-executors"), &["--executors", "2", "--slots", "1"]).expect_code(0);
    assert_eq!(losses(&at("on-executors")), losses(&at("from-disk")));

    // Another process applies the model that was published, here and on executors.
    let encoded = |place: &Place<'_>, model: &str, more: &[&str]| {
        let query = format!(
            "SELECT voxel, encode('{model}', series) AS hidden FROM '{}/series/' ORDER BY voxel",
            place.url
        );
        let mut arguments = vec!["sql", &query, "--format", "json"];
        arguments.extend(more);
        place.voxelflow(&arguments).expect_code(0).stdout
    };
    let expected = encoded(&disk, at("from-disk/models/dca").to_str().unwrap(), &[]);
    assert!(expected.lines().count() > 100);
    let model = format!("{}/models/dca", place.url);
    assert_eq!(encoded(place, &model, &[]), expected);
    assert_eq!(encoded(place, &model, &["--executors", "2", "--slots", "1"]), expected);

    // What has not changed is not done again; what was written anew is.
    let trained = || {
        let said = place.run(&text, &at("from-store"), &["--json"]).expect_code(0).stdout;
        let lines = said.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let note = lines.into_iter().find(|line| line["statement"] == "TRAIN MODEL dca").unwrap();
        note["note"].as_str().unwrap().to_owned()
    };
    assert_eq!(trained(), "unchanged");
    if let Some(files) = &place.files {
        // A model that is gone from the store is published again; it is not trained again.
        let gone = format!("{files}/models?recursive=true");
        assert!(Command::new("curl").args(["-sf", "-X", "DELETE", &gone]).status().unwrap().success());
        assert_eq!(trained(), "unchanged");
        assert_eq!(encoded(place, &model, &[]), expected);
    }
    place.run(&write_series(&place.url), &at("written"), &["--fresh"]).expect_code(0);
    assert_eq!(trained(), "ran");
    nothing_secret_below(folder.path());
}

pub fn nothing_secret_below(folder: &Path) {
    let files = files_below(folder);
    assert!(files.iter().any(|file| file.ends_with("config.json")), "{files:?}");
    for file in files {
        assert!(!holds_secret(&std::fs::read(folder.join(&file)).unwrap()), "{file} has the secret key");
    }
}

/// Whether the secret stands in `bytes`, also where they are base64, as schemas are in Parquet.
pub fn holds_secret(bytes: &[u8]) -> bool {
    let secret = servers::SECRET_KEY.as_bytes();
    // Three bytes are four letters: what is encoded depends on where the secret begins.
    let encoded = (0..3).map(|skipped| base64(&secret[skipped..secret.len() - (secret.len() - skipped) % 3]));
    let found = |text: &[u8]| bytes.windows(text.len()).any(|window| window == text);
    found(secret) || encoded.into_iter().any(|text| found(text.as_bytes()))
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let number = |three: &[u8]| three.iter().fold(0_u32, |number, byte| number << 8 | u32::from(*byte));
    let letters =
        |number: u32| [18, 12, 6, 0].map(|bits| char::from(LETTERS[(number >> bits & 63) as usize]));
    bytes.chunks_exact(3).flat_map(|three| letters(number(three))).collect()
}

#[test]
fn a_secret_is_found_wherever_it_hides() {
    let secret = servers::SECRET_KEY;
    assert_eq!(base64(b"Many hands"), "TWFueSBoYW5k");
    assert!(holds_secret(format!("xx{secret}yy").as_bytes()) && !holds_secret(b"nothing"));
    for before in ["", "a", "ab"] {
        let text = format!("{before}{secret}");
        assert!(holds_secret(
            base64(format!("{text}{}", "=".repeat(3 - text.len() % 3)).as_bytes()).as_bytes()
        ));
    }
}

#[test]
fn series_and_models_in_s3_are_as_on_disk() {
    let Some(server) = servers::s3() else { return };
    let place = Place {
        url: "s3://tests/training".into(),
        files: Some(format!("{}/buckets/tests/training", server.files)),
        settings: String::new(),
        environment: vec![
            ("AWS_ENDPOINT_URL", &server.endpoint),
            ("AWS_ACCESS_KEY_ID", servers::ACCESS_KEY),
            ("AWS_SECRET_ACCESS_KEY", servers::SECRET_KEY),
        ],
    };
    as_from_disk(&place);
}

#[test]
fn series_and_models_in_hdfs_are_as_on_disk() {
    let Some(server) = servers::hdfs() else { return };
    let url = format!("{}/training", server.url);
    as_from_disk(&Place { url, ..Place::default() });
}

/// The endpoint is a setting of the pipeline, and reaches the executors with the plan; the keys are not and do not.
#[test]
fn settings_reach_executors_and_a_wrong_key_is_named_before_anything_runs() {
    let Some(server) = servers::s3() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut place = Place {
        url: "s3://tests/settings".into(),
        files: None,
        settings: format!("SET s3.endpoint = '{}';", server.endpoint),
        environment: vec![
            ("AWS_ACCESS_KEY_ID", servers::ACCESS_KEY),
            ("AWS_SECRET_ACCESS_KEY", servers::SECRET_KEY),
        ],
    };
    let out = folder.path().join("out");
    place.run(&write_series(&place.url), &out, &[]).expect_code(0);
    let read = format!(
        "CREATE EXTERNAL TABLE series STORED AS PARQUET LOCATION '{}/series/';
         SELECT count(*) AS rows FROM series;",
        place.url
    );
    place.run(&read, &out, &["--executors", "2", "--slots", "1"]).expect_code(0);

    // The same bytes by plain HTTP, without keys.
    let one = format!("COPY (SELECT 7 AS seven) TO '{}/one.parquet' STORED AS PARQUET;", place.url);
    place.run(&one, &out, &[]).expect_code(0);
    let query = format!("SELECT seven FROM '{}/buckets/tests/settings/one.parquet'", server.files);
    let without = Place::default();
    assert_eq!(without.voxelflow(&["sql", &query, "--format", "csv"]).expect_code(0).stdout, "seven\n7\n");

    place.environment[1].1 = "wrong";
    let ended = place.run(&read, &out, &[]).expect_code(2);
    assert!(
        ended.stderr.contains("secret key") && ended.stderr.contains("the environment"),
        "{}",
        ended.stderr
    );
    place.environment.truncate(1);
    let named = format!("SELECT count(*) AS rows FROM '{}/series/';", place.url);
    for text in [read, named] {
        let ended = place.run(&text, &out, &[]).expect_code(2);
        assert!(ended.stderr.contains("AWS_SECRET_ACCESS_KEY"), "{}", ended.stderr);
    }
}

/// One statement asks as little of a wrong description as a pipeline does: it names the field at once.
#[test]
fn a_statement_and_inspect_name_what_is_wrong_with_a_store_within_seconds() {
    let Some(server) = servers::s3() else { return };
    let dead = "http://127.0.0.1:1";
    let keys = [("AWS_ACCESS_KEY_ID", servers::ACCESS_KEY), ("AWS_SECRET_ACCESS_KEY", servers::SECRET_KEY)];
    let right: Vec<(&str, &str)> =
        [("AWS_ENDPOINT_URL", server.endpoint.as_str())].into_iter().chain(keys).collect();
    let with = |name: &str, value| {
        right.iter().map(|(n, v)| (*n, if *n == name { value } else { *v })).collect::<Vec<(&str, &str)>>()
    };
    let url = "s3://tests/statement";
    let write = format!("COPY (SELECT 7 AS seven) TO '{url}/one.parquet'");
    let place = |environment| Place { environment, ..Place::default() };
    place(right.clone()).voxelflow(&["sql", &write]).expect_code(0);
    for (environment, at, field) in [
        (with("AWS_SECRET_ACCESS_KEY", "wrong"), url, "secret key"),
        (with("AWS_ACCESS_KEY_ID", "nobody"), url, "access key"),
        (with("AWS_ENDPOINT_URL", dead), url, "endpoint"),
        (right.clone(), "s3://no-such-bucket/x", "bucket"),
        (right[..1].to_vec(), url, "AWS_SECRET_ACCESS_KEY"),
    ] {
        let place = place(environment);
        for arguments in [
            vec!["sql".to_owned(), format!("SELECT * FROM '{at}/one.parquet'")],
            vec!["sql".to_owned(), format!("SELECT * FROM '{at}/*.parquet'")],
            vec!["sql".to_owned(), format!("SELECT encode('{at}', arrow_cast([1.0], 'List(Float32)'))")],
            vec!["sql".to_owned(), write.replace(url, at)],
            vec!["inspect".to_owned(), at.to_owned()],
        ] {
            let began = std::time::Instant::now();
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let ended = place.voxelflow(&arguments).expect_code(2);
            assert!(ended.stderr.contains(field), "{arguments:?}: {field}: {}", ended.stderr);
            // A check lasts five seconds at most; a process that starts on a loaded machine, as long again.
            assert!(began.elapsed().as_secs() < 10, "{arguments:?}: {:?}", began.elapsed());
        }
    }
}

#[test]
fn what_cannot_be_in_a_store_is_refused_with_a_way_out() {
    let file = tempfile::Builder::new().suffix(".vf").tempfile().unwrap();
    std::fs::write(file.path(), "SELECT 1;").unwrap();
    let place = Place::default();
    let ended =
        place.voxelflow(&["run", file.path().to_str().unwrap(), "--out", "s3://lab/out"]).expect_code(2);
    assert!(ended.stderr.contains("local path") && ended.stderr.contains("publish"), "{}", ended.stderr);
    let ended =
        place.voxelflow(&["sql", "SELECT 1", "--format", "csv", "--output", "s3://lab/x.csv"]).expect_code(2);
    assert!(ended.stderr.contains("parquet"), "{}", ended.stderr);
}

/// Globs, `inspect` and reading without keys are as on disk.
#[test]
fn parquet_in_a_store_is_found_inspected_and_read_without_keys_as_on_disk() {
    let Some(server) = servers::s3() else { return };
    let keys = [("AWS_ACCESS_KEY_ID", servers::ACCESS_KEY), ("AWS_SECRET_ACCESS_KEY", servers::SECRET_KEY)];
    let endpoint = [("AWS_ENDPOINT_URL", server.endpoint.as_str())];
    let known = Place { environment: endpoint.into_iter().chain(keys).collect(), ..Place::default() };
    let public = Place {
        environment: endpoint.into_iter().chain([("AWS_SKIP_SIGNATURE", "true")]).collect(),
        ..Place::default()
    };
    for (subject, id) in [("01", 1), ("02", 2)] {
        let copy =
            format!("COPY (SELECT {id} AS id) TO 's3://public/globs/subject={subject}/' STORED AS PARQUET");
        known.voxelflow(&["sql", &copy]).expect_code(0);
    }
    let count = |place: &Place<'_>, location: &str| {
        let query = format!("SELECT sum(id) AS ids FROM '{location}'");
        place.voxelflow(&["sql", &query, "--format", "csv"])
    };
    for place in [&known, &public] {
        for (location, ids) in [
            ("s3://public/globs/", "3"),
            ("s3://public/globs/*/*.parquet", "3"),
            ("s3://public/globs/subject=02/*.parquet", "2"),
        ] {
            assert_eq!(count(place, location).expect_code(0).stdout, format!("ids\n{ids}\n"), "{location}");
        }
        let query = "SELECT id FROM 's3://public/globs/' WHERE subject = '02'";
        let rows = place.voxelflow(&["sql", query, "--format", "csv"]).expect_code(0);
        assert_eq!(rows.stdout, "id\n2\n");
        let inspected = place.voxelflow(&["inspect", "s3://public/globs/"]).expect_code(0).stdout;
        assert!(
            inspected.contains("rows        2") && inspected.contains("column      subject Utf8"),
            "{inspected}"
        );
    }
    let nothing = count(&known, "s3://public/globs/*.csv").expect_code(2);
    assert!(nothing.stderr.contains("no file matches"), "{}", nothing.stderr);
}
