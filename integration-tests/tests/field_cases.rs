//! Cases from the field: what went wrong elsewhere, and the tests that say what is right here.
//!
//! [`CASES`] names them all, each with the tests that fix it, wherever they are; a test here sees to it that these
//! exist and run.

use crate::program::{program, root, run_text, voxelflow, with_peak_memory};
use serde_json::Value;
use std::{collections::BTreeSet, fs, path::Path};

/// A case and what covers it.
struct Case {
    number: u8,
    input: &'static str,
    right: &'static str,
    /// Tests by file and name.
    covered: &'static [(&'static str, &'static str)],
}

const NIFTI: &str = "connectors/formats/tests/nifti/field_cases.rs";
const CONFOUNDS: &str = "ml/signal/tests/confounds.rs";
const DESIGNS: &str = "ml/signal/tests/design_rules.rs";
const SCRUBBING: &str = "ml/signal/tests/scrubbing.rs";
const WRONG_INPUTS: &str = "integration-tests/tests/wrong_inputs.rs";
const STORES: &str = "connectors/storage/tests/stores/check.rs";
const HERE: &str = "integration-tests/tests/field_cases.rs";

const CASES: [Case; 22] = [
    Case {
        number: 1,
        input: "confounds of 5 rows, n/a in the derivative's first row",
        right: "the stated policy, recorded; another NaN is an error with row and column",
        covered: &[
            (CONFOUNDS, "a_missing_first_value_is_filled_by_the_stated_policy_and_no_other"),
            (
                "integration-tests/tests/bids.rs",
                "confounds_of_each_run_are_removed_here_and_on_executors_alike",
            ),
        ],
    },
    Case {
        number: 2,
        input: "6 rows, every framewise displacement 9 mm",
        right: "the run is refused by name, in the ledger",
        covered: &[(CONFOUNDS, "a_run_of_which_nothing_is_left_is_refused")],
    },
    Case {
        number: 3,
        input: "2 voxels, one all zero, regressed on confounds",
        right: "it stays zero and is counted",
        covered: &[
            (SCRUBBING, "a_zero_voxel_stays_zero_and_is_counted"),
            (WRONG_INPUTS, "a_constant_voxel_is_kept_and_counted"),
        ],
    },
    Case {
        number: 4,
        input: "2×2×2×4 with one NaN",
        right: "counted, stated policy, no spread",
        covered: &[
            ("ml/signal/src/smoothing.rs", "a_nan_is_counted_and_does_not_spread"),
            ("ml/signal/src/resampling.rs", "a_nan_does_not_spread"),
            (WRONG_INPUTS, "a_voxel_that_is_not_a_number"),
        ],
    },
    Case {
        number: 5,
        input: "two identical event rows",
        right: "one documented rule and a ledger row",
        covered: &[
            (DESIGNS, "identical_events_are_one_with_both_modulations"),
            (
                "ml/operators/tests/operators/design.rs",
                "what_was_merged_or_left_out_is_in_the_ledger_with_its_place",
            ),
        ],
    },
    Case {
        number: 6,
        input: "sidecar with StartTime, t_r 2, an impulse",
        right: "the shift is used",
        covered: &[
            (DESIGNS, "start_time_moves_the_moments_and_not_the_events"),
            ("integration-tests/tests/design.rs", "a_start_time_in_the_sidecar_moves_the_peak"),
        ],
    },
    Case {
        number: 7,
        input: "JSON 2.0 and pixdim[4] 0; JSON absent and pixdim 0; 1500 labelled s",
        right: "JSON wins; refused when absent; refused as implausible",
        covered: &[
            (NIFTI, "repetition_time_implausible_absent_or_in_other_units"),
            ("connectors/formats/tests/sidecar.rs", "the_repetition_time_of_the_sidecar_outranks_the_header"),
        ],
    },
    Case {
        number: 8,
        input: "sform and qform disagree left-right",
        right: "error unless told which",
        covered: &[(NIFTI, "sform_and_qform_that_disagree_left_right_are_refused_unless_told")],
    },
    Case {
        number: 9,
        input: "a .nii.gz cut at 8,192 bytes; not gzip at all; bad CRC",
        right: "typed error with path and byte offset",
        covered: &[
            (NIFTI, "a_gzip_file_cut_at_8192_bytes_names_path_and_offset"),
            (NIFTI, "a_name_that_says_gzip_over_other_content_is_refused_at_byte_0"),
            (NIFTI, "a_bad_checksum_or_length_is_refused_with_the_offset"),
            (WRONG_INPUTS, "a_truncated_image"),
        ],
    },
    Case {
        number: 10,
        input: "big-endian int16 4×4×4",
        right: "equal to little-endian",
        covered: &[(NIFTI, "big_endian_int16_equals_little_endian")],
    },
    Case {
        number: 11,
        input: "float data under an int16 header",
        right: "float32 written, exact round trip",
        covered: &[(NIFTI, "results_on_the_grid_of_an_int16_image_are_float32_and_exact")],
    },
    Case {
        number: 12,
        input: "dims 2,2,2,1,5",
        right: "trailing singletons only, else error",
        covered: &[(NIFTI, "only_trailing_singleton_dimensions_are_taken")],
    },
    Case {
        number: 13,
        input: "mask shifted 1 mm",
        right: "error by default",
        covered: &[
            (NIFTI, "a_mask_shifted_by_1_mm_is_on_another_grid"),
            (WRONG_INPUTS, "a_mask_of_another_grid"),
        ],
    },
    Case {
        number: 14,
        input: "atlas label 200 in int8",
        right: "widened",
        covered: &[
            (NIFTI, "labels_over_127_are_widened_and_never_wrap"),
            ("ml/signal/src/parcels/labels.rs", "labels_over_127_do_not_wrap"),
            ("connectors/tables/tests/image_volumes.rs", "labels_over_127_do_not_wrap_and_have_their_names"),
        ],
    },
    Case {
        number: 15,
        input: "10 volumes, the first 2 censored, with filtering",
        right: "never extrapolates",
        covered: &[(SCRUBBING, "nothing_is_extrapolated")],
    },
    Case {
        number: 16,
        input: "7 rows, 2 executors, minibatch 2",
        right: "finishes, counts reported",
        covered: &[
            (HERE, "seven_rows_on_two_executors_by_two"),
            ("ml/operators/tests/operators/train.rs", "any_number_of_ranks_finishes_on_uneven_partitions"),
        ],
    },
    Case {
        number: 17,
        input: "RidgeCV with a duplicated column, alpha 1e-12",
        right: "condition check, clear message",
        covered: &[(
            "ml/ridge/tests/reference.rs",
            "a_duplicated_feature_with_a_tiny_penalty_is_refused_with_one_that_does",
        )],
    },
    Case {
        number: 18,
        input: "1,000,000 × 768 FixedSizeList written to Parquet",
        right: "row groups bounded in bytes; peak memory test",
        covered: &[(HERE, "long_rows_are_written_within_bounded_memory")],
    },
    Case {
        number: 19,
        input: "S3: no region; wrong endpoint; public bucket without keys; wrong secret",
        right: "the field is named within seconds",
        covered: &[
            ("connectors/storage/src/s3/settings_tests.rs", "what_is_missing_is_named"),
            (STORES, "a_wrong_region_is_named_with_the_right_one"),
            (STORES, "an_endpoint_that_is_not_there_is_silent_or_is_no_s3_is_named"),
            (STORES, "a_public_bucket_is_read_without_keys_and_not_written"),
            (STORES, "s3_names_bucket_key_secret_anonymous_access_and_path"),
            (HERE, "a_store_that_is_described_wrongly_is_named_before_anything_runs"),
        ],
    },
    Case {
        number: 20,
        input: "the same subject in training and test",
        right: "refused unless allowed, lineage recorded",
        covered: &[
            (HERE, "a_subject_on_both_sides_is_refused_unless_allowed_and_recorded"),
            ("ml/operators/tests/operators/split.rs", "a_leak_is_refused"),
        ],
    },
    Case {
        number: 21,
        input: "onset −5 s, onset 9,999 s, no trial_type",
        right: "those that overlap through the HRF count; the rest in the ledger",
        covered: &[
            (DESIGNS, "events_outside_the_run_count_as_far_as_their_response_reaches"),
            (DESIGNS, "events_without_a_condition"),
            ("integration-tests/tests/design.rs", "odd_events_are_in_the_ledger_and_wrong_ones_are_refused"),
        ],
    },
    Case {
        number: 22,
        input: "sample mask of length 9 for 10 volumes; uint8 used as index",
        right: "error",
        covered: &[
            ("ml/signal/src/sample_mask.rs", "masks_that_misalign_are_refused"),
            (SCRUBBING, "masks_and_confounds_of_another_length_are_refused"),
        ],
    },
];

