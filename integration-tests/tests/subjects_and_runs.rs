//! What a laboratory does with the runs of its subjects: runs joined, subjects split, phenotypes joined by subject, a
//! model trained and maps written; in one process and on executors.

use crate::program::{Ended, files_below, voxelflow};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};
use tempfile::TempDir;
use voxelflow_formats::{NiftiReader, NiftiSpec, NiftiWriter};

const SUBJECTS: [&str; 4] = ["01", "02", "03", "04"];
const VOLUMES: usize = 20;

fn affine(edge: f64) -> [[f64; 4]; 4] {
    [[edge, 0.0, 0.0, -3.0], [0.0, edge, 0.0, -3.0], [0.0, 0.0, edge, -3.0], [0.0, 0.0, 0.0, 1.0]]
}

/// An image of 4×4×4 voxels whose values differ in every subject, run, voxel and volume.
fn image(path: &Path, subject: usize, run: usize, volumes: usize, edge: f64) {
    let spec = NiftiSpec::new([4, 4, 4], volumes).with_affine(affine(edge), 1).with_t_r(2.0);
    let mut writer = NiftiWriter::create(path, &spec).unwrap();
    for t in 0..volumes {
        let phase = |v: usize| ((t * (v + 3 + run)) as f32 * 0.7 + subject as f32).sin();
        let values: Vec<f32> = (0..64).map(|v| (100 + v) as f32 + phase(v)).collect();
        writer.write_volume(&values).unwrap();
    }
    writer.finish().unwrap();
}

/// Two runs of four subjects, and what is known of the subjects.
struct Lab {
    folder: TempDir,
}

