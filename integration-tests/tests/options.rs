//! Every option does something: what each does that no other test shows, by the value, file or message that it changes,
//! and that there is none without a test.

use crate::counting::{Counting, checkpoints_in};
use crate::design::{numbers, query};
use crate::processes::Running;
use crate::program::{Ended, program, root, run_text, voxelflow};
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;
use voxelflow_formats::{NiftiSpec, NiftiWriter};
use voxelflow_sync::{Deadlines, SyncSettings};

const HERE: &str = "integration-tests/tests/options.rs";

/// Of what there are options, which, and the test that fails where they do nothing: its file, if it is not this one, and
/// its name.
const TESTED: &str = "
clean: confounds denoise_strategy motion wm_csf global_signal compcor n_compcor ica_aroma first_volume | confounds_are_those_that_are_asked_for
clean: scrub fd_threshold std_dvars_threshold non_steady_state | volumes_are_dropped_by_the_thresholds_that_are_given
clean: detrend standardize filter high_pass low_pass | ml/signal/tests/cleaning.rs every_combination_of_settings_gives_nilearns_numbers
clean: t_r | a_repetition_time_that_is_given_counts
clean: not_finite | ml/operators/tests/operators/clean.rs series_that_are_not_finite_are_dropped_or_zeroed_and_counted
design: hrf_model drift_model high_pass drift_order fir_delays min_onset oversampling start_time t_r | designs_are_as_their_options_say
design: slice_time_ref | integration-tests/tests/design.rs a_start_time_in_the_sidecar_moves_the_peak
design: missing_duration | ml/operators/tests/operators/design.rs what_was_merged_or_left_out_is_in_the_ledger_with_its_place
split: test validation seed | ml/operators/tests/operators/split.rs subjects_stay_whole_whatever_the_partitions_and_the_order
split: by folds stratify | ml/operators/tests/operators/split.rs folds_and_strata_are_even
concatenate: by runs | ml/operators/tests/operators/concatenate.rs what_cannot_be_joined_is_refused
concatenate: missing | ml/operators/tests/operators/concatenate.rs voxels_that_a_run_lacks_are_an_error_or_left_out
predict: model | ml/operators/tests/operators/predict.rs predictions_are_those_of_scikit_learn_and_give_the_r_of_the_model
predict: time_points | ml/operators/tests/operators/predict.rs what_does_not_fit_is_refused_with_names
dist_dca: hidden filters kernels pools pool_window lambda switches activation | the_autoencoder_is_as_its_options_say
histogram: bins | a_training_is_as_long_and_as_wide_as_its_settings_say
ridge_cv: alphas delays alpha_per_target | ml/operators/tests/operators/encoding.rs the_statement_gives_the_numbers_of_scikit_learn_with_any_number_of_ranks
ridge_cv: baseline | ml/operators/tests/operators/encoding.rs baselines_find_the_same_and_decompose_the_features_again_and_again
ridge_cv: block | integration-tests/tests/encoding.rs a_fit_is_planned_and_one_that_does_not_fit_is_refused
ridge_cv: cv gap scoring precision | penalties_are_compared_as_the_options_say
ridge_cv: permutations permutation permutation_length | predictions_are_rearranged_as_the_options_say
banded_ridge_cv: alphas delays alpha_per_target bands | ml/operators/tests/operators/banded.rs the_statement_gives_the_numbers_of_himalaya_with_any_number_of_ranks
banded_ridge_cv: block | integration-tests/tests/encoding.rs a_banded_fit_is_planned_and_one_that_does_not_fit_is_refused
banded_ridge_cv: cv gap scoring precision | penalties_are_compared_as_the_options_say
banded_ridge_cv: permutations permutation permutation_length | predictions_are_rearranged_as_the_options_say
banded_ridge_cv: n_iter concentration gammas | weights_of_bands_are_drawn_as_the_options_say
TRAIN MODEL: ranks minibatch epochs max_steps shuffle seed warm_up learning_rate reduction | a_training_is_as_long_and_as_wide_as_its_settings_say
TRAIN MODEL: optimizer momentum beta_2 epsilon | optimizers_take_the_steps_of_their_constants
TRAIN MODEL: local_steps outer outer_learning_rate outer_momentum consistency n_fetch n_push delay_compensation | rounds_are_as_the_settings_of_the_gang_say
TRAIN MODEL: broadcast_every | a_ring_broadcasts_as_often_as_it_is_told
TRAIN MODEL: topology | ml/operators/tests/operators/explain.rs a_ring_has_no_shards
TRAIN MODEL: staleness | ml/sync/src/conformance/gradient_sync.rs nobody_leads_by_more
TRAIN MODEL: parameter_servers | integration-tests/tests/commands.rs plan_and_explain_name_ranks_and_shards
TRAIN MODEL: checkpoint_every checkpoint_steps checkpoint_keep | checkpoints_are_as_many_and_as_far_apart_as_the_settings_say
TRAIN MODEL: codec deterministic | values_travel_between_processes_as_the_codec_says
TRAIN MODEL: memory_mib cards gang_deadline_seconds | ranks_get_the_room_that_they_ask_for
TRAIN MODEL: max_rank_restarts | a_rank_is_not_started_anew_more_often_than_it_may
TRAIN MODEL: heartbeat_timeout_seconds | a_rank_may_be_silent_for_as_long_as_the_settings_say
TRAIN MODEL: heartbeat_seconds | members_wait_as_long_as_the_settings_say
TRAIN MODEL: hold_seconds | integration-tests/tests/cluster_resume.rs ranks_leave_a_driver_that_stays_away_with_a_checkpoint_and_for_good
TRAIN MODEL: min_ranks deadline_seconds | integration-tests/tests/cluster_membership.rs below_min_ranks_a_gang_pauses_says_who_is_missing_and_fails_at_its_deadline
TRAIN MODEL: pool | integration-tests/tests/cluster_queues.rs a_full_pool_is_waited_for_while_another_one_is_free
TRAIN MODEL: queue | integration-tests/tests/cluster_queues.rs a_queue_has_its_share_while_another_one_has_work_waiting
TRAIN MODEL: spool | ml/operators/tests/operators/train.rs rows_are_spooled_where_the_statement_says
TRAIN MODEL: subject_overlap | ml/operators/tests/operators/split.rs a_leak_is_refused
TRAIN MODEL: voxels | ml/operators/tests/operators/masks.rs voxels_that_all_runs_have_are_fitted_if_asked
TRAIN MODEL: device | integration-tests/tests/commands.rs a_card_that_is_not_there_is_not_warmed_up_or_trained_on
TRAIN MODEL: precision | products_of_less_than_32_bits_need_a_card
EXPORT MAPS: fill | connectors/tables/tests/nifti_table.rs voxels_without_a_value_are_nan_or_what_fill_says
NIFTI: subject session task run space | keys_that_are_given_outrank_names
NIFTI: t_r | a_repetition_time_that_is_given_counts
NIFTI: mask target interpolation smoothing_fwhm atlas atlas_labels strategy background_label | volumes_become_rows_as_the_options_say_in_every_layout
NIFTI: memory_limit | series_over_the_limit_are_kept_in_a_temporary_file
NIFTI: xform | connectors/tables/tests/nifti_table.rs images_whose_transforms_disagree_are_read_by_the_one_that_is_chosen
NIFTI: one_run confounds events | connectors/tables/tests/nifti_table.rs images_of_one_volume_are_the_volumes_of_a_run
BIDS: subject session task run space res desc cohort echo part acq ce rec dir den | entities_choose_the_images_of_a_bids_folder
BIDS: t_r | a_repetition_time_that_is_given_counts
BIDS: mask target interpolation smoothing_fwhm atlas atlas_labels strategy background_label | volumes_become_rows_as_the_options_say_in_every_layout
BIDS: memory_limit | series_over_the_limit_are_kept_in_a_temporary_file
BIDS: xform | the_transform_that_is_chosen_is_believed_in_folders_too
BIDS: kind hemi | connectors/tables/tests/run_series.rs both_hemispheres_of_every_run_are_rows
BIDS: raw | connectors/tables/tests/run_tables.rs events_come_from_the_raw_dataset_and_belong_to_what_a_table_is
BIDS: incomplete | connectors/tables/tests/run_tables.rs runs_that_cannot_be_used_are_refused_or_skipped_with_a_word
HCP: subject task run desc | names_choose_the_images_of_an_hcp_folder
HCP: t_r | a_repetition_time_that_is_given_counts
HCP: mask target interpolation smoothing_fwhm atlas atlas_labels strategy background_label | volumes_become_rows_as_the_options_say_in_every_layout
HCP: memory_limit | series_over_the_limit_are_kept_in_a_temporary_file
HCP: incomplete | names_choose_the_images_of_an_hcp_folder
HCP: xform | the_transform_that_is_chosen_is_believed_in_folders_too
HCP: kind | connectors/tables/tests/run_series.rs grayordinates_of_fmriprep_and_of_hcp_are_rows
GIFTI MGH CIFTI NPY: subject session task run space | keys_that_are_given_outrank_names
GIFTI MGH CIFTI NPY: t_r | a_repetition_time_that_is_given_counts
GIFTI MGH CIFTI NPY: confounds events | connectors/tables/tests/series_tables.rs confounds_are_those_of_the_one_run
GIFTI MGH CIFTI NPY: smoothing_fwhm mesh | connectors/tables/tests/series_tables.rs surfaces_are_smoothed_along_their_mesh_around_vertices_without_signal
GIFTI MGH CIFTI NPY: memory_limit | series_over_the_limit_are_kept_in_a_temporary_file
EVENTS EV CONFOUNDS MOVEMENT GRADIENTS TSV: subject session task run | keys_that_are_given_outrank_names
PARTICIPANTS PHENOTYPE: session task run | keys_that_are_given_outrank_names
PARTICIPANTS PHENOTYPE: subject | options_that_could_only_be_ignored_are_refused
";

const BOLD: &str = "examples/data/ds003_sub-01_mc.nii.gz";
const LAYOUTS: &str = "connectors/tables/tests/fixtures/layouts";
const GIFTI: &str = "connectors/formats/tests/fixtures/gifti/series_gzip_big.func.gii";
const MGH: &str = "connectors/formats/tests/fixtures/mgh/surface_f4.mgz";
const CIFTI: &str = "connectors/formats/tests/fixtures/cifti/series.dtseries.nii";
const NPY: &str = "connectors/tables/tests/fixtures/precision/float64.npy";