/// Whether `source` has a test of that name that runs.
fn runs(source: &str, name: &str) -> bool {
    let Some((before, _)) = source.split_once(&format!("fn {name}(")) else { return false };
    // Attributes and comments stand between the end of what came before and the name.
    let before = before.trim_end_matches([' ', '\t']).trim_end_matches("async").trim_end_matches([' ', '\t']);
    let own: Vec<&str> = before.lines().rev().take_while(|line| !line.trim().is_empty()).collect();
    let is_test = |line: &&str| line.contains("#[test]") || line.contains("#[tokio::test");
    own.iter().any(is_test) && !own.iter().any(|line| line.contains("#[ignore"))
}

#[test]
fn every_case_is_covered() {
    let numbers: Vec<u8> = CASES.iter().map(|case| case.number).collect();
    assert_eq!(numbers, (1..=22).collect::<Vec<u8>>());
    let mut wrong = Vec::new();
    for Case { number, input, right, covered } in &CASES {
        assert!(!covered.is_empty(), "case {number} has no test");
        for (file, name) in *covered {
            let source = fs::read_to_string(root().join(file)).unwrap_or_default();
            if !runs(&source, name) {
                wrong.push(format!("case {number} ({input} → {right}): {file} has no test {name}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(
        runs("/// It.\n#[test]\nfn it() {}", "it") && runs("    #[tokio::test]\n    async fn it() {}", "it")
    );
    assert!(
        !runs("#[test]\n#[ignore]\nfn it() {}", "it") && !runs("#[test]\nfn other() {}\n\nfn it() {}", "it")
    );
}

const BOLD: &str =
    "CREATE EXTERNAL TABLE bold STORED AS NIFTI LOCATION 'examples/data/ds003_sub-01_mc.nii.gz'
      OPTIONS (mask 'auto', subject '01');
    CREATE TABLE series AS SELECT * FROM clean(bold, detrend => true, standardize => 'zscore_sample');\n";
const MODEL: &str = "dist_dca (hidden => 4, filters => [4], kernels => [5], pools => 1)";

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// Case 16: the last minibatch of one rank is short, and the other has one minibatch fewer.
#[test]
fn seven_rows_on_two_executors_by_two() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("seven.vf"), folder.path().join("out"));
    for consistency in ["sync", "async"] {
        let text = format!(
            "{BOLD} CREATE TABLE seven AS SELECT * FROM series ORDER BY voxel LIMIT 7;
             TRAIN MODEL dca USING {MODEL} ON seven
               WITH (ranks => 2, minibatch => 2, epochs => 3, consistency => '{consistency}', seed => 1);"
        );
        fs::write(&file, text).unwrap();
        let run = ["run", file.to_str().unwrap(), "--out", out.to_str().unwrap()];
        let executors = ["--fresh", "--executors", "2", "--slots", "1"];
        let ended = voxelflow(run.iter().chain(&executors)).expect_code(0);
        assert!(ended.stdout.contains('7'), "{}", ended.stdout);
        let model = out.join("models/dca");
        assert_eq!(json(&model.join("statistics.json"))["rows"], 7);
        let epochs = json(&model.join("history.json"))["epochs"].clone();
        let samples: Vec<u64> =
            epochs.as_array().unwrap().iter().map(|epoch| epoch["samples"].as_u64().unwrap()).collect();
        assert_eq!(samples, [7, 7, 7], "{consistency}: every row once an epoch");
        let members = json(&model.join("gang.json"))["members"].clone();
        let of_ranks: u64 = members.as_array().unwrap().iter().map(|m| m["samples"].as_u64().unwrap()).sum();
        assert_eq!(of_ranks, 21, "{consistency}: {members}");
    }
}

/// Megabytes that a process may take that writes rows of any number: some row groups of 64 MiB, and itself.
const PEAK_MIB: u64 = 1_024;

/// Case 18: rows of 3 KiB, three times as many bytes as the process may take.
#[test]
fn long_rows_are_written_within_bounded_memory() {
    const ROWS: u64 = 1_000_000;
    const POINTS: u64 = 768;
    let folder = tempfile::tempdir().unwrap();
    let rows = folder.path().join("rows");
    let mut command = program("long_rows");
    command.args([&rows.display().to_string(), &ROWS.to_string(), &POINTS.to_string()]);
    command.env("VOXELFLOW_OUT", folder.path().join("out"));
    let (ended, peak_mib) = with_peak_memory(command);
    ended.expect_code(0);
    println!("peak {peak_mib} MiB for {} MiB of values", (ROWS * POINTS * 4) >> 20);
    assert!(peak_mib < PEAK_MIB, "peak of {peak_mib} MiB");
    let mut written = 0;
    for name in crate::program::files_below(&rows).iter().filter(|name| name.ends_with(".parquet")) {
        use parquet::file::reader::{FileReader, SerializedFileReader};
        let file = SerializedFileReader::new(fs::File::open(rows.join(name)).unwrap()).unwrap();
        for group in file.metadata().row_groups() {
            let mib = group.total_byte_size() >> 20;
            assert!(mib <= 128, "a row group holds {mib} MiB");
            written += group.num_rows() as u64;
        }
    }
    assert_eq!(written, ROWS);
}

/// Case 19 from a pipeline: nothing is waited for, nothing is written.
#[test]
fn a_store_that_is_described_wrongly_is_named_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("store.vf"), folder.path().join("out"));
    let started = std::time::Instant::now();
    let refused = |settings: &str, environment: &[(&str, &str)]| {
        let text =
            format!("{settings} CREATE EXTERNAL TABLE t STORED AS PARQUET LOCATION 's3://lab/series/';");
        fs::write(&file, text).unwrap();
        let mut command = program("voxelflow");
        command.args(["run".as_ref(), file.as_os_str(), "--out".as_ref(), out.as_os_str()]);
        let inherited = std::env::vars().map(|(name, _)| name).filter(|name| name.starts_with("AWS_"));
        inherited.for_each(|name| {
            command.env_remove(name);
        });
        command.env("HOME", folder.path()).env("AWS_EC2_METADATA_DISABLED", "true");
        command.envs(environment.iter().copied());
        crate::program::Ended::from(command.output().unwrap()).expect_code(2).stderr
    };
    let keys = [("AWS_ACCESS_KEY_ID", "lab"), ("AWS_SECRET_ACCESS_KEY", "secret-of-the-lab")];
    let no_region = refused("", &keys);
    assert!(no_region.contains("region"), "{no_region}");
    let no_keys = refused("SET s3.region = 'eu-central-1';", &[]);
    assert!(no_keys.contains("AWS_ACCESS_KEY_ID") || no_keys.contains("anonymous"), "{no_keys}");
    let endpoint = refused("SET s3.endpoint = 'http://127.0.0.1:1';", &keys);
    assert!(endpoint.contains("http://127.0.0.1:1") && endpoint.contains("cannot be reached"), "{endpoint}");
    assert!([&no_region, &no_keys, &endpoint].iter().all(|told| !told.contains("secret-of-the-lab")));
    assert!(started.elapsed().as_secs() < 30, "{:?} for three refusals", started.elapsed());
    assert!(!out.join("tables").exists());
}

