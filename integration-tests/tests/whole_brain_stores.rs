//! A whole-brain run from derivatives in a store to a model in the store, by one pipeline file: the same values, the
//! same loss and the same encoding as from disk, and no secret anywhere. Against real servers.

use crate::{
    bids_tree::confounds,
    program::{files_below, larger_data},
    servers,
    stores::{Place, holds_secret, losses, nothing_secret_below},
};
use std::{
    fs,
    path::{Path, PathBuf},
};
use voxelflow_storage::{Listing, Location, S3Keys, S3Options, StoreOptions, StoreRegistry};
use voxelflow_storage::{publish_object, read_object};

const RUN: &str = "sub-02/func/sub-02_task-visloc";

/// Derivatives of the run as fMRIPrep names them.
fn derivatives(root: &Path, bold: &Path) {
    let file = |end: &str| root.join(format!("{RUN}_{end}"));
    fs::create_dir_all(file("").parent().unwrap()).unwrap();
    fs::copy(bold, file("space-T1w_desc-preproc_bold.nii.gz")).unwrap();
    fs::write(file("desc-confounds_timeseries.tsv"), confounds(156, 1)).unwrap();
    fs::write(root.join("task-visloc_bold.json"), r#"{"RepetitionTime": 2.0}"#).unwrap();
    let description = r#"{"Name": "visloc", "BIDSVersion": "1.9.0", "DatasetType": "derivative"}"#;
    fs::write(root.join("dataset_description.json"), description).unwrap();
}

fn resolve(url: &str, options: &StoreOptions) -> Location {
    StoreRegistry::global().resolve_with(url, options).unwrap()
}

fn upload(folder: &Path, url: &str, options: &StoreOptions) {
    let there = resolve(url, options);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for path in files_below(folder) {
        let object = path.split('/').fold(there.path.clone(), |object, part| object.join(part));
        runtime.block_on(async {
            let file = tokio::fs::File::open(folder.join(&path)).await.unwrap();
            publish_object(there.store.as_ref(), &object, file).await.unwrap();
        });
    }
}

/// The objects under a URL: their names and bytes.
fn download(url: &str, options: &StoreOptions) -> Vec<(String, Vec<u8>)> {
    let there = resolve(url, options);
    let store = |_: &_| Ok(there.store.clone());
    let listing = Listing::of_store(url, &store).unwrap();
    let read = |path: &String| {
        let object = path.split('/').fold(there.path.clone(), |object, part| object.join(part));
        let bytes = read_object(&Location { path: object, ..there.clone() }).unwrap().unwrap();
        (path.clone(), bytes.to_vec())
    };
    listing.paths().iter().map(read).collect()
}

/// The whole way, from the derivatives under `place` to the model there (or under --out, on disk).
fn pipeline(place: &str, publish: &str, model: &str) -> String {
    format!(
        "CREATE EXTERNAL TABLE bold STORED AS BIDS LOCATION '{place}/fmriprep'
           OPTIONS (task 'visloc', space 'T1w', mask 'auto');
         COPY (SELECT * FROM clean(bold, confounds => 'motion', motion => 'full', high_pass => 0.008,
                                   standardize => 'zscore_sample') ORDER BY voxel)
           TO '{place}/series/' STORED AS PARQUET;
         CREATE EXTERNAL TABLE series STORED AS PARQUET LOCATION '{place}/series/';
         TRAIN MODEL dca USING dist_dca (hidden => 4, filters => [4], kernels => [5], pools => 1)
           ON (SELECT * FROM series WHERE k = 17 AND voxel % 5 <> 0)
           VALIDATE ON (SELECT * FROM series WHERE k = 17 AND voxel % 5 = 0)
           WITH (ranks => 2, epochs => 1, minibatch => 64, seed => 1, deterministic => true {publish});
         CREATE TABLE hidden AS
           SELECT subject, session, task, run, space, voxel, i, j, k, encode({model}, series) AS hidden
           FROM series WHERE k = 17;
         EXPORT MAPS FROM (SELECT * EXCEPT (hidden), hidden[1] AS first FROM hidden) TO 'maps/{{column}}.nii.gz';"
    )
}

/// Rows of the two tables of series, and how many of them are the same in every column and every value.
fn compare(place: &Place<'_>, one: &str, other: &str) -> (u64, u64) {
    let keys = ["subject", "session", "task", "run", "space", "i", "j", "k", "series"];
    let same = keys.map(|key| format!("(a.{key} IS NOT DISTINCT FROM b.{key})")).join(" AND ");
    let query = format!(
        "SELECT count(*) AS rows, count(*) FILTER (WHERE {same}) AS same
         FROM '{one}/series/' a FULL JOIN '{other}/series/' b ON a.voxel = b.voxel"
    );
    let said = place.voxelflow(&["sql", &query, "--format", "csv"]).expect_code(0).stdout;
    let (rows, same) = said.lines().nth(1).and_then(|line| line.split_once(',')).unwrap();
    (rows.parse().unwrap(), same.parse().unwrap())
}

fn as_from_disk(place: &Place<'_>, options: &StoreOptions) {
    let Some(data) = larger_data() else { return };
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| -> PathBuf { folder.path().join(name) };
    let disk = Place { url: at("disk").to_str().unwrap().to_owned(), ..Place::default() };
    let bold = data.join("fmri/studyforrest/sub-02_task-visloc_bold.nii.gz");
    derivatives(&at("disk/fmriprep"), &bold);
    upload(&at("disk/fmriprep"), &format!("{}/fmriprep", place.url), options);

    disk.run(&pipeline(&disk.url, "", "dca"), &at("from-disk"), &[]).expect_code(0);
    let model = format!("'{}/models/dca'", place.url);
    let text = pipeline(&place.url, &format!(", publish => {model}"), &model);
    place.run(&text, &at("from-store"), &["--json"]).expect_code(0);

    let (rows, same) = compare(place, &place.url, &disk.url);
    assert!(rows > 20_000 && rows == same, "{same} of {rows} rows are the same");
    assert_eq!(losses(&at("from-store")), losses(&at("from-disk")));
    let bytes = |out: &str, file: &str| fs::read(at(out).join(file)).unwrap();
    for file in ["models/dca/model.safetensors", "maps/first.nii.gz"] {
        assert!(bytes("from-store", file) == bytes("from-disk", file), "{file} differs");
    }

    // Nothing is written again that has not changed.
    let said = place.run(&text, &at("from-store"), &["--json"]).expect_code(0).stdout;
    let unchanged = said.matches(r#""note":"unchanged""#).count();
    assert_eq!(unchanged, 4, "COPY, TRAIN, CREATE TABLE and EXPORT MAPS: {said}");
    place.voxelflow(&["plan", at("from-store.vf").to_str().unwrap()]).expect_code(0);

    nothing_secret_below(folder.path());
    let written = download(&place.url, options);
    assert!(written.iter().any(|(name, _)| name.starts_with("series/") && name.ends_with(".parquet")));
    for (name, bytes) in written.iter().filter(|(name, _)| !name.starts_with("fmriprep/")) {
        assert!(!holds_secret(bytes), "{name} has the secret key");
    }
}

#[test]
fn a_whole_brain_run_in_s3_gives_the_model_that_it_gives_from_disk() {
    let Some(server) = servers::s3() else { return };
    let keys = S3Keys {
        access_key_id: servers::ACCESS_KEY.into(),
        secret_access_key: servers::SECRET_KEY.to_owned().into(),
        session_token: None,
    };
    let s3 = S3Options { endpoint: Some(server.endpoint.clone()), keys: Some(keys), ..S3Options::default() };
    let place = Place {
        url: "s3://tests/whole-brain".into(),
        settings: format!("SET s3.endpoint = '{}';", server.endpoint),
        environment: vec![
            ("AWS_ENDPOINT_URL", &server.endpoint),
            ("AWS_ACCESS_KEY_ID", servers::ACCESS_KEY),
            ("AWS_SECRET_ACCESS_KEY", servers::SECRET_KEY),
        ],
        ..Place::default()
    };
    as_from_disk(&place, &StoreOptions { s3 });
}

#[test]
fn a_whole_brain_run_in_hdfs_gives_the_model_that_it_gives_from_disk() {
    let Some(server) = servers::hdfs() else { return };
    let place = Place { url: format!("{}/whole-brain", server.url), ..Place::default() };
    as_from_disk(&place, &StoreOptions::default());
}