/// Formats that are not ours.
const OTHER_FORMATS: [&str; 6] = ["ARROW", "AVRO", "CSV", "JSON", "NDJSON", "PARQUET"];

/// What `check` says is wrong with a text.
fn wrong(text: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wrong.vf");
    fs::write(&file, text).unwrap();
    voxelflow(["check".as_ref(), file.as_os_str()]).expect_code(2).stderr
}

/// What is listed behind `before` where a name is wrong, and how many more there are.
fn listed(text: &str, before: &str) -> (BTreeSet<String>, usize) {
    let said = wrong(text);
    let list = said.split(before).nth(1).expect(&said).lines().next().unwrap_or_default();
    let (names, more) = match list.split_once(" and ") {
        Some((names, more)) => (names, more.split(' ').next().and_then(|count| count.parse().ok()).unwrap()),
        None => (list, 0),
    };
    // Words behind a name explain it.
    (names.split(", ").filter(|name| !name.contains(' ')).map(str::to_owned).collect(), more)
}

/// The text that asks for an option that there is not, of everything that has options.
fn askers() -> BTreeMap<String, String> {
    let bold = format!(
        "CREATE EXTERNAL TABLE bold STORED AS NIFTI LOCATION '{BOLD}' OPTIONS (mask 'none', t_r 2);\n"
    );
    let features = "(SELECT run, 0 AS tr, 1.0 AS x FROM bold)";
    let mut texts = BTreeMap::new();
    for operator in ["clean", "design", "split", "concatenate"] {
        texts.insert(operator, format!("{bold}SELECT * FROM {operator}(bold, no_such_option => 1);"));
    }
    let train = format!("{bold}TRAIN MODEL m USING");
    let predict = format!(
        "{train} ridge_cv ON bold FEATURES {features};\nSELECT * FROM predict(m, {features}, no_such_option => 1);"
    );
    texts.insert("predict", predict);
    for stage in ["dist_dca", "histogram"] {
        texts.insert(stage, format!("{train} {stage} (no_such_option => 1) ON bold;"));
    }
    for stage in ["ridge_cv", "banded_ridge_cv"] {
        texts.insert(stage, format!("{train} {stage} (no_such_option => 1) ON bold FEATURES {features};"));
    }
    texts.insert("TRAIN MODEL", format!("{train} histogram ON bold WITH (no_such_option => 1);"));
    texts.insert(
        "EXPORT MAPS",
        format!("{bold}EXPORT MAPS FROM bold TO 'maps/{{column}}.nii.gz' WITH (no_such_option => 1);"),
    );
    for (kind, location) in [
        ("NIFTI", BOLD),
        ("BIDS", LAYOUTS),
        ("HCP", LAYOUTS),
        ("GIFTI", GIFTI),
        ("MGH", MGH),
        ("CIFTI", CIFTI),
        ("NPY", NPY),
        ("EVENTS", LAYOUTS),
        ("EV", LAYOUTS),
        ("CONFOUNDS", LAYOUTS),
        ("MOVEMENT", LAYOUTS),
        ("GRADIENTS", LAYOUTS),
        ("PARTICIPANTS", LAYOUTS),
        ("PHENOTYPE", LAYOUTS),
        ("TSV", LAYOUTS),
    ] {
        let table = format!(
            "CREATE EXTERNAL TABLE t STORED AS {kind} LOCATION '{location}' OPTIONS (no_such_option 1);"
        );
        texts.insert(kind, table);
    }
    texts.into_iter().map(|(of, text)| (of.to_owned(), text)).collect()
}

#[test]
fn every_option_that_there_is_has_a_test() {
    let mut tested: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in TESTED.trim().lines() {
        let (of, rest) = line.split_once(": ").unwrap();
        let (options, test) = rest.split_once(" | ").unwrap();
        let (file, test) = test.split_once(' ').unwrap_or((HERE, test));
        let source = fs::read_to_string(root().join(file)).unwrap();
        assert!(source.contains(&format!("fn {test}(")), "{file} has no {test}");
        // Statements have names of two words; kinds of tables that have the same options stand beside each other.
        let statement = of.contains("MODEL") || of.contains("MAPS");
        let all: Vec<&str> = if statement { vec![of] } else { of.split(' ').collect() };
        for of in all {
            let known = tested.entry(of.to_owned()).or_default();
            for option in options.split(' ') {
                assert!(known.insert(option.to_owned()), "{option} of {of} is there twice");
            }
        }
    }
    let mut there: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (of, text) in askers() {
        let (names, more) = listed(&text, "the options are: ");
        assert_eq!(more, 0, "{of}");
        there.insert(of, names);
    }
    assert_eq!(there, tested, "beside each other: the options that there are, and those that have a test");
}

/// A stage, a function of tables or a format that comes later is asked for its options too.
#[test]
fn everything_that_has_options_is_asked_for_them() {
    let asked: BTreeSet<String> = askers().into_keys().collect();
    let bold = format!(
        "CREATE EXTERNAL TABLE bold STORED AS NIFTI LOCATION '{BOLD}' OPTIONS (mask 'none', t_r 2);\n"
    );
    let (mut all, more) = listed(&format!("{bold}TRAIN MODEL m USING no_such ON bold;"), "the stages are: ");
    assert_eq!(more, 0);
    let (operators, more) =
        listed(&format!("{bold}SELECT * FROM no_such(bold, x => 1);"), "the table operators are: ");
    assert_eq!(more, 0);
    all.extend(operators);
    assert!(all.is_subset(&asked), "{all:?}");
    // The list of formats is cut.
    let (formats, more) =
        listed("CREATE EXTERNAL TABLE t STORED AS NO_SUCH LOCATION 'x';", "the formats are: ");
    let others: BTreeSet<String> = OTHER_FORMATS.map(str::to_owned).into();
    let ours = formats.difference(&others).cloned().collect::<BTreeSet<String>>();
    assert!(ours.is_subset(&asked), "{ours:?}");
    let kinds = asked.difference(&all).filter(|of| !of.contains(' ')).count();
    assert_eq!(formats.len() + more, kinds + OTHER_FORMATS.len(), "{formats:?} and {more} more");
}

/// Runs a text; gives the folder of what was made.
fn made(text: &str) -> TempDir {
    let out = tempfile::tempdir().unwrap();
    run_text(text, out.path()).expect_code(0);
    out
}

/// A JSON file of a model.
fn of_model(out: &Path, model: &str, file: &str) -> Value {
    let path = out.join("models").join(model).join(file);
    serde_json::from_slice(&fs::read(&path).unwrap()).unwrap()
}

#[track_caller]
fn near(found: f64, expected: f64, tolerance: f64) {
    assert!((found - expected).abs() <= tolerance, "{found} instead of {expected}");
}

/// Sixteen series, whose first values are 0 to 3 in turn.
const ROWS: &str = "CREATE TABLE rows AS SELECT v AS voxel,
  arrow_cast(make_array(v % 4, 0), 'FixedSizeList(2, Float32)') AS series FROM (SELECT unnest(range(0, 16)) AS v);\n";

/// Sixteen series in minibatches of four, in their order: in each step the gradient of every bin is a quarter.
const SGD: &str = "optimizer => 'sgd', learning_rate => 1, minibatch => 4, shuffle => false";

/// What a training of the histogram has come to: a parameter a bin, and its history.
struct Trained {
    parameters: Vec<f64>,
    history: Value,
}

impl Trained {
    fn losses(&self) -> Vec<f64> {
        self.history["steps"].as_array().unwrap().iter().map(|step| step["loss"].as_f64().unwrap()).collect()
    }

    /// A list of whole numbers of the history.
    fn counts(&self, name: &str) -> Vec<u64> {
        self.history[name].as_array().unwrap().iter().map(|count| count.as_u64().unwrap()).collect()
    }

    fn has(&self, expected: &[f64]) -> bool {
        let mut pairs = self.parameters.iter().zip(expected);
        self.parameters.len() == expected.len() && pairs.all(|(a, b)| (a - b).abs() < 1e-5)
    }
}

fn trained_in(out: &Path, model: &str) -> Trained {
    let file = fs::read(out.join("models").join(model).join("model.safetensors")).unwrap();
    let header = usize::try_from(u64::from_le_bytes(file[..8].try_into().unwrap())).unwrap();
    let numbers = file[8 + header..].chunks_exact(4);
    let parameters = numbers.map(|bytes| f64::from(f32::from_le_bytes(bytes.try_into().unwrap()))).collect();
    Trained { parameters, history: of_model(out, model, "history.json") }
}

/// Trainings with these settings, one after the other.
fn trained(settings: &[String]) -> Vec<Trained> {
    let mut text = ROWS.to_owned();
    for (number, settings) in settings.iter().enumerate() {
        text += &format!("TRAIN MODEL m{number} USING histogram (bins => 4) ON rows WITH ({settings});\n");
    }
    let out = made(&text);
    (0..settings.len()).map(|number| trained_in(out.path(), &format!("m{number}"))).collect()
}