/// Case 20: two subjects, each with some of its voxels on either side.
#[test]
fn a_subject_on_both_sides_is_refused_unless_allowed_and_recorded() {
    let subjects = format!(
        "{BOLD} CREATE TABLE two AS SELECT * FROM series UNION ALL SELECT '02' AS subject, * EXCEPT (subject) FROM series;"
    );
    let train = |with: &str| {
        format!(
            "{subjects} TRAIN MODEL dca USING {MODEL} ON (SELECT * FROM two WHERE voxel % 5 <> 0)
               VALIDATE ON (SELECT * FROM two WHERE voxel % 5 = 0) WITH (minibatch => 50{with});"
        )
    };
    let out = tempfile::tempdir().unwrap();
    let ended = run_text(&train(""), out.path()).expect_code(2);
    for said in ["subject 01, 02", "by => 'subject'", "subject_overlap"] {
        assert!(ended.stderr.contains(said), "`{said}` is missing in\n{}", ended.stderr);
    }
    assert!(!out.path().join("models/dca").exists());
    run_text(&train(", subject_overlap => 'allow'"), out.path()).expect_code(0);
    let statistics = json(&out.path().join("models/dca/statistics.json"));
    let both: BTreeSet<&str> = ["01", "02"].into();
    for column in ["subjects", "validation_subjects"] {
        let found: BTreeSet<&str> =
            statistics[column].as_array().unwrap().iter().map(|s| s.as_str().unwrap()).collect();
        assert_eq!(found, both, "{column}");
    }
}
