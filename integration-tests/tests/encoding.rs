//! Brain encoding on executors: the model of one process, shares of its work, and what a killed executor comes to.

use crate::{
    processes::{PATIENCE, Running, wait_for},
    program::{program, voxelflow},
};
use arrow::{
    array::{ArrayRef, FixedSizeListArray, Float32Array, Int64Array, StringArray, UInt32Array},
    datatypes::{DataType, Field, Schema},
    record_batch::RecordBatch,
};
use parquet::arrow::ArrowWriter;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};
use tempfile::TempDir;

const RUNS: usize = 4;

/// Series that follow from features, and noise, as Parquet: one file a run, and one of features.
struct Study {
    folder: TempDir,
}

/// Numbers between −1 and 1 that look like noise.
fn noise(n: usize) -> f32 {
    let mut z = (n as u64).wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (((z ^ (z >> 31)) >> 40) as f32 / (1 << 23) as f32) - 1.0
}

impl Study {
    fn new(stage: &str, samples: usize, features: usize, voxels: usize, statement: &str) -> Self {
        let study = Self { folder: tempfile::tempdir().unwrap() };
        let x = |run: usize, t: usize, j: usize| noise(run * 1_000_003 + t * 1_009 + j);
        let series = study.folder.path().join("series");
        fs::create_dir_all(&series).unwrap();
        for run in 0..RUNS {
            let value = |voxel: usize, t: usize| match voxel {
                0 => 7.0,
                _ => {
                    let seen = (0..features.min(4)).map(|j| x(run, t, j) * noise(voxel * 31 + j));
                    seen.sum::<f32>() + 0.5 * noise((voxel * samples + t) * 7 + run)
                }
            };
            let values = (0..voxels).flat_map(|voxel| (0..samples).map(move |t| value(voxel, t))).collect();
            let columns: [(&str, ArrayRef); 4] = [
                ("subject", Arc::new(StringArray::from(vec!["01"; voxels]))),
                ("run", Arc::new(StringArray::from(vec![run.to_string(); voxels]))),
                ("voxel", Arc::new(UInt32Array::from_iter_values(0..voxels as u32))),
                ("series", lists(values, samples)),
            ];
            write(&series.join(format!("run-{run}.parquet")), &columns);
        }
        let rows = || (0..RUNS).flat_map(|run| (0..samples).map(move |t| (run, t)));
        let values = rows().flat_map(|(run, t)| (0..features).map(move |j| x(run, t, j))).collect();
        let columns: [(&str, ArrayRef); 3] = [
            (
                "run",
                Arc::new(StringArray::from_iter_values(
                    rows().map(|(run, _)| run.to_string()).collect::<Vec<_>>(),
                )),
            ),
            ("tr", Arc::new(Int64Array::from(rows().map(|(_, t)| t as i64).collect::<Vec<_>>()))),
            ("x", lists(values, features)),
        ];
        write(&study.folder.path().join("stimuli.parquet"), &columns);
        let at = study.folder.path().display();
        let text = format!(
            "TRAIN MODEL enc USING {stage} ({statement}, precision => 'f64')\n\
             ON (SELECT * FROM '{at}/series/' WHERE run <> '3')\n\
             FEATURES (SELECT * FROM '{at}/stimuli.parquet')\n\
             VALIDATE ON (SELECT * FROM '{at}/series/' WHERE run = '3') WITH (ranks => $ranks);\n"
        );
        fs::write(study.folder.path().join("enc.vf"), text).unwrap();
        study
    }