#[test]
fn a_training_is_as_long_and_as_wide_as_its_settings_say() {
    let cases: [(&str, &str, [f64; 4], usize); 9] = [
        ("", "", [-1.0; 4], 4),
        ("rate => 1", "rate => 0.5", [-0.5; 4], 4),
        ("", ", epochs => 3", [-3.0; 4], 12),
        ("", ", max_steps => 1", [-0.25; 4], 1),
        ("", ", reduction => 'sum'", [-4.0; 4], 4),
        ("minibatch => 4", "minibatch => 2", [-2.0; 4], 8),
        ("minibatch => 4", "minibatch => 1, max_steps => 2", [-1.0, -1.0, 0.0, 0.0], 2),
        // Eight series each, two in a step.
        ("minibatch => 4", "minibatch => 2, ranks => 2", [-1.0; 4], 4),
        // The leader's first three steps are its own: bins 0 and 1, 2 and 3, 0 and 1.
        ("minibatch => 4", "minibatch => 2, ranks => 2, warm_up => 3", [-2.0, -2.0, -1.5, -1.5], 7),
    ];
    let settings = cases.map(|(from, to, ..)| match from {
        "" => format!("{SGD}{to}"),
        from => SGD.replace(from, to),
    });
    let found = trained(&settings);
    for ((found, (.., expected, steps)), settings) in found.iter().zip(&cases).zip(&settings) {
        assert!(found.has(expected), "{settings}: {:?}", found.parameters);
        assert_eq!(found.losses().len(), *steps, "{settings}");
    }
    assert_eq!(found[0].counts("samples_per_rank"), [16]);
    assert_eq!(found[7].counts("samples_per_rank"), [8, 8]);
    assert_eq!(found[8].counts("samples_per_rank"), [14, 8]);

    // Which series is the first, the seed says where they are shuffled, and only there.
    let first = |shuffle: bool| {
        let own = format!("minibatch => 1, max_steps => 1, shuffle => {shuffle}");
        let with =
            |seed: u32| SGD.replace("minibatch => 4, shuffle => false", &own) + &format!(", seed => {seed}");
        let found = trained(&(0..8).map(with).collect::<Vec<_>>());
        found.iter().map(|one| one.parameters.iter().position(|p| *p < 0.0).unwrap()).collect::<Vec<usize>>()
    };
    assert_eq!(first(false), [0; 8]);
    let shuffled = first(true);
    assert!(shuffled.iter().collect::<BTreeSet<_>>().len() > 1, "{shuffled:?}");
    assert_eq!(first(true), shuffled);
}

#[test]
fn optimizers_take_the_steps_of_their_constants() {
    let with = |optimizer: &str| SGD.replace("'sgd'", optimizer);
    // Four gradients of a quarter; v is what they have come to, with momentum μ.
    let momentum = |mu: f64, nesterov: bool| {
        let (mut w, mut v) = (0.0, 0.0);
        for _ in 0..4 {
            v = mu * v + 0.25;
            w -= if nesterov { 0.25 + mu * v } else { v };
        }
        w
    };
    let adagrad = |epsilon: f64| -(1..=4).map(|k| 0.25 / (0.25 * f64::from(k).sqrt() + epsilon)).sum::<f64>();
    let cases = [
        ("'momentum'", momentum(0.9, false)),
        ("'momentum', momentum => 0.5", momentum(0.5, false)),
        ("'nesterov'", momentum(0.9, true)),
        ("'nesterov', momentum => 0.5", momentum(0.5, true)),
        ("'adagrad'", adagrad(0.0)),
        ("'adagrad', epsilon => 0.25", adagrad(0.25)),
        // Equal gradients: both means are the gradient, and its square.
        ("'adam'", -4.0),
        ("'adam', epsilon => 1", -4.0 * 0.25 / 1.25),
    ];
    let found = trained(&cases.map(|(optimizer, _)| with(optimizer)));
    for (found, (optimizer, expected)) in found.iter().zip(cases) {
        assert!(found.has(&[expected; 4]), "{optimizer}: {:?} instead of {expected}", found.parameters);
    }
    // Bin 0 has a gradient of 1 in the first step and of 0 in the second.
    let two_steps =
        |beta_1: f64, beta_2: f64| -1.0 - beta_1 / (1.0 + beta_1) / (beta_2 / (1.0 + beta_2)).sqrt();
    let cases = [
        ("'adam'", two_steps(0.9, 0.999)),
        ("'adam', momentum => 0.5", two_steps(0.5, 0.999)),
        ("'adam', beta_2 => 0.5", two_steps(0.9, 0.5)),
    ];
    let single =
        |optimizer: &str| with(optimizer).replace("minibatch => 4", "minibatch => 1, max_steps => 2");
    let found = trained(&cases.map(|(optimizer, _)| single(optimizer)));
    for (found, (optimizer, expected)) in found.iter().zip(cases) {
        assert!((found.parameters[0] - expected).abs() < 1e-4, "{optimizer}: {:?}", found.parameters);
    }
}

#[test]
fn rounds_are_as_the_settings_of_the_gang_say() {
    // Two ranks whose rounds are of two steps: from each round they come back with half a step a bin.
    let local = SGD.replace("minibatch => 4", "minibatch => 2, ranks => 2, local_steps => 2");
    let nesterov = |mu: f64| {
        let (mut w, mut v) = (0.0, 0.0);
        for _ in 0..2 {
            v = mu * v + 0.5;
            w -= 0.7 * (0.5 + mu * v);
        }
        w
    };
    let cases = [
        ("", -1.0),
        (", outer => 'sgd', outer_learning_rate => 0.5", -0.5),
        (", outer => 'nesterov'", nesterov(0.9)),
        (", outer => 'nesterov', outer_momentum => 0.5", nesterov(0.5)),
    ];
    let found = trained(&cases.map(|(more, _)| format!("{local}{more}")));
    for (found, (more, expected)) in found.iter().zip(cases) {
        assert!(found.has(&[expected; 4]), "{more}: {:?} instead of {expected}", found.parameters);
        assert_eq!(found.losses().len(), 2, "{more}");
    }

    // One rank that fetches or pushes every second minibatch: the loss tells from which parameters it went on.
    let alone = format!("{SGD}, consistency => 'async'");
    let cases = [
        ("", -1.0, [0.0, -0.25, -0.5, -0.75]),
        (", n_fetch => 2", -1.0, [0.0, 0.0, -0.5, -0.5]),
        (", n_push => 2", -0.5, [0.0, 0.0, -0.25, -0.25]),
    ];
    let found = trained(&cases.map(|(more, ..)| format!("{alone}{more}")));
    for (found, (more, expected, losses)) in found.iter().zip(cases) {
        assert!(found.has(&[expected; 4]), "{more}: {:?}", found.parameters);
        assert_eq!(found.losses(), losses, "{more}");
    }
    // Of two gradients g = 1/4 the second is late by w = -1/4: g + λ·g²·w.
    let late = trained(&[format!("{alone}, n_fetch => 2, delay_compensation => 0.5")]);
    let both = 0.25 + 0.25 + 0.5 * 0.0625 * -0.25;
    assert!(late[0].has(&[-2.0 * both; 4]), "{:?}", late[0].parameters);
    // In rounds there is nothing to fetch or push beside them.
    let refused = wrong(&format!("{ROWS}TRAIN MODEL m USING histogram ON rows WITH ({SGD}, n_push => 2);"));
    assert!(refused.contains("in `sync` every round pushes"), "{refused}");
}

/// Rank 0 sends its four parameters, of four bytes each, to the one other rank.
#[test]
fn a_ring_broadcasts_as_often_as_it_is_told() {
    let ring = SGD.replace("minibatch => 4", "minibatch => 2, ranks => 2, topology => 'ring'");
    let every = |rounds: u64| format!("{ring}, broadcast_every => {rounds}");
    let found = trained(&[ring.clone(), every(1), every(2)]);
    let sent: Vec<Vec<u64>> = found.iter().map(|one| one.counts("bytes_sent_per_rank")).collect();
    assert_eq!((sent[1][0] - sent[0][0], sent[2][0] - sent[0][0]), (4 * 16, 2 * 16), "{sent:?}");
    assert_eq!((sent[0][1], sent[0][1]), (sent[1][1], sent[2][1]), "{sent:?}");
    assert!(found.iter().all(|one| one.has(&[-1.0; 4])));
}

#[test]
fn products_of_less_than_32_bits_need_a_card() {
    for precision in ["tf32", "bf16"] {
        let train = format!("TRAIN MODEL m USING histogram ON rows WITH (precision => '{precision}');");
        let said = wrong(&(ROWS.to_owned() + &train));
        assert!(said.contains("is 'f32' on the CPU") && said.contains("cuda:0"), "{said}");
    }
    made(&format!("{ROWS}TRAIN MODEL m USING histogram (bins => 4) ON rows WITH (precision => 'f32');"));
}

/// What is there of a training that was killed after forty epochs of eight rounds.
#[test]
fn checkpoints_are_as_many_and_as_far_apart_as_the_settings_say() {
    let kept = |settings: &str| {
        let folder = tempfile::tempdir().unwrap();
        let (file, out) = (folder.path().join("endless.vf"), folder.path().join("out"));
        let text = format!(
            "{ROWS}TRAIN MODEL m USING histogram (bins => 4) ON rows
               WITH (optimizer => 'sgd', minibatch => 2, epochs => 1000000, {settings});"
        );
        fs::write(&file, text).unwrap();
        let mut command = program("voxelflow");
        command.arg("run").arg(&file).arg("--out").arg(&out).arg("--json");
        let mut run = Running::start(command);
        run.wait_for_epoch(40);
        drop(run);
        checkpoints_in(&out.join("models"))
    };
    // One more is there while the oldest is removed.
    let every_fifth = kept("checkpoint_every => 5");
    assert!((2..=3).contains(&every_fifth.len()), "{every_fifth:?}");
    assert!(every_fifth.iter().all(|round| round % 40 == 0), "{every_fifth:?}");
    let four = kept("checkpoint_every => 5, checkpoint_keep => 4");
    assert!((4..=5).contains(&four.len()) && four.iter().all(|round| round % 40 == 0), "{four:?}");
    assert_eq!(kept("checkpoint_every => 0"), [0; 0]);
    let within = kept("checkpoint_every => 0, checkpoint_steps => 3");
    assert!(within.len() >= 2 && within.iter().all(|round| round % 3 == 0), "{within:?}");
    assert!(within.iter().any(|round| round % 8 != 0), "{within:?}");
}

/// A training of series that all begin with 0 on so many executors.
fn counted(settings: &str, executors: &str) -> (TempDir, Ended) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("counted.vf");
    let text = format!(
        "CREATE TABLE rows AS SELECT v AS voxel, arrow_cast(make_array(0, 0), 'FixedSizeList(2, Float32)') AS series
           FROM (SELECT unnest(range(0, 514)) AS v);
         TRAIN MODEL m USING histogram (bins => 1) ON rows
           WITH (optimizer => 'sgd', learning_rate => 1, reduction => 'sum', ranks => 2, minibatch => 257{settings});"
    );
    fs::write(&file, text).unwrap();
    let mut command = program("voxelflow");
    command.arg("run").arg(&file).arg("--out").arg(folder.path().join("out"));
    let ended = command.args(["--executors", executors, "--slots", "1"]).output().unwrap().into();
    (folder, ended)
}