impl Lab {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("bold")).unwrap();
        for (number, subject) in SUBJECTS.iter().enumerate() {
            for run in [1, 2] {
                let name = format!("bold/sub-{subject}_task-rest_run-{run}_bold.nii");
                image(&folder.path().join(name), number, run, VOLUMES, 2.0);
            }
        }
        let participants: Vec<String> =
            SUBJECTS.iter().enumerate().map(|(n, subject)| format!("sub-{subject}\t{}\n", 20 + n)).collect();
        let text = "participant_id\tage\n".to_owned() + &participants.concat();
        fs::write(folder.path().join("participants.tsv"), text).unwrap();
        Self { folder }
    }

    fn bold(&self) -> String {
        format!(
            "CREATE EXTERNAL TABLE bold STORED AS NIFTI LOCATION '{}' OPTIONS (mask 'none');
             CREATE TABLE runs AS SELECT * FROM clean(bold, detrend => true, standardize => 'zscore_sample');
             CREATE TABLE series AS SELECT * FROM concatenate(runs, runs => ['1', '2']);\n",
            self.folder.path().join("bold").display()
        )
    }

    fn participants(&self) -> String {
        format!(
            "CREATE EXTERNAL TABLE participants STORED AS PARTICIPANTS LOCATION '{}';\n",
            self.folder.path().join("participants.tsv").display()
        )
    }

    fn run(&self, text: &str, out: &str, flags: &[&str]) -> Ended {
        let (file, out) = (self.folder.path().join("lab.vf"), self.folder.path().join(out));
        fs::write(&file, text).unwrap();
        let run = ["run", file.to_str().unwrap(), "--out", out.to_str().unwrap()];
        voxelflow(run.iter().chain(flags))
    }

    /// The rows that `query` gives over the written table `table`, which it calls `rows`.
    fn rows(&self, out: &str, table: &str, query: &str) -> Vec<Value> {
        let out = self.folder.path().join(out);
        let under = format!("tables/{table}/");
        let part = files_below(&out).into_iter().find(|file| file.starts_with(&under)).unwrap();
        let folder = out.join(part).parent().unwrap().to_owned();
        let query = query.replace("rows", &format!("'{}/'", folder.display()));
        let ended = voxelflow(["sql", &query, "--format", "json"]).expect_code(0);
        ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn words(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

#[test]
fn joined_runs_split_subjects_and_phenotypes_end_in_a_model_and_maps() {
    let lab = Lab::new();
    let text = lab.bold()
        + &lab.participants()
        + "CREATE TABLE parts AS SELECT * FROM split(series, by => 'subject', test => 0.25, seed => 7);
           CREATE TABLE described AS
             SELECT s.*, p.age FROM parts s JOIN participants p ON s.subject = p.subject;
           TRAIN MODEL dca USING dist_dca (hidden => 4, filters => [4], kernels => [5], pools => 1)
             ON (SELECT * FROM described WHERE split = 'train') VALIDATE ON (SELECT * FROM described WHERE split = 'test')
             WITH (minibatch => 16, epochs => 2, seed => 1);
           EXPORT MAPS FROM (SELECT subject, voxel, i, j, k, list_std(series) AS deviation, age FROM described)
             TO 'maps/{subject}_{column}.nii.gz';";
    lab.run(&text, "here", &[]).expect_code(0);
    let parts =
        |out: &str| lab.rows(out, "parts", "SELECT DISTINCT subject, split FROM rows ORDER BY subject");
    let of_subjects: BTreeMap<String, String> =
        parts("here").iter().map(|row| (words(&row["subject"]), words(&row["split"]))).collect();
    assert_eq!(
        of_subjects.keys().map(String::as_str).collect::<Vec<_>>(),
        SUBJECTS,
        "a subject has one part"
    );
    let part = |name: &str| -> Vec<Value> {
        of_subjects.iter().filter(|(_, part)| *part == name).map(|(s, _)| s.as_str().into()).collect()
    };
    assert_eq!((part("test").len(), part("train").len()), (1, 3));

    // What the model knows of its rows: subjects, both runs joined, and what was done to them.
    let statistics = fs::read(lab.folder.path().join("here/models/dca/statistics.json")).unwrap();
    let statistics: Value = serde_json::from_slice(&statistics).unwrap();
    assert_eq!(statistics["time_points"], 2 * VOLUMES);
    assert_eq!(statistics["subjects"], Value::from(part("train")));
    assert_eq!(statistics["validation_subjects"], Value::from(part("test")));
    let history = statistics["grid"]["history"].to_string();
    assert!(
        history.contains("run 1, 2 (2 × 20 points)") && history.contains("split: by subject"),
        "{history}"
    );

    // The age that the join has brought is the subject's, on the grid of the images.
    let map = lab.folder.path().join("here/maps/03_age.nii.gz");
    let (header, values) = NiftiReader::open(map).unwrap().read_all().unwrap();
    assert_eq!((header.shape, header.affine), ([4, 4, 4], affine(2.0)));
    assert!(values.iter().all(|age| *age == 22.0), "{values:?}");

    // Executors write the same.
    let tables = text.split("TRAIN MODEL").next().unwrap();
    lab.run(tables, "there", &["--executors", "2"]).expect_code(0);
    for (table, query) in [
        ("series", "SELECT * FROM rows ORDER BY subject, voxel"),
        ("parts", "SELECT * FROM rows ORDER BY subject, voxel"),
        ("described", "SELECT * FROM rows ORDER BY subject, voxel"),
    ] {
        let here = lab.rows("here", table, query);
        assert_eq!(here.len(), SUBJECTS.len() * 64);
        assert!(here == lab.rows("there", table, query), "{table}");
    }
}

#[test]
fn a_joined_series_holds_its_runs_in_order() {
    let lab = Lab::new();
    let text = lab.bold() + "CREATE TABLE backwards AS SELECT * FROM concatenate(runs, runs => ['2', '1']);";
    lab.run(&text, "out", &[]).expect_code(0);
    let numbers = |row: &Value| -> Vec<f64> {
        row["series"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
    };
    let series = |table: &str, filter: &str| -> Vec<Vec<f64>> {
        let query = format!("SELECT series FROM rows WHERE subject = '02' {filter} ORDER BY voxel");
        lab.rows("out", table, &query).iter().map(numbers).collect()
    };
    let (first, second) = (series("runs", "AND run = '1'"), series("runs", "AND run = '2'"));
    let joined: Vec<Vec<f64>> =
        first.iter().zip(&second).map(|(a, b)| [a.clone(), b.clone()].concat()).collect();
    assert_eq!(series("series", ""), joined);
    let backwards: Vec<Vec<f64>> =
        first.iter().zip(&second).map(|(a, b)| [b.clone(), a.clone()].concat()).collect();
    assert_eq!(series("backwards", ""), backwards);
}

#[test]
fn what_does_not_fit_is_refused_before_anything_runs() {
    let lab = Lab::new();
    image(&lab.folder.path().join("other.nii"), 0, 1, 1, 3.0);
    let other = format!(
        "CREATE EXTERNAL TABLE other STORED AS NIFTI LOCATION '{}' OPTIONS (mask 'none');\n",
        lab.folder.path().join("other.nii").display()
    );
    let refused = |text: &str, said: &[&str]| {
        let ended = lab.run(text, "refused", &[]).expect_code(2);
        for words in said {
            assert!(ended.stderr.contains(words), "`{words}` is missing in\n{}", ended.stderr);
        }
        let tables: BTreeSet<String> = files_below(&lab.folder.path().join("refused")).into_iter().collect();
        assert!(!tables.iter().any(|f| f.starts_with("tables/") || f.starts_with("models/")), "{tables:?}");
    };
    let bold = lab.bold();
    refused(
        &(bold.clone() + "SELECT * FROM split(series, tset => 0.2);"),
        &["tset", "did you mean `test`", "^^^^"],
    );
    refused(
        &(bold.clone() + "SELECT * FROM split(series, by => 'subjet', test => 0.2);"),
        &["`subject`", "^^"],
    );
    refused(&(bold.clone() + "SELECT * FROM concatenate(bold);"), &["runs => ['1', '2']"]);
    refused(&(bold.clone() + "SELECT * FROM clean(series, detrend => true);"), &["concatenate(clean(…), …)"]);
    // Voxels of one grid beside voxels of another one.
    let joined = "SELECT a.subject, a.voxel, list_mean(a.series) AS m, list_mean(b.series) AS n
                    FROM series a JOIN other b ON a.voxel = b.voxel;";
    refused(&(bold.clone() + &other + joined), &["other.nii", "different grids"]);
    // Rows of two grids are on none.
    let maps =
        "CREATE TABLE both AS SELECT subject, voxel, i, j, k, list_mean(series) AS m FROM bold UNION ALL
                  SELECT subject, voxel, i, j, k, list_mean(series) FROM other;
                EXPORT MAPS FROM both TO 'maps/m.nii.gz';";
    let text = bold.replace("CREATE TABLE", "CREATE VIEW") + &other + maps;
    refused(&text, &["grid"]);
    // A subject on both sides.
    let folds = bold
        + "CREATE TABLE parts AS SELECT * FROM split(series, by => 'voxel', folds => 2);
           TRAIN MODEL dca USING dist_dca (hidden => 4, filters => [4], kernels => [5], pools => 1)
             ON (SELECT * FROM parts WHERE fold = 0) VALIDATE ON (SELECT * FROM parts WHERE fold = 1);";
    let ended = lab.run(&folds, "leak", &[]).expect_code(2);
    assert!(ended.stderr.contains("subject 01, 02, 03, 04"), "{}", ended.stderr);
    assert!(!lab.folder.path().join("leak/models/dca").exists());
}

#[test]
fn a_file_without_statements_has_nothing_to_run() {
    let lab = Lab::new();
    for text in ["", "\n  \n", "-- nothing but a comment\n", ";"] {
        let ended = lab.run(text, "empty", &[]).expect_code(2);
        assert!(ended.stderr.contains("lab.vf") && ended.stderr.contains("no statement"), "{}", ended.stderr);
    }
    let ended = voxelflow(["check", lab.folder.path().join("lab.vf").to_str().unwrap()]).expect_code(2);
    assert!(ended.stderr.contains("no statement"), "{}", ended.stderr);
}

/// A table says which models its rows went through and what those have seen, and so does every table made of it.
#[test]
fn what_a_model_has_seen_is_known_of_tables_made_by_it() {
    let lab = Lab::new();
    let dca = "USING dist_dca (hidden => 4, filters => [4], kernels => [5], pools => 1)";
    let second = |validation: &str, settings: &str| {
        lab.bold()
            + &format!(
                "TRAIN MODEL first {dca} ON (SELECT * FROM series WHERE subject IN ('01', '02'))
                   WITH (minibatch => 16, epochs => 1, seed => 1);
                 CREATE TABLE made AS SELECT * EXCEPT (series), reconstruct(first, series) AS series FROM series;
                 CREATE VIEW seen AS SELECT subject, voxel, series FROM made WHERE voxel > 3;
                 CREATE TABLE later AS SELECT * FROM seen;
                 TRAIN MODEL second {dca} ON (SELECT * FROM later WHERE subject = '03')
                   VALIDATE ON (SELECT * FROM later WHERE subject = '{validation}')
                   WITH (minibatch => 16, epochs => 1, seed => 1{settings});"
            )
    };
    let ended = lab.run(&second("02", ""), "lineage", &[]).expect_code(2);
    for said in ["the model `first`", "subject 02", "subject_overlap => 'allow'"] {
        assert!(ended.stderr.contains(said), "{said}: {}", ended.stderr);
    }
    lab.run(&second("04", ""), "lineage", &[]).expect_code(0);
    lab.run(&second("02", ", subject_overlap => 'allow'"), "lineage", &[]).expect_code(0);
    lab.run(&second("02", ""), "executors", &["--executors", "2"]).expect_code(2);
}