    fn out(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn arguments(&self, name: &str, ranks: usize, flags: &[&str]) -> Vec<String> {
        let file = self.folder.path().join("enc.vf").display().to_string();
        let out = self.out(name).display().to_string();
        let given = ["run".to_owned(), file, "--set".into(), format!("ranks={ranks}"), "--out".into(), out];
        given.into_iter().chain(flags.iter().map(|flag| (*flag).to_owned())).collect()
    }

    /// Runs to the end; gives the model's table, a row a voxel.
    fn run(&self, name: &str, ranks: usize, flags: &[&str]) -> Vec<Vec<Option<f64>>> {
        voxelflow(self.arguments(name, ranks, flags)).expect_code(0);
        let table = self.out(name).join("models/enc/targets.parquet");
        let sql =
            format!("SELECT voxel, alpha, score, r, r2, intercept FROM '{}' ORDER BY voxel", table.display());
        let text = voxelflow(["sql", &sql, "--format", "csv"]).expect_code(0).stdout;
        let rows = text.lines().skip(1);
        rows.map(|row| row.split(',').map(|cell| cell.parse().ok()).collect()).collect()
    }

    fn report(&self, name: &str, file: &str) -> Value {
        serde_json::from_slice(&fs::read(self.out(name).join("models/enc").join(file)).unwrap()).unwrap()
    }
}

fn lists(values: Vec<f32>, length: usize) -> ArrayRef {
    let item = Arc::new(Field::new_list_field(DataType::Float32, false));
    Arc::new(FixedSizeListArray::new(item, length as i32, Arc::new(Float32Array::from(values)), None))
}

fn write(path: &Path, columns: &[(&str, ArrayRef)]) {
    let fields: Vec<Field> =
        columns.iter().map(|(name, column)| Field::new(*name, column.data_type().clone(), false)).collect();
    let schema = Arc::new(Schema::new(fields));
    let arrays = columns.iter().map(|(_, column)| Arc::clone(column)).collect();
    let mut writer = ArrowWriter::try_new(File::create(path).unwrap(), Arc::clone(&schema), None).unwrap();
    writer.write(&RecordBatch::try_new(schema, arrays).unwrap()).unwrap();
    writer.close().unwrap();
}

#[test]
fn four_ranks_on_four_executors_give_the_model_of_one_process() {
    let bands = "bands => {'first': ['x[0]', 'x[1]'], 'rest': ['x[2]', 'x[3]', 'x[4]']}";
    let banded = format!("{bands}, n_iter => 6, alphas => [0.1, 1, 10, 100], delays => [0, 1]");
    for (stage, options) in [
        ("ridge_cv", "alphas => [0.1, 1, 10, 100], cv => 'run', delays => [0, 1]"),
        ("ridge_cv", "alphas => [1, 10], cv => 'loo'"),
        ("banded_ridge_cv", banded.as_str()),
    ] {
        let study = Study::new(stage, 60, 5, 40, options);
        let here = study.run("here", 1, &[]);
        let there = study.run("there", 4, &["--executors", "4", "--slots", "1"]);
        assert_eq!((here.len(), there.len()), (40, 40));
        assert_eq!(here[0], [Some(0.0), None, None, None, None, None], "voxel 0 is constant");
        let explained = here[1..].iter().filter(|row| row[3].unwrap() > 0.5).count();
        assert!(explained > 30, "{here:?}");
        for (here, there) in here.iter().zip(&there) {
            assert_eq!(here[..2], there[..2], "the penalty of a voxel");
            for (here, there) in here.iter().zip(there) {
                let equal = match (here, there) {
                    (Some(here), Some(there)) => (here - there).abs() <= 1e-9 * here.abs().max(1.0),
                    (here, there) => here == there,
                };
                assert!(equal, "{here:?} in one process, {there:?} on executors");
            }
        }
        let ranks = study.report("there", "ridge.json");
        let ranks = ranks["ranks"].as_array().unwrap();
        assert_eq!(ranks.iter().map(|rank| rank["targets"].as_u64().unwrap()).sum::<u64>(), 40);
        let members = study.report("there", "gang.json");
        let mut processes: Vec<u64> =
            members["members"].as_array().unwrap().iter().map(|m| m["pid"].as_u64().unwrap()).collect();
        processes.sort_unstable();
        processes.dedup();
        assert_eq!(processes.len(), 4, "{members}");
    }
}

/// What a model predicts, by run and voxel: mean and standard deviation, and r with what was measured.
fn predicted(out: &Path) -> Vec<Vec<Option<f64>>> {
    let rows = |table: &str| {
        let entries = fs::read_dir(out.join("tables").join(table)).unwrap();
        let folders: Vec<PathBuf> = entries.map(|e| e.unwrap().path()).filter(|path| path.is_dir()).collect();
        assert_eq!(folders.len(), 1, "{folders:?}");
        folders[0].display().to_string()
    };
    let (predicted, compared) = (rows("predicted"), rows("compared"));
    let sql = format!(
        "SELECT p.run, p.voxel, list_mean(p.series), list_std(p.series), c.r \
         FROM '{predicted}/' p JOIN '{compared}/' c ON p.run = c.run AND p.voxel = c.voxel \
         ORDER BY p.run, p.voxel"
    );
    let text = voxelflow(["sql", &sql, "--format", "csv"]).expect_code(0).stdout;
    text.lines().skip(1).map(|row| row.split(',').map(|cell| cell.parse().ok()).collect()).collect()
}

/// A file trains and predicts; another one predicts by the folder that was left, with and without executors.
#[test]
fn a_model_predicts_the_same_in_one_process_on_executors_and_from_its_folder() {
    let bands = "bands => {'first': ['x[0]', 'x[1]'], 'rest': ['x[2]', 'x[3]', 'x[4]']}";
    let banded = format!("{bands}, n_iter => 6, alphas => [0.1, 1, 10, 100], delays => [0, 1]");
    for (stage, options) in [
        ("ridge_cv", "alphas => [0.1, 1, 10], cv => 'run', delays => [0, 1]"),
        ("banded_ridge_cv", banded.as_str()),
    ] {
        let study = Study::new(stage, 60, 5, 40, options);
        let at = study.folder.path().display().to_string();
        let file = study.folder.path().join("enc.vf");
        let training = fs::read_to_string(&file).unwrap();
        let statements = |model: &str| {
            format!(
                "CREATE TABLE predicted AS SELECT * FROM predict({model}, (SELECT * FROM '{at}/stimuli.parquet'));\n\
                 CREATE TABLE compared AS SELECT s.run, s.voxel, pearson_r(p.series, s.series) AS r\n\
                   FROM predicted p JOIN '{at}/series/' s ON p.run = s.run AND p.voxel = s.voxel;\n\
                 CREATE TABLE one AS\n\
                   SELECT * FROM predict({model}, (SELECT * FROM '{at}/stimuli.parquet' WHERE run = '3'));\n"
            )
        };
        fs::write(&file, training + &statements("enc")).unwrap();
        let targets = study.run("here", 1, &[]);
        let here = predicted(&study.out("here"));
        assert_eq!(here.len(), RUNS * 40);
        assert_eq!(here[0][2..], [None; 3], "voxel 0 is constant");
        let held_out = here.iter().filter(|row| row[0] == Some(3.0));
        for (row, target) in held_out.zip(&targets) {
            match (row[4], target[3]) {
                (Some(found), Some(r)) => {
                    assert!((found - r).abs() < 1e-6, "r is {r}, of predictions {found}")
                }
                (found, r) => assert_eq!(found, r),
            }
        }
        let folder = study.out("here").join("models/enc").display().to_string();
        fs::write(&file, statements(&format!("'{folder}'"))).unwrap();
        for (name, flags) in [("again", &[][..]), ("there", &["--executors", "2", "--slots", "2"][..])] {
            voxelflow(study.arguments(name, 1, flags)).expect_code(0);
            assert_eq!(predicted(&study.out(name)), here, "{name}");
        }

        // What was predicted stands until the model is another one.
        let unchanged = voxelflow(study.arguments("again", 1, &[])).expect_code(0).stdout;
        assert_eq!(unchanged.matches("unchanged").count(), 3, "{unchanged}");
        let config = Path::new(&folder).join("config.json");
        fs::write(&config, fs::read(&config).unwrap()).unwrap();
        let changed = voxelflow(study.arguments("again", 1, &[])).expect_code(0).stdout;
        assert_eq!(changed.matches("unchanged").count(), 0, "{changed}");
    }
}

/// What is wrong with features to predict from is said before anything is trained, as far as their columns tell.
#[test]
fn features_that_are_not_the_models_are_refused_before_it_is_trained() {
    let study = Study::new("ridge_cv", 20, 2, 3, "alphas => [1], cv => 'run'");
    let file = study.folder.path().join("enc.vf");
    let training = fs::read_to_string(&file).unwrap();
    let stimuli = study.folder.path().join("stimuli.parquet").display().to_string();
    for (arguments, says) in [
        (format!("enc, (SELECT run, tr, x[1] AS y FROM '{stimuli}')"), "needs `x[0]`, `x[1]`, which"),
        (format!("enc, (SELECT *, 1 AS y FROM '{stimuli}')"), "`y` is not among the features of the model"),
        (format!("enc, (SELECT run, x FROM '{stimuli}')"), "predict needs the column `tr`"),
        (
            format!("enk, (SELECT * FROM '{stimuli}')"),
            "unknown model `enk` in predict(…), did you mean `enc`?",
        ),
        (format!("enc, (SELECT * FROM '{stimuli}'), volumes => 3"), "unknown option `volumes`"),
    ] {
        fs::write(&file, format!("{training}SELECT * FROM predict({arguments});\n")).unwrap();
        let ended = voxelflow(study.arguments("wrong", 1, &[])).expect_code(2);
        assert!(ended.stderr.contains(says), "{says:?} is missing in\n{}", ended.stderr);
        assert!(!study.out("wrong").join("models/enc").exists());
    }
    let late = format!("SELECT * FROM predict(enc, (SELECT * FROM '{stimuli}' WHERE tr < 9));\n");
    fs::write(&file, training + &late).unwrap();
    let ended = voxelflow(study.arguments("late", 1, &[])).expect_code(2);
    assert!(
        ended.stderr.contains("has 9 samples of features, and the series are to have 20"),
        "{}",
        ended.stderr
    );
}

/// A rank that is lost ends the training at once, and nothing is published; the next run of the statement gives the
/// model.
#[test]
fn a_killed_executor_ends_the_training_and_the_next_run_gives_the_model() {
    // Long enough to be met at work.
    let alphas: Vec<String> = (1..40).map(|alpha| alpha.to_string()).collect();
    let options =
        format!("alphas => [{}], cv => 'run', delays => [0, 1, 2, 3, 4, 5, 6, 7]", alphas.join(", "));
    let study = Study::new("ridge_cv", 250, 40, 1_500, &options);
    let mut command = program("voxelflow");
    command.args(study.arguments("killed", 4, &["--executors", "4", "--slots", "1"]));
    let mut run = Running::start(command);
    let note = study.out("killed").join("models/.enc.run.json");
    let members: Vec<i64> = wait_for("the gang to be noted", || {
        let note: Value = serde_json::from_slice(&fs::read(&note).ok()?).ok()?;
        let members = note["gang"]["members"].as_array()?.clone();
        let live = members.len() == 4 && members.iter().all(|member| member["standing"] == "live");
        let pids: Option<Vec<i64>> = members.iter().map(|member| member["pid"].as_i64()).collect();
        pids.filter(|_| live)
    });
    let killed = Instant::now();
    kill_process(Pid::from_raw(i32::try_from(members[2]).unwrap()).unwrap(), Signal::KILL).unwrap();
    let (status, said) = run.end();
    println!("ended {:?} after the kill", killed.elapsed());
    assert!(killed.elapsed() < PATIENCE);
    assert_eq!(status.code(), Some(1), "{said}");
    // The killed one, or one that left because of it.
    assert!(said.contains("has left the gang"), "{said}");
    assert!(!study.out("killed").join("models/enc").exists());
    let again = study.run("killed", 4, &["--executors", "4", "--slots", "1"]);
    assert_eq!(again.len(), 1_500);
}

/// What is wrong is said before any rank is asked for, with exit code 2.
#[test]
fn what_does_not_fit_is_the_users_to_mend() {
    let study = Study::new("ridge_cv", 20, 2, 3, "alphas => [1], cv => 'run'");
    let file = study.folder.path().join("enc.vf");
    let text = fs::read_to_string(&file).unwrap();
    for (from, to, says) in [
        ("run <> '3'", "run = '1'", "'run' needs two runs or more"),
        (
            "stimuli.parquet')",
            "stimuli.parquet' WHERE tr < 19)",
            "has 19 samples of features, and series of 20",
        ),
        ("FEATURES (SELECT * FROM", "FEATURES (SELECT run, tr, x, x AS y FROM", "features are duplicated"),
        ("alphas => [1]", "alphsa => [1]", "did you mean `alphas`?"),
        ("ranks => $ranks", "ranks => $ranks, minibatch => 4", "takes no steps"),
    ] {
        let changed = text.replace(from, to).replace("alphas => [1],", "alphas => [1e-15],");
        assert_ne!(changed, text);
        fs::write(&file, changed).unwrap();
        let ended = voxelflow(study.arguments("wrong", 2, &[])).expect_code(2);
        assert!(ended.stderr.contains(says), "{says:?} is missing in\n{}", ended.stderr);
    }
    fs::write(&file, &text).unwrap();
    study.run("right", 2, &[]);
}

/// What a fit needs is told before it runs; one that does not fit is refused with what would, and that does.
#[test]
fn a_fit_is_planned_and_one_that_does_not_fit_is_refused() {
    let study = Study::new(
        "ridge_cv",
        100,
        200,
        2_000,
        "alphas => [1, 10], cv => 'run', delays => [0, 1, 2, 3, 4, 5, 6, 7]",
    );
    let file = study.folder.path().join("enc.vf");
    let text = fs::read_to_string(&file).unwrap();
    let refused = |flags: &[&str], ranks: usize| {
        let said = voxelflow(study.arguments("tight", ranks, flags)).expect_code(2).stderr;
        assert!(said.contains("300 samples, 1600 features and 2000 targets need"), "{said}");
        assert!(!study.out("tight").join("models/enc").exists(), "{said}");
        said
    };
    // A little less than what it says that it needs.
    let less = |flags: &[&str], ranks: usize| {
        let said = refused(flags, ranks);
        let needed = said.split("targets need ").nth(1).and_then(|rest| rest.split(' ').next());
        format!("{}MiB", needed.and_then(|mib| mib.parse::<usize>().ok()).expect(&said) - 4)
    };
    let one = less(&["--memory", "100MiB"], 1);
    let each = less(&["--memory", "100MiB", "--executors", "2", "--slots", "1"], 2);
    let tight = ["--memory", one.as_str()];
    let executors = ["--memory", each.as_str(), "--executors", "2", "--slots", "1"];
    let said = refused(&tight, 1);
    refused(&executors, 2);
    let block = said.split("blocks of ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    let block: usize = block.parse().unwrap();
    assert!(block < 1024 && said.contains("(now 1024) would fit"), "{said}");
    let smaller = text.replace("alphas", &format!("block => {block}, alphas"));
    fs::write(&file, smaller).unwrap();
    // Ranks that are threads of one process add up; on executors each has its own memory.
    assert!(refused(&tight, 4).contains("in 4 ranks of one process"));
    let fitted = voxelflow(study.arguments("tight", 1, &tight)).expect_code(0);
    assert!(fitted.stderr.contains("train enc: plan: 1600 × 2000 coefficients, "), "{}", fitted.stderr);
    study.run("there", 2, &executors);
    assert_eq!(study.report("there", "ridge.json")["n_features"], 1600);

    // How many coefficients there are, features and targets say.
    let explained = text.replace("TRAIN", "EXPLAIN TRAIN").replace(" WHERE run <> '3'", "");
    let (before, rest) = explained.split_once("VALIDATE ON").unwrap();
    let with = rest.split_once("WITH").unwrap().1;
    fs::write(&file, format!("{before}WITH{with}").replace("cv => 'run'", "cv => 'loo'")).unwrap();
    let plan = voxelflow(study.arguments("explained", 1, &[])).expect_code(0).stdout;
    assert!(!plan.contains("parameters="), "{plan}");
}

/// The same of banded ridge; a feature that is in no band is told when the plan is explained.
#[test]
fn a_banded_fit_is_planned_and_one_that_does_not_fit_is_refused() {
    let others: Vec<String> = (2..10).map(|digit| format!("'x[{digit}*'")).collect();
    let bands = format!("{{'a': 'x[1*', 'b': ['x[0]', {}]}}", others.join(", "));
    let options = format!("bands => {bands}, n_iter => 3, alphas => [1, 10]");
    let study = Study::new("banded_ridge_cv", 100, 200, 2_000, &options);
    let file = study.folder.path().join("enc.vf");
    let text = fs::read_to_string(&file).unwrap();
    let fitted = voxelflow(study.arguments("there", 1, &[])).expect_code(0).stderr;
    let planned = fitted.split("train enc: plan: 200 × 2000 coefficients, ").nth(1).unwrap();
    let needed: usize = planned.split(' ').next().unwrap().parse().unwrap();

    let tight = format!("{}MiB", needed - 8);
    let tight = ["--memory", tight.as_str()];
    let said = voxelflow(study.arguments("tight", 1, &tight)).expect_code(2).stderr;
    assert!(said.contains("banded_ridge_cv: 300 samples, 200 features and 2000 targets need"), "{said}");
    let block = said.split("blocks of ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    fs::write(&file, text.replace("alphas", &format!("block => {block}, alphas"))).unwrap();
    voxelflow(study.arguments("tight", 1, &tight)).expect_code(0);

    // Without a filter, the rows of the tables are known before they are read.
    let explained = text.replace("TRAIN", "EXPLAIN TRAIN").replace(" WHERE run <> '3'", "");
    let (before, rest) = explained.split_once("VALIDATE ON").unwrap();
    let explained = format!("{before}WITH{}", rest.split_once("WITH").unwrap().1);
    fs::write(&file, &explained).unwrap();
    let plan = voxelflow(study.arguments("explained", 1, &[])).expect_code(0).stdout;
    assert!(plan.contains("needs 200 × 2000 coefficients, "), "{plan}");
    fs::write(&file, explained.replace("'x[0]', ", "")).unwrap();
    let plan = voxelflow(study.arguments("explained", 1, &[])).expect_code(0).stdout;
    assert!(plan.contains("feature `x[0]` is in no band"), "{plan}");
}

/// A card serves leave-one-out with one penalty for all targets, and one rank; what it does not serve is told with what to
/// write instead, before it is asked.
#[test]
fn what_a_card_does_not_serve_is_refused() {
    let study = Study::new("ridge_cv", 20, 2, 3, "alphas => [1, 10], cv => 'loo'");
    let file = study.folder.path().join("enc.vf");
    let text = fs::read_to_string(&file).unwrap().replace("$ranks", "$ranks, device => 'cuda:97'");
    for (from, to, ranks, says) in [
        ("'loo'", "'loo', alpha_per_target => true", 1, "is false with cv => 'loo' and device => 'cuda:97'"),
        ("'loo'", "'loo', scoring => 'pearson'", 1, "is 'r2' or 'neg_mean_squared_error' with cv => 'loo'"),
        ("'loo'", "'run', baseline => 'mor'", 1, "is not given with device => 'cuda:97'"),
        ("'loo'", "'loo'", 2, "is 1 with device => 'cuda:97', not 2"),
        ("cuda:97", "cuda:97,98", 1, "is one card for ridge_cv, not 'cuda:97,98'"),
        ("cuda:97", "tpu", 1, "`tpu` is not a device"),
        // No machine has so many, and most that test this have none.
        ("'loo'", "'loo'", 1, "device => 'cpu'"),
        ("'loo'", "'run', alpha_per_target => true, scoring => 'pearson'", 1, "device => 'cpu'"),
    ] {
        fs::write(&file, text.replace(from, to)).unwrap();
        let ended = voxelflow(study.arguments("card", ranks, &[])).expect_code(2);
        assert!(ended.stderr.contains(says), "{says:?} is missing in\n{}", ended.stderr);
    }
}

/// What text alone decides is told by `check`, with its place.
#[test]
fn options_that_can_never_work_are_refused_when_they_are_checked() {
    let study = Study::new("ridge_cv", 20, 2, 3, "alphas => [1], cv => 'run'");
    let file = study.folder.path().join("enc.vf");
    let text = fs::read_to_string(&file).unwrap().replace("$ranks", "1");
    let validate = text.find("VALIDATE").unwrap()..text.find(" WITH").unwrap();
    let mut without = text.clone();
    without.replace_range(validate, "");
    let own = "alphas => [1]";
    for (text, more, option, says) in [
        (&without, "permutations => 99", "permutations", "name them in VALIDATE ON"),
        (&text, "permutation => 'shuffle'", "permutation", "permutations => 1000"),
        (&text, "permutation_length => 3", "permutation_length", "permutations => 1000"),
        (
            &text,
            "permutations => 9, permutation => 'shuffle', permutation_length => 3",
            "permutation_length",
            "one by one",
        ),
    ] {
        let changed = text.replace(own, &format!("{own}, {more}"));
        fs::write(&file, &changed).unwrap();
        let ended = voxelflow(["check".as_ref(), file.as_os_str()]).expect_code(2);
        assert!(ended.stderr.contains(says), "{says:?} is missing in\n{}", ended.stderr);
        let column = changed.rfind(&format!("{option} =>")).unwrap() + 1;
        assert!(
            ended.stderr.contains(&format!("enc.vf:1:{column}")),
            "{option} at {column}:\n{}",
            ended.stderr
        );
    }
    fs::write(&file, text).unwrap();
    voxelflow(["check".as_ref(), file.as_os_str()]).expect_code(0);
}