/// 257 has nine digits in base 2, and bfloat16 keeps eight: of each of two ranks 256 arrive.
#[test]
fn values_travel_between_processes_as_the_codec_says() {
    for (more, expected) in [("", -512.0), (", codec => 'f32'", -514.0), (", deterministic => true", -514.0)]
    {
        let (folder, ended) = counted(&format!(", parameter_servers => 1{more}"), "3");
        ended.expect_code(0);
        assert_eq!(trained_in(&folder.path().join("out"), "m").parameters, [expected], "{more}");
    }
}

#[test]
fn ranks_get_the_room_that_they_ask_for() {
    for (ask, says) in [
        ("memory_mib => 100000000", "it waits for 2 slots with 97656.2 GiB each: no executor has any"),
        ("cards => 1", "it waits for 2 slots with a card each: no executor has any"),
    ] {
        let (_folder, ended) = counted(&format!(", {ask}, gang_deadline_seconds => 0.5"), "2");
        let said = ended.expect_code(1).stderr;
        assert!(said.contains("found no room within 0.5 s") && said.contains(says), "{says}:\n{said}");
    }
}

/// With lives left it is placed on the third executor.
#[test]
fn a_rank_is_not_started_anew_more_often_than_it_may() {
    let counting = Counting::new(30, "ranks => 2, min_ranks => 1, max_rank_restarts => 0");
    let mut run = counting.start(&["--executors", "3", "--slots", "1"]);
    run.wait_for_epoch(1);
    let lost = counting.members().into_iter().find(|member| member.number == 1).unwrap();
    kill_process(lost.pid(), Signal::KILL).unwrap();
    let said = run.succeed();
    assert_eq!(said.matches("member 1 has come").count(), 1, "{said}");
    counting.assert_every_series_once_an_epoch();
}

/// Without the setting it counts as lost after three seconds.
#[test]
fn a_rank_may_be_silent_for_as_long_as_the_settings_say() {
    let counting = Counting::new(30, "ranks => 2, min_ranks => 1, heartbeat_timeout_seconds => 60");
    let mut run = counting.start(&["--executors", "2", "--slots", "1"]);
    run.wait_for_epoch(1);
    let silent = counting.members().into_iter().find(|member| member.number == 1).unwrap();
    kill_process(silent.pid(), Signal::STOP).unwrap();
    std::thread::sleep(Duration::from_millis(4_500));
    kill_process(silent.pid(), Signal::CONT).unwrap();
    let said = run.succeed();
    assert!(!said.contains("is lost"), "{said}");
    counting.assert_every_series_once_an_epoch();
}

#[test]
fn members_wait_as_long_as_the_settings_say() {
    let settings = SyncSettings {
        heartbeat_seconds: 7.0,
        heartbeat_timeout_seconds: 21.0,
        deadline_seconds: 50.0,
        hold_seconds: 11.0,
        ..SyncSettings::default()
    };
    let found = Deadlines::of(&settings);
    assert_eq!((found.heartbeat, found.dead, found.missing, found.hold), (7.0, 21.0, 50.0, 11.0));
}

/// Eight series of sixteen points.
const WAVES: &str = "CREATE TABLE waves AS SELECT v AS voxel,
    arrow_cast(array_agg(sin(t * (0.3 + 0.1 * v)) ORDER BY t), 'FixedSizeList(16, Float32)') AS series
  FROM (SELECT unnest(range(0, 8)) AS v) CROSS JOIN (SELECT unnest(range(0, 16)) AS t) GROUP BY v;\n";

#[test]
fn the_autoencoder_is_as_its_options_say() {
    // Parameters of one layer: a convolution and its mirror image with their biases, and both sides of the hidden state.
    let one_layer = |filters: u64, kernel: u64, top: u64, hidden: u64| {
        2 * filters * kernel + filters + 1 + 2 * filters * top * hidden + filters * top + hidden
    };
    let plain = "hidden => 4, filters => [2], kernels => [3], pools => 1, pool_window => 2";
    let built = [
        ("", "", one_layer(2, 3, 8, 4)),
        ("hidden => 4", "hidden => 5", one_layer(2, 3, 8, 5)),
        ("filters => [2]", "filters => [3]", one_layer(3, 3, 8, 4)),
        ("kernels => [3]", "kernels => [5]", one_layer(2, 5, 8, 4)),
        ("pools => 1", "pools => 0", one_layer(2, 3, 16, 4)),
        ("pool_window => 2", "pool_window => 4", one_layer(2, 3, 4, 4)),
    ];
    let lossy = ["", ", lambda => 0", ", lambda => 1", ", lambda => 2", ", switches => false"];
    let mut text = WAVES.to_owned();
    let own =
        built.map(|(from, to, _)| if from.is_empty() { plain.to_owned() } else { plain.replace(from, to) });
    for (number, options) in own.into_iter().chain(lossy.map(|more| format!("{plain}{more}"))).enumerate() {
        text += &format!("TRAIN MODEL m{number} USING dist_dca ({options}) ON waves WITH (seed => 1);\n");
    }
    let out = made(&text);
    for (number, (_, to, expected)) in built.iter().enumerate() {
        let config = of_model(out.path(), &format!("m{number}"), "config.json");
        assert_eq!(config["parameters"].as_u64(), Some(*expected), "{to}");
    }
    // The first loss is of the same weights: λ adds so many times ‖Z − Z′‖².
    let loss = |at: usize| {
        let history = of_model(out.path(), &format!("m{}", built.len() + at), "history.json");
        history["steps"][0]["loss"].as_f64().unwrap()
    };
    let distance = loss(2) - loss(1);
    assert!(distance > 0.1, "{distance}");
    near(loss(3) - loss(2), distance, 1e-5 * loss(3));
    near(loss(0) - loss(1), 0.006 * distance, 1e-5 * loss(0));
    // Repetition is another decoder than the switches.
    assert!((loss(4) - loss(0)).abs() > 1e-3, "{} and {}", loss(4), loss(0));

    // A network without a nonlinearity: the middle of two series has the middle of their hidden states.
    let activations = ["linear", "relu", "leaky_relu", "tanh"];
    let mut text = "CREATE TABLE waves AS SELECT v AS voxel,
        arrow_cast(array_agg(v * sin(t * 0.9) ORDER BY t), 'FixedSizeList(16, Float32)') AS series
      FROM (SELECT unnest(range(0, 3)) AS v) CROSS JOIN (SELECT unnest(range(0, 16)) AS t) GROUP BY v;\n"
        .to_owned();
    for name in activations {
        text += &format!(
            "TRAIN MODEL {name} USING dist_dca (hidden => 2, filters => [2], kernels => [3], pools => 0,
               activation => '{name}') ON waves WITH (seed => 1);
             CREATE TABLE of_{name} AS SELECT voxel, encode({name}, series) AS series FROM waves;\n"
        );
    }
    let out = made(&text);
    let mut seen = Vec::new();
    for name in activations {
        let rows = query(out.path(), &format!("of_{name}"), "SELECT series FROM d ORDER BY voxel");
        let [none, one, two] = [0, 1, 2].map(|at| numbers(&rows[at])[0]);
        let bent = (two - 2.0 * one + none).abs();
        assert_eq!(bent < 1e-5, name == "linear", "{name}: {bent}");
        seen.push(one);
    }
    seen.sort_by(f64::total_cmp);
    assert!(seen.windows(2).all(|pair| pair[1] - pair[0] > 1e-4), "{seen:?}");
}

/// Two runs of 24 samples whose voxel is the feature, but where the runs meet: there it is -20 times as much.
const MEETING: &str = "CREATE TABLE stimuli AS SELECT r AS run, t AS tr, sin(t * 1.3 + r) AS a
  FROM (SELECT unnest(range(1, 3)) AS r) CROSS JOIN (SELECT unnest(range(0, 24)) AS t);
CREATE TABLE bold AS SELECT arrow_cast(run, 'Utf8') AS run, voxel,
    arrow_cast(array_agg(value ORDER BY tr), 'FixedSizeList(24, Float32)') AS series
  FROM (SELECT run, tr, 0 AS voxel,
          CASE WHEN run = 1 AND tr >= 21 OR run = 2 AND tr < 3 THEN -20 * a ELSE a END AS value FROM stimuli)
  GROUP BY run, voxel;\n";

const ENCODERS: [(&str, &str); 2] =
    [("ridge_cv", ""), ("banded_ridge_cv", "bands => {'all': 'a'}, gammas => [[1]], ")];

#[test]
fn penalties_are_compared_as_the_options_say() {
    for (stage, bands) in ENCODERS {
        let cases = [
            "precision => 'f64', gap => 3, scoring => 'neg_mean_squared_error'",
            "precision => 'f64', scoring => 'neg_mean_squared_error'",
            "precision => 'f64'",
            "precision => 'f64', cv => 2",
            "precision => 'f64', cv => 3",
            "precision => 'f32'",
        ];
        let mut text = MEETING.to_owned();
        for (number, options) in cases.iter().enumerate() {
            text += &format!(
                "TRAIN MODEL m{number} USING {stage} ({bands}alphas => [0.000001], {options}) ON bold
                   FEATURES (SELECT * FROM stimuli);\n"
            );
        }
        let out = made(&text);
        let report = |number: usize| of_model(out.path(), &format!("m{number}"), "ridge.json");
        let score = |number: usize| report(number)["mean_scores"][0].as_f64().unwrap();
        // The fit has not seen where the runs meet, so it is wrong there by 21 times the feature, and nowhere else.
        let feature = |run: u8, t: u8| (f64::from(t) * 1.3 + f64::from(run)).sin();
        let meet = (21..24).map(|t| feature(1, t)).chain((0..3).map(|t| feature(2, t)));
        let errors: f64 = meet.map(|a| (21.0 * a).powi(2)).sum();
        near(score(0), -errors / 48.0, 1e-4);
        assert!((score(1) - score(0)).abs() > 1.0, "{} with a gap and {} without", score(0), score(1));
        // R² is over -1 where the squared error is over 1, and two folds of two runs are the runs.
        assert!(score(2).abs() < 0.1, "{}", score(2));
        near(score(3), score(2), 1e-12);
        assert!(score(4) < -1.0, "{}", score(4));
        assert_eq!((&report(2)["precision"], &report(5)["precision"]), (&"f64".into(), &"f32".into()));
    }
}

/// A run of 24 samples has so many rearrangements, beside the one that it is in.
#[test]
fn predictions_are_rearranged_as_the_options_say() {
    for (stage, bands) in ENCODERS {
        let fit = |options: &str| {
            let text = format!(
                "{MEETING}TRAIN MODEL m USING {stage} ({bands}alphas => [1], cv => 2, permutations => 99{options})
                   ON (SELECT * FROM bold WHERE run = '1') FEATURES (SELECT * FROM stimuli)
                   VALIDATE ON (SELECT * FROM bold WHERE run = '2');
                 CREATE TABLE found AS SELECT p FROM m;"
            );
            let out = tempfile::tempdir().unwrap();
            let ended = run_text(&text, out.path());
            (out, ended)
        };
        for (options, count) in [
            ("", 5),
            (", permutation_length => 12", 1),
            (", permutation => 'circular_shift', permutation_length => 4", 17),
        ] {
            let said = fit(options).1.expect_code(2).stderr;
            let expected = format!("99 are asked for, and there are {count} different ones");
            assert!(said.contains(&expected), "{options}: {said}");
        }
        let (out, ended) = fit(", permutation => 'shuffle'");
        ended.expect_code(0);
        let hundredths = query(out.path(), "found", "SELECT p FROM d")[0]["p"].as_f64().unwrap() * 100.0;
        assert!(hundredths >= 1.0 && (hundredths - hundredths.round()).abs() < 1e-9, "{hundredths}");
    }
}

#[test]
fn weights_of_bands_are_drawn_as_the_options_say() {
    let cases = [
        "n_iter => 5",
        "n_iter => 5, concentration => [1000000]",
        "n_iter => 5, concentration => [0.0001]",
        "gammas => [[0.25, 0.75]]",
    ];
    let mut text = MEETING.replace("AS a\n", "AS a, cos(t * 0.7) AS b\n");
    for (number, options) in cases.iter().enumerate() {
        text += &format!(
            "TRAIN MODEL m{number} USING banded_ridge_cv (bands => {{'first': 'a', 'other': 'b'}}, alphas => [1], {options})
               ON bold FEATURES (SELECT * FROM stimuli) WITH (seed => 2);\n"
        );
    }
    let out = made(&text);
    let first = |number: usize| -> Vec<f64> {
        let report = of_model(out.path(), &format!("m{number}"), "ridge.json");
        let drawn = report["gammas"].as_array().unwrap();
        drawn.iter().map(|weights| weights[0].as_f64().unwrap()).collect()
    };
    // The first weights are equal, the others drawn: near each other, or all for one band.
    assert_eq!([0, 1, 2].map(|number| (first(number).len(), first(number)[0])), [(5, 0.5); 3]);
    assert!(first(0)[1..].iter().all(|weight| (weight - 0.5).abs() > 0.01), "{:?}", first(0));
    assert!(first(1)[1..].iter().all(|weight| (weight - 0.5).abs() < 0.01), "{:?}", first(1));
    assert!(first(2)[1..].iter().all(|weight| *weight < 0.01 || *weight > 0.99), "{:?}", first(2));
    assert_eq!(first(3), [0.25]);
}

const AFFINE: [[f64; 4]; 4] =
    [[3.0, 0.0, 0.0, 0.0], [0.0, 3.0, 0.0, 0.0], [0.0, 0.0, 3.0, 0.0], [0.0, 0.0, 0.0, 1.0]];

/// An image of `[voxels][volumes]`, voxels in a row of 3 mm each, `shift` mm along it; a volume every 2 s.
fn image(path: &Path, voxels: &[Vec<f64>], shift: f64) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let (volumes, mut affine) = (voxels[0].len(), AFFINE);
    affine[0][3] = shift;
    let spec = NiftiSpec::new([voxels.len(), 1, 1], volumes).with_affine(affine, 1).with_t_r(2.0);
    let mut writer = NiftiWriter::create(path, &spec).unwrap();
    for t in 0..volumes {
        let volume: Vec<f32> = voxels.iter().map(|own| own[t] as f32).collect();
        writer.write_volume(&volume).unwrap();
    }
    writer.finish().unwrap();
}

/// Four voxels of eight volumes, which are near `value`.
fn marked(path: &Path, value: f64) {
    let of =
        |voxel: usize| -> Vec<f64> { (0..8).map(|t| value + 0.01 * ((t * 7 + voxel) % 5) as f64).collect() };
    image(path, &(0..4).map(of).collect::<Vec<_>>(), 0.0);
}

fn describe(folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    let description = r#"{"Name": "test", "BIDSVersion": "1.9.0", "DatasetType": "derivative"}"#;
    fs::write(folder.join("dataset_description.json"), description).unwrap();
}

const VOLUMES: usize = 64;

/// Numbers from 4 to 6 that look like noise.
fn noise(column: usize, t: usize) -> f64 {
    let mut z = (column as u64 * 1_000 + t as u64).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    5.0 + (((z ^ (z >> 31)) >> 40) as f64 / f64::from(1 << 23) - 1.0)
}

/// Confounds of a run as fMRIPrep writes them, and an image whose voxels are some of them: a voxel whose column is
/// removed is constant.
struct Confounded(TempDir);

impl Confounded {
    /// Columns that are voxels. The last two are both a derivative, which has no first value: filled with the second
    /// one, and with zero.
    const VOXELS: [&str; 14] = [
        "trans_x",
        "trans_x_power2",
        "csf",
        "csf_power2",
        "global_signal",
        "global_signal_power2",
        "a_comp_cor_00",
        "a_comp_cor_01",
        "a_comp_cor_02",
        "t_comp_cor_00",
        "cosine00",
        "aroma_motion_00",
        "backfilled",
        "zero",
    ];

    fn new() -> Self {
        let mut names: Vec<String> = Vec::new();
        for name in [
            "trans_x",
            "trans_y",
            "trans_z",
            "rot_x",
            "rot_y",
            "rot_z",
            "csf",
            "white_matter",
            "global_signal",
        ] {
            names.extend(
                ["", "_power2", "_derivative1", "_derivative1_power2"].map(|end| format!("{name}{end}")),
            );
        }
        names.extend(Self::VOXELS[6..12].iter().map(|name| (*name).to_owned()));
        let column = |name: &str| names.iter().position(|known| known == name).unwrap();
        let mut text = names.join("\t") + "\tframewise_displacement\tstd_dvars\tnon_steady_state_outlier00\n";
        for t in 0..VOLUMES {
            for (at, name) in names.iter().enumerate() {
                match t == 0 && name.contains("_derivative1") {
                    true => text += "n/a\t",
                    false => text += &format!("{}\t", noise(at, t)),
                }
            }
            let displacement = match t {
                20 | 24 => 2.0,
                40 => 0.3,
                _ => 0.1,
            };
            let variance = if t == 50 { 1.2 } else { 1.0 };
            let of_first = if t == 0 { 1 } else { 0 };
            text += &format!("{displacement}\t{variance}\t{of_first}\n");
        }
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("confounds.tsv"), text).unwrap();
        let of = |mask: &str| format!(r#"{{"Mask": "{mask}", "Method": "aCompCor", "Retained": true}}"#);
        let (both, white) = (of("combined"), of("WM"));
        let sidecar =
            format!(r#"{{"a_comp_cor_00": {both}, "a_comp_cor_01": {both}, "a_comp_cor_02": {white}}}"#);
        fs::write(folder.path().join("confounds.json"), sidecar).unwrap();
        let voxels = Self::VOXELS.map(|name| -> Vec<f64> {
            let derivative = column("trans_x_derivative1");
            let at = match name {
                "backfilled" | "zero" => derivative,
                name => column(name),
            };
            let value = |t: usize| match (name, t) {
                ("backfilled", 0) => noise(at, 1),
                ("zero", 0) => 0.0,
                _ => noise(at, t),
            };
            (0..VOLUMES).map(value).collect()
        });
        image(&folder.path().join("bold.nii.gz"), &voxels, 0.0);
        Self(folder)
    }

    /// What `clean` leaves with each of these options: the voxels that became constant, and how many volumes there are.
    fn cleaned(&self, options: &[&str]) -> Vec<(Vec<&'static str>, u64)> {
        let at = self.0.path().display();
        let each = options.iter().enumerate().map(|(number, options)| {
            format!(
                "SELECT {number} AS n, voxel, array_length(series) AS kept, list_std(series) AS sd \
                 FROM clean(bold, detrend => false, standardize => false, {options})"
            )
        });
        let out = made(&format!(
            "CREATE EXTERNAL TABLE bold STORED AS NIFTI LOCATION '{at}/bold.nii.gz'
               OPTIONS (mask 'none', confounds '{at}/confounds.tsv');
             CREATE TABLE found AS {};",
            each.collect::<Vec<_>>().join(" UNION ALL ")
        ));
        let rows = query(out.path(), "found", "SELECT * FROM d ORDER BY n, voxel");
        let of = |number: usize| {
            let own: Vec<&Value> = rows.iter().filter(|row| row["n"] == number).collect();
            let constant = own.iter().filter(|row| row["sd"].as_f64().unwrap() < 1e-3);
            let names = constant.map(|row| Self::VOXELS[row["voxel"].as_u64().unwrap() as usize]).collect();
            (names, own[0]["kept"].as_u64().unwrap())
        };
        (0..options.len()).map(of).collect()
    }
}

#[test]
fn confounds_are_those_that_are_asked_for() {
    let cases: [(&str, &[&str]); 17] = [
        ("confounds => 'trans_x, csf'", &["trans_x", "csf"]),
        ("confounds => 'motion', motion => 'basic'", &["trans_x"]),
        ("confounds => 'motion', motion => 'power2'", &["trans_x", "trans_x_power2"]),
        (
            "confounds => 'motion', motion => 'derivatives', non_steady_state => 'keep'",
            &["trans_x", "backfilled"],
        ),
        (
            "confounds => 'motion', motion => 'derivatives', non_steady_state => 'keep', first_volume => 'zero'",
            &["trans_x", "zero"],
        ),
        ("confounds => 'motion'", &["trans_x", "trans_x_power2", "backfilled", "zero"]),
        ("confounds => 'wm_csf'", &["csf"]),
        ("confounds => 'wm_csf', wm_csf => 'power2'", &["csf", "csf_power2"]),
        ("confounds => 'global_signal'", &["global_signal"]),
        (
            "confounds => 'global_signal', global_signal => 'power2'",
            &["global_signal", "global_signal_power2"],
        ),
        ("confounds => 'high_pass, compcor'", &["a_comp_cor_00", "a_comp_cor_01", "cosine00"]),
        ("confounds => 'high_pass, compcor', n_compcor => 1", &["a_comp_cor_00", "cosine00"]),
        ("confounds => 'high_pass, compcor', compcor => 'temporal'", &["t_comp_cor_00", "cosine00"]),
        ("confounds => 'high_pass, ica_aroma', ica_aroma => 'basic'", &["cosine00", "aroma_motion_00"]),
        (
            "denoise_strategy => 'simple'",
            &["trans_x", "trans_x_power2", "csf", "cosine00", "backfilled", "zero"],
        ),
        (
            "denoise_strategy => 'compcor'",
            &[
                "trans_x",
                "trans_x_power2",
                "a_comp_cor_00",
                "a_comp_cor_01",
                "cosine00",
                "backfilled",
                "zero",
            ],
        ),
        ("confounds => 'cosine*'", &["cosine00"]),
    ];
    let found = Confounded::new().cleaned(&cases.map(|(options, _)| options));
    for ((options, expected), (found, _)) in cases.iter().zip(found) {
        assert_eq!(found, *expected, "{options}");
    }
}

/// Volume 0 is before the steady state, 20 and 24 have moved much, 40 a little, and 50 changes the image a little.
#[test]
fn volumes_are_dropped_by_the_thresholds_that_are_given() {
    let cases = [
        ("confounds => 'trans_x'", 64 - 1),
        ("confounds => 'trans_x, scrub'", 64 - 1 - 2 - 3),
        // The three volumes between stay.
        ("confounds => 'trans_x, scrub', scrub => 3", 64 - 1 - 2),
        ("confounds => 'trans_x, scrub', fd_threshold => 0.2", 64 - 1 - 2 - 3 - 1),
        ("confounds => 'trans_x, scrub', std_dvars_threshold => 1.1", 64 - 1 - 2 - 3 - 1),
        ("confounds => 'trans_x, scrub', non_steady_state => 'keep'", 64 - 2 - 3),
    ];
    let found = Confounded::new().cleaned(&cases.map(|(options, _)| options));
    for ((options, expected), (constant, kept)) in cases.iter().zip(found) {
        assert_eq!((constant, kept), (vec!["trans_x"], *expected), "{options}");
    }
}

#[test]
fn designs_are_as_their_options_say() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let wave: Vec<f64> = (0..40).map(|t| (f64::from(t) * 0.3).sin()).collect();
    image(&at.join("sub-1_task-x_bold.nii.gz"), &[wave], 0.0);
    fs::write(at.join("sub-1_task-x_bold.json"), r#"{"RepetitionTime": 2.0, "StartTime": 1.0}"#).unwrap();
    let events = "onset\tduration\ttrial_type\n-10\t1\tearly\n20\t0\tgo\n20.9\t0\tlate\n";
    fs::write(at.join("events.tsv"), events).unwrap();
    let cases = [
        "high_pass => 0.01",
        "high_pass => 0.05",
        "drift_model => 'polynomial'",
        "drift_model => 'polynomial', drift_order => 3",
        "drift_model => 'none', hrf_model => 'glover + derivative'",
        "drift_model => 'none'",
        "drift_model => 'none', min_onset => -5",
        "drift_model => 'none', hrf_model => 'fir'",
        "drift_model => 'none', hrf_model => 'fir', start_time => 'ignore'",
        "drift_model => 'none', hrf_model => 'fir', start_time => 'ignore', t_r => 1",
        "drift_model => 'none', hrf_model => 'fir', start_time => 'ignore', fir_delays => [1, 3]",
        "drift_model => 'none', start_time => 'ignore'",
        "drift_model => 'none', start_time => 'ignore', oversampling => 1",
    ];
    let mut text = format!(
        "CREATE EXTERNAL TABLE bold STORED AS NIFTI LOCATION '{0}/sub-1_task-x_bold.nii.gz'
           OPTIONS (mask 'none', events '{0}/events.tsv');\n",
        at.display()
    );
    for (number, options) in cases.iter().enumerate() {
        text += &format!("CREATE TABLE d{number} AS SELECT * FROM design(bold, {options});\n");
    }
    let out = made(&text);
    let of = |number: usize| -> BTreeMap<String, Vec<f64>> {
        let rows = query(out.path(), &format!("d{number}"), "SELECT regressor, series FROM d");
        rows.iter().map(|row| (row["regressor"].as_str().unwrap().to_owned(), numbers(row))).collect()
    };
    let drifts = |number: usize| of(number).keys().filter(|name| name.starts_with("drift_")).count();
    // Twice the run's 80 s at each frequency.
    assert_eq!([0, 1, 2, 3, 4].map(drifts), [1, 8, 1, 3, 0]);
    assert_eq!(
        of(4).into_keys().collect::<Vec<_>>(),
        ["constant", "early", "early_derivative", "go", "go_derivative", "late", "late_derivative"]
    );
    // What was over five seconds before the run is not considered.
    let largest = |number: usize| of(number)["early"].iter().fold(0.0_f64, |most, x| most.max(x.abs()));
    assert!(largest(5) > 0.01, "{}", largest(5));
    assert_eq!(largest(6), 0.0);
    // Volumes stand for 1 s, 3 s, …; for 0 s, 2 s, …; for 0 s, 1 s, …
    let volumes = |number: usize, name: &str| -> Vec<usize> {
        let series = of(number).remove(name).unwrap();
        (0..series.len()).filter(|t| series[*t] != 0.0).collect()
    };
    assert_eq!([7, 8, 9].map(|number| volumes(number, "go_delay_0")), [[9], [10], [20]]);
    assert_eq!(["go_delay_1", "go_delay_3"].map(|name| volumes(10, name)), [[11], [13]]);
    // With one bin a volume, events less than a volume apart are a volume apart.
    let apart = |number: usize| {
        let all = of(number);
        let (go, late) = (&all["go"], &all["late"]);
        go.iter().zip(&late[1..]).map(|(a, b)| (a - b).abs()).fold(0.0_f64, f64::max)
    };
    assert_eq!(apart(12), 0.0);
    assert!(apart(11) > 1e-3, "{}", apart(11));
}

#[test]
fn a_repetition_time_that_is_given_counts() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let wave = |voxel: u32| -> Vec<f64> {
        (0..64).map(|t| (f64::from(t) * 0.37 * f64::from(voxel + 1)).sin() + 0.05 * f64::from(t)).collect()
    };
    let long = at.join("long.nii.gz");
    image(&long, &(0..4).map(wave).collect::<Vec<_>>(), 0.0);
    let tables = [("two", ""), ("four", ", t_r '4'")].map(|(name, more)| {
        let location = long.display();
        format!("CREATE EXTERNAL TABLE {name} STORED AS NIFTI LOCATION '{location}' OPTIONS (mask 'none'{more});\n")
    });
    let out = made(
        &(tables.concat()
            + "CREATE TABLE plain AS SELECT voxel, series FROM clean(two, high_pass => 0.02);
               CREATE TABLE said AS SELECT voxel, series FROM clean(two, high_pass => 0.02, t_r => 4);
               CREATE TABLE known AS SELECT voxel, series FROM clean(four, high_pass => 0.02);
               CREATE TABLE faster AS SELECT voxel, series FROM clean(two, high_pass => 0.04);"),
    );
    let [plain, said, known, faster] = ["plain", "said", "known", "faster"]
        .map(|table| query(out.path(), table, "SELECT series FROM d ORDER BY voxel"));
    assert_eq!(said, known);
    // Half as many volumes a second, and half the frequency.
    for (said, faster) in said.iter().zip(&faster) {
        numbers(said).iter().zip(numbers(faster)).for_each(|(a, b)| near(*a, b, 1e-5));
    }
    assert!((numbers(&plain[0])[0] - numbers(&said[0])[0]).abs() > 0.01, "{} {}", plain[0], said[0]);

    marked(&at.join("bids/sub-1/func/sub-1_task-x_space-T1w_desc-preproc_bold.nii.gz"), 1.0);
    describe(&at.join("bids"));
    marked(&at.join("hcp/1/MNINonLinear/Results/tfMRI_X_LR/tfMRI_X_LR.nii.gz"), 1.0);
    let [bids, hcp] = ["bids", "hcp"].map(|folder| at.join(folder).display().to_string());
    for (kind, location, more) in [
        ("BIDS", bids, "mask 'none', "),
        ("HCP", hcp, "mask 'none', "),
        ("GIFTI", GIFTI.to_owned(), ""),
        ("MGH", MGH.to_owned(), ""),
        ("CIFTI", CIFTI.to_owned(), ""),
        ("NPY", NPY.to_owned(), ""),
    ] {
        let text = format!(
            "CREATE EXTERNAL TABLE t STORED AS {kind} LOCATION '{location}' OPTIONS ({more}t_r '7');
             EXPLAIN SELECT * FROM clean(t, filter => 'cosine', high_pass => 0.001);"
        );
        let out = tempfile::tempdir().unwrap();
        let plan = run_text(&text, out.path()).expect_code(0).stdout;
        assert!(plan.contains("(t_r 7 s)"), "{kind}: {plan}");
    }
}

#[test]
fn keys_that_are_given_outrank_names() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    marked(&at("sub-1_task-x_run-2_bold.nii.gz"), 1.0);
    for (name, text) in [
        ("sub-1_events.tsv", "onset\tduration\n1\t1\n"),
        ("go.txt", "1 2 1\n"),
        ("sub-1_table.tsv", "a\tb\n1\t2\n"),
        ("movement.txt", "1 2 3 4 5 6 7 8 9 10 11 12\n"),
        ("sub-1_dwi.bval", "0 1000\n"),
        ("sub-1_dwi.bvec", "0 1\n0 0\n0 0\n"),
        ("participants.tsv", "participant_id\tage\nsub-1\t31\n"),
    ] {
        fs::write(at(name), text).unwrap();
    }
    let own = |name: &str| at(name).display().to_string();
    let tables = [
        ("NIFTI", own("sub-1_task-x_run-2_bold.nii.gz"), ", mask 'none', space 'q'"),
        ("GIFTI", GIFTI.to_owned(), ", space 'q'"),
        ("MGH", MGH.to_owned(), ", space 'q'"),
        ("CIFTI", CIFTI.to_owned(), ", space 'q'"),
        ("NPY", NPY.to_owned(), ", space 'q'"),
        ("EVENTS", own("sub-1_events.tsv"), ""),
        ("EV", own("go.txt"), ""),
        ("CONFOUNDS", own("sub-1_table.tsv"), ""),
        ("MOVEMENT", own("movement.txt"), ""),
        ("GRADIENTS", own("sub-1_dwi.bval"), ""),
        ("TSV", own("sub-1_table.tsv"), ""),
        ("PARTICIPANTS", own("participants.tsv"), ""),
        ("PHENOTYPE", own("participants.tsv"), ""),
    ];
    let mut text = String::new();
    for (kind, location, more) in &tables {
        // Of participants their table says who they are.
        let subject = if ["PARTICIPANTS", "PHENOTYPE"].contains(kind) { "" } else { "subject 's', " };
        let space = if more.is_empty() { "" } else { ", space" };
        text += &format!(
            "CREATE EXTERNAL TABLE t{kind} STORED AS {kind} LOCATION '{location}'
               OPTIONS ({subject}session 'e', task 't', run '7'{more});
             CREATE TABLE f{kind} AS SELECT DISTINCT subject, session, task, run{space} FROM t{kind};\n"
        );
    }
    let out = made(&text);
    for (kind, _, more) in &tables {
        // Names of tables are in lower case.
        let rows = query(out.path(), &format!("f{}", kind.to_lowercase()), "SELECT * FROM d");
        assert_eq!(rows.len(), 1, "{kind}");
        let subject = if ["PARTICIPANTS", "PHENOTYPE"].contains(kind) { "1" } else { "s" };
        let keys = ["subject", "session", "task", "run"].map(|key| rows[0][key].as_str().unwrap());
        assert_eq!(keys, [subject, "e", "t", "7"], "{kind}");
        assert!(more.is_empty() || rows[0]["space"] == "q", "{kind}: {}", rows[0]);
    }
}

/// Of two images whose names differ in one entity, the second one is read.
#[test]
fn entities_choose_the_images_of_a_bids_folder() {
    let folder = tempfile::tempdir().unwrap();
    let order = [
        "sub", "ses", "task", "acq", "ce", "rec", "dir", "run", "echo", "part", "space", "cohort", "res",
        "den", "desc",
    ];
    let options = [
        ("subject", "sub"),
        ("session", "ses"),
        ("task", "task"),
        ("run", "run"),
        ("space", "space"),
        ("res", "res"),
        ("desc", "desc"),
        ("cohort", "cohort"),
        ("echo", "echo"),
        ("part", "part"),
        ("acq", "acq"),
        ("ce", "ce"),
        ("rec", "rec"),
        ("dir", "dir"),
        ("den", "den"),
    ];
    let mut text = String::new();
    for (option, entity) in options {
        let root = folder.path().join(option);
        describe(&root);
        let values = if entity == "part" { ["mag", "phase"] } else { ["1", "2"] };
        for (number, value) in values.into_iter().enumerate() {
            let mut own =
                BTreeMap::from([("sub", "1"), ("task", "x"), ("space", "T1w"), ("desc", "preproc")]);
            own.insert(entity, value);
            let parts = order.iter().filter_map(|key| Some(format!("{key}-{}", own.get(key)?)));
            let name = parts.collect::<Vec<_>>().join("_");
            let session = own.get("ses").map(|session| format!("ses-{session}"));
            let below =
                root.join(format!("sub-{}", own["sub"])).join(session.unwrap_or_default()).join("func");
            marked(&below.join(format!("{name}_bold.nii.gz")), number as f64 + 1.0);
        }
        text += &format!(
            "CREATE EXTERNAL TABLE t_{option} STORED AS BIDS LOCATION '{}' OPTIONS (mask 'none', {option} '{}');
             CREATE TABLE f_{option} AS SELECT min(series[1]) AS low, count(*) AS n FROM t_{option};\n",
            root.display(),
            values[1]
        );
    }
    let out = made(&text);
    for (option, _) in options {
        let rows = query(out.path(), &format!("f_{option}"), "SELECT * FROM d");
        assert_eq!((rows[0]["low"].as_f64(), rows[0]["n"].as_u64()), (Some(2.0), Some(4)), "{option}");
    }
}

#[test]
fn names_choose_the_images_of_an_hcp_folder() {
    let folder = tempfile::tempdir().unwrap();
    let mut number = 0;
    for subject in ["100", "200"] {
        for task in ["MOTOR", "REST1"] {
            for run in ["LR", "RL"] {
                for desc in ["", "_hp2000_clean"] {
                    number += 1;
                    let kind = if task.starts_with("REST") { "rfMRI" } else { "tfMRI" };
                    let name = format!("{kind}_{task}_{run}");
                    let below = folder.path().join(subject).join("MNINonLinear/Results").join(&name);
                    marked(&below.join(format!("{name}{desc}.nii.gz")), f64::from(number));
                }
            }
        }
    }
    let cases: [(&str, &[u64]); 6] = [
        ("", &[1, 3, 5, 7, 9, 11, 13, 15]),
        (", subject '200'", &[9, 11, 13, 15]),
        (", task 'REST1'", &[5, 7, 13, 15]),
        (", run 'RL'", &[3, 7, 11, 15]),
        (", desc 'hp2000_clean'", &[2, 4, 6, 8, 10, 12, 14, 16]),
        (", subject '200', task 'MOTOR', run 'LR', desc 'hp2000_clean'", &[10]),
    ];
    let table = |number: usize, more: &str| {
        format!(
            "CREATE EXTERNAL TABLE t{number} STORED AS HCP LOCATION '{}' OPTIONS (mask 'none'{more});
             CREATE TABLE f{number} AS SELECT DISTINCT CAST(floor(series[1]) AS BIGINT) AS n FROM t{number};\n",
            folder.path().display()
        )
    };
    let texts: Vec<String> =
        cases.iter().enumerate().map(|(number, (more, _))| table(number, more)).collect();
    let out = made(&texts.concat());
    for (number, (more, expected)) in cases.iter().enumerate() {
        let rows = query(out.path(), &format!("f{number}"), "SELECT n FROM d ORDER BY n");
        let found: Vec<u64> = rows.iter().map(|row| row["n"].as_u64().unwrap()).collect();
        assert_eq!(found, *expected, "{more}");
    }
    // A run that cannot be used is an error, or left out.
    fs::write(folder.path().join("100/MNINonLinear/Results/tfMRI_MOTOR_LR/tfMRI_MOTOR_LR.nii.gz"), "no")
        .unwrap();
    let said = wrong(&table(0, ""));
    assert!(said.contains("tfMRI_MOTOR_LR.nii.gz: not a gzip file"), "{said}");
    let out = made(&table(0, ", incomplete 'skip'"));
    assert_eq!(query(out.path(), "f0", "SELECT n FROM d").len(), 7);
}

/// Four voxels, read as a file, from a folder of BIDS, and from one of HCP.
#[test]
fn volumes_become_rows_as_the_options_say_in_every_layout() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let values: Vec<Vec<f64>> =
        [0.0, 1.0, 2.0, 3.0].into_iter().map(|v: f64| vec![v * v, 10.0 * v, 1.0, v]).collect();
    image(&at.join("bold.nii.gz"), &values, 0.0);
    image(&at.join("bids/sub-1/func/sub-1_task-x_space-T1w_desc-preproc_bold.nii.gz"), &values, 0.0);
    describe(&at.join("bids"));
    image(&at.join("hcp/1/MNINonLinear/Results/tfMRI_X_LR/tfMRI_X_LR.nii.gz"), &values, 0.0);
    // Three voxels that lie between the four.
    image(&at.join("grid.nii.gz"), &[vec![1.0], vec![1.0], vec![1.0]], 1.5);
    image(&at.join("atlas.nii.gz"), &[0.0, 1.0, 1.0, 2.0].map(|label| vec![label]), 0.0);
    image(&at.join("mask.nii.gz"), &[0.0, 1.0, 1.0, 0.0].map(|inside| vec![inside]), 0.0);
    fs::write(at.join("labels.tsv"), "index\tname\n1\tone\n2\ttwo\n").unwrap();
    let [grid, atlas, mask, labels] = ["grid.nii.gz", "atlas.nii.gz", "mask.nii.gz", "labels.tsv"]
        .map(|name| at.join(name).display().to_string());
    let between = |name: &str| format!("mask 'none', target '{grid}', interpolation '{name}'");
    let parcels = |more: &str| format!("atlas '{atlas}'{more}");
    // Numbers of the rows, and of each the first two volumes; none where a spline or a Gaussian says them.
    type Case<'a> = (String, &'a [u64], Option<&'a [[f64; 2]]>);
    let cases: [Case; 10] = [
        ("mask 'none'".into(), &[0, 1, 2, 3], Some(&[[0.0, 0.0], [1.0, 10.0], [4.0, 20.0], [9.0, 30.0]])),
        (format!("mask '{mask}'"), &[1, 2], Some(&[[1.0, 10.0], [4.0, 20.0]])),
        (between("nearest"), &[0, 1, 2], Some(&[[1.0, 10.0], [4.0, 20.0], [9.0, 30.0]])),
        (between("linear"), &[0, 1, 2], Some(&[[0.5, 5.0], [2.5, 15.0], [6.5, 25.0]])),
        (between("continuous"), &[0, 1, 2], None),
        ("mask 'none', smoothing_fwhm '6'".into(), &[0, 1, 2, 3], None),
        (parcels(""), &[1, 2], Some(&[[2.5, 15.0], [9.0, 30.0]])),
        (parcels(", strategy 'sum'"), &[1, 2], Some(&[[5.0, 30.0], [9.0, 30.0]])),
        (parcels(", background_label '1'"), &[0, 2], Some(&[[0.0, 0.0], [9.0, 30.0]])),
        (parcels(&format!(", atlas_labels '{labels}'")), &[1, 2], Some(&[[2.5, 15.0], [9.0, 30.0]])),
    ];
    let layouts = [("NIFTI", "bold.nii.gz"), ("BIDS", "bids"), ("HCP", "hcp")];
    let mut text = String::new();
    for (number, (options, ..)) in cases.iter().enumerate() {
        for (kind, location) in layouts {
            text += &format!(
                "CREATE EXTERNAL TABLE t{kind}{number} STORED AS {kind} LOCATION '{}' OPTIONS ({options});
                 CREATE TABLE f{kind}{number} AS
                   SELECT * EXCEPT (subject, session, task, run, space) FROM t{kind}{number};\n",
                at.join(location).display()
            );
        }
    }
    let out = made(&text);
    for (number, (options, rows, expected)) in cases.iter().enumerate() {
        let [file, bids, hcp] = layouts.map(|(kind, _)| {
            query(out.path(), &format!("f{}{number}", kind.to_lowercase()), "SELECT * FROM d ORDER BY 1")
        });
        assert_eq!((&file, &file), (&bids, &hcp), "{options}");
        let key = if options.starts_with("atlas") { "parcel" } else { "voxel" };
        let found: Vec<u64> = file.iter().map(|row| row[key].as_u64().unwrap()).collect();
        assert_eq!(found, *rows, "{options}");
        for (row, expected) in file.iter().zip(expected.iter().copied().flatten()) {
            numbers(row)[..2].iter().zip(expected).for_each(|(a, b)| near(*a, *b, 1e-6));
        }
    }
    let of = |number: usize| query(out.path(), &format!("fnifti{number}"), "SELECT * FROM d ORDER BY 1");
    assert_eq!([0, 1].map(|row| of(9)[row]["parcel_name"].clone()), ["one", "two"].map(Value::from));
    // A spline is no line: it is lower where the values bend. What is smoothed is less far apart, and 1 stays 1.
    assert!((numbers(&of(4)[0])[0] - 0.5).abs() > 0.1, "{}", of(4)[0]);
    let smooth: Vec<Vec<f64>> = of(5).iter().map(numbers).collect();
    assert!(smooth[3][1] - smooth[0][1] < 25.0 && smooth[0][1] > 1.0, "{smooth:?}");
    smooth.iter().for_each(|row| near(row[2], 1.0, 1e-5));
}

/// A header whose transforms disagree about left and right: the sform turns the row of voxels around.
#[test]
fn the_transform_that_is_chosen_is_believed_in_folders_too() {
    let folder = tempfile::tempdir().unwrap();
    let bold = folder.path().join("sub-1/func/sub-1_task-x_space-T1w_desc-preproc_bold.nii");
    marked(&bold, 1.0);
    let mut bytes = fs::read(&bold).unwrap();
    // Both transforms hold; pixdim[0] is 1, the first number of the sform is the size of a voxel.
    bytes[76..80].copy_from_slice(&1.0_f32.to_le_bytes());
    [252, 254].into_iter().for_each(|code| bytes[code..code + 2].copy_from_slice(&1_i16.to_le_bytes()));
    bytes[280..284].copy_from_slice(&(-3.0_f32).to_le_bytes());
    fs::write(&bold, bytes).unwrap();
    let text = |more: &str| {
        format!(
            "CREATE EXTERNAL TABLE bold STORED AS BIDS LOCATION '{}' OPTIONS (mask 'none'{more});
             CREATE TABLE f AS SELECT voxel, i, j, k, series[1] AS a FROM bold;
             EXPORT MAPS FROM f TO 'maps/{{column}}.nii';",
            folder.path().display()
        )
    };
    let said = wrong(&text(""));
    assert!(said.contains("disagree about left and right") && said.contains("xform"), "{said}");
    for (xform, first) in [("qform", 3.0_f32), ("sform", -3.0)] {
        let out = made(&text(&format!(", xform '{xform}'")));
        let map = fs::read(out.path().join("maps/a.nii")).unwrap();
        assert_eq!(map[280..284], first.to_le_bytes(), "{xform}");
    }
}

/// Without a place for temporary files a table is read as long as its series are within the limit.
#[test]
fn series_over_the_limit_are_kept_in_a_temporary_file() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    marked(&at.join("bold.nii.gz"), 1.0);
    marked(&at.join("bids/sub-1/func/sub-1_task-x_space-T1w_desc-preproc_bold.nii.gz"), 1.0);
    describe(&at.join("bids"));
    marked(&at.join("hcp/1/MNINonLinear/Results/tfMRI_X_LR/tfMRI_X_LR.nii.gz"), 1.0);
    // Columns of an array behind each other have to be turned into rows.
    for (name, order) in [("rows.npy", "False"), ("columns.npy", "True")] {
        let header = format!("{{'descr': '<f4', 'fortran_order': {order}, 'shape': (8, 16), }}");
        let mut bytes = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
        bytes.extend(format!("{header:<117}\n").bytes());
        bytes.extend((0..128_u8).flat_map(|value| f32::from(value).to_le_bytes()));
        fs::write(at.join(name), bytes).unwrap();
    }
    let run = |kind: &str, location: &str, options: &str| {
        let file = at.join("limited.vf");
        let text = format!(
            "CREATE EXTERNAL TABLE t STORED AS {kind} LOCATION '{location}' {options};
             CREATE TABLE f AS SELECT * FROM t;"
        );
        fs::write(&file, text).unwrap();
        let out = tempfile::tempdir().unwrap();
        let mut command = program("voxelflow");
        command.arg("run").arg(&file).arg("--out").arg(out.path()).env("TMPDIR", at.join("nowhere"));
        Ended::from(command.output().unwrap())
    };
    let own = |name: &str| at.join(name).display().to_string();
    for (kind, location, mask, spills) in [
        ("NIFTI", own("bold.nii.gz"), "mask 'none'", true),
        ("BIDS", own("bids"), "mask 'none'", true),
        ("HCP", own("hcp"), "mask 'none'", true),
        ("GIFTI", GIFTI.to_owned(), "t_r '2'", true),
        ("MGH", MGH.to_owned(), "t_r '2'", true),
        ("NPY", own("columns.npy"), "t_r '2'", true),
        // They come row by row: nothing has to be kept.
        ("NPY", own("rows.npy"), "t_r '2'", false),
        ("CIFTI", CIFTI.to_owned(), "t_r '2'", false),
    ] {
        run(kind, &location, &format!("OPTIONS ({mask})")).expect_code(0);
        let limited = run(kind, &location, &format!("OPTIONS ({mask}, memory_limit '16')"));
        match spills {
            true => assert!(limited.expect_code(1).stderr.contains("nowhere"), "{kind}"),
            false => drop(limited.expect_code(0)),
        }
    }
}

/// Who writes one of these means something that does not happen.
#[test]
fn options_that_could_only_be_ignored_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let participants: PathBuf = folder.path().join("participants.tsv");
    fs::write(&participants, "participant_id\tage\nsub-1\t31\n").unwrap();
    let confounded = Confounded::new();
    let at = confounded.0.path().display();
    let bold = format!(
        "CREATE EXTERNAL TABLE bold STORED AS NIFTI LOCATION '{at}/bold.nii.gz'
           OPTIONS (mask 'none', confounds '{at}/confounds.tsv');\n"
    );
    let participants = participants.display();
    let table = |kind: &str| {
        format!("CREATE EXTERNAL TABLE t STORED AS {kind} LOCATION '{participants}' OPTIONS (subject 's');")
    };
    let grayordinates = folder.path().join("bids");
    describe(&grayordinates);
    fs::create_dir_all(grayordinates.join("sub-1/func")).unwrap();
    let file = grayordinates.join("sub-1/func/sub-1_task-x_space-fsLR_den-91k_bold.dtseries.nii");
    fs::copy(root().join(CIFTI), file).unwrap();
    for (text, option) in [
        // Regressors are standardised before they are removed: there is no such option.
        (format!("{bold}SELECT * FROM clean(bold, confounds => 'trans_x', demean => false);"), "demean"),
        // Of participants their table says who they are.
        (table("PARTICIPANTS"), "subject"),
        (table("PHENOTYPE"), "subject"),
        // Grayordinates have no transform to choose.
        (
            format!(
                "CREATE EXTERNAL TABLE t STORED AS BIDS LOCATION '{}' OPTIONS (kind 'grayordinates', xform 'qform');",
                grayordinates.display()
            ),
            "xform",
        ),
        // A ring needs each of its ranks, and none is started anew.
        (
            format!(
                "{ROWS}TRAIN MODEL m USING histogram ON rows WITH (ranks => 2, topology => 'ring', max_rank_restarts => 2);"
            ),
            "max_rank_restarts",
        ),
    ] {
        let said = wrong(&text);
        assert!(said.contains(option), "{option} in\n{said}");
    }
}

/// As of a training, an option that says something about what is not done is refused.
#[test]
fn options_without_effect_beside_the_others_are_refused() {
    let confounded = Confounded::new();
    let at = confounded.0.path().display();
    fs::write(confounded.0.path().join("events.tsv"), "onset\tduration\ttrial_type\n20\t0\tgo\n").unwrap();
    let bold = format!(
        "CREATE EXTERNAL TABLE bold STORED AS NIFTI LOCATION '{at}/bold.nii.gz'
           OPTIONS (mask 'none', confounds '{at}/confounds.tsv', events '{at}/events.tsv');\n"
    );
    for (call, option) in [
        ("clean(bold, confounds => 'wm_csf', motion => 'full')", "motion"),
        ("clean(bold, confounds => 'motion', wm_csf => 'full')", "wm_csf"),
        ("clean(bold, confounds => 'motion', global_signal => 'full')", "global_signal"),
        ("clean(bold, confounds => 'motion', n_compcor => 3)", "n_compcor"),
        ("clean(bold, confounds => 'motion', compcor => 'temporal')", "compcor"),
        ("clean(bold, confounds => 'motion', ica_aroma => 'basic')", "ica_aroma"),
        ("clean(bold, confounds => 'motion', scrub => 3)", "scrub"),
        ("clean(bold, confounds => 'motion', fd_threshold => 0.2)", "fd_threshold"),
        ("clean(bold, confounds => 'motion', std_dvars_threshold => 2)", "std_dvars_threshold"),
        ("design(bold, drift_order => 3)", "drift_order"),
        ("design(bold, drift_model => 'none', high_pass => 0.02)", "high_pass"),
        ("design(bold, fir_delays => [1, 2])", "fir_delays"),
        ("design(bold, hrf_model => 'fir', oversampling => 3)", "oversampling"),
    ] {
        let said = wrong(&format!("{bold}SELECT * FROM {call};"));
        assert!(said.contains(option), "{option} in\n{said}");
    }
}
