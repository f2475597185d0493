//! A report with one of everything, on a head-shaped phantom.

use voxelflow_report::{
    FileRow, LedgerRow, MapSection, ModelSection, ReconstructionExample, Report, ResultTable, StatementRow,
    TableRow, Volume,
};
use voxelflow_stage::{Choice, EpochRecord, Grid, History, LayerFilters, StepRecord};

/// A name that would run as a script if it were not escaped.
pub const HOSTILE: &str = "maps/<script>document.title='hostile'</script>.nii.gz";

/// A volume of 40 × 48 × 20 voxels of 4 × 4 × 5 mm, stored right to left, of `value(x, y, z)` with
/// coordinates −1..=1 over the head.
pub fn volume(value: impl Fn(f64, f64, f64) -> f32) -> Volume {
    let shape = [40, 48, 20];
    let unit = |index: usize, count: usize| 2.2 * (index as f64 / (count - 1) as f64 - 0.5);
    let mut values = Vec::new();
    for k in 0..shape[2] {
        for j in 0..shape[1] {
            for i in 0..shape[0] {
                values.push(value(-unit(i, shape[0]), unit(j, shape[1]), unit(k, shape[2])));
            }
        }
    }
    let affine =
        [[-4.0, 0.0, 0.0, 78.0], [0.0, 4.0, 0.0, -110.0], [0.0, 0.0, 5.0, -40.0], [0.0, 0.0, 0.0, 1.0]];
    let grid = Grid {
        shape,
        affine,
        xform_code: 1,
        t_r: Some(2.0),
        mask_hash: String::new(),
        mask_voxels: values.len(),
        source: "sub-01_task-rest_bold.nii.gz".into(),
        history: Vec::new(),
    };
    Volume { grid, values }
}

fn head() -> Volume {
    volume(|x, y, z| {
        let radius = (x * x + y * y + z * z).sqrt();
        if radius < 1.0 {
            (900.0 - 350.0 * radius + 60.0 * (9.0 * x).sin() * (8.0 * y).cos()) as f32
        } else {
            5.0
        }
    })
}

fn correlation() -> Volume {
    let blob = |x: f64, y: f64, z: f64, at: [f64; 3]| {
        (-((x - at[0]).powi(2) + (y - at[1]).powi(2) + (z - at[2]).powi(2)) / 0.05).exp()
    };
    volume(|x, y, z| {
        if x * x + y * y + z * z > 0.9 {
            return f32::NAN;
        }
        (0.8 * blob(x, y, z, [-0.5, -0.2, 0.3]) - 0.5 * blob(x, y, z, [0.4, 0.4, 0.2])
            + 0.02 * (40.0 * x).sin()) as f32
    })
}

fn history() -> History {
    let steps = (0..400u64).map(|step| StepRecord {
        epoch: step / 100,
        step,
        samples: 256,
        loss: 70.0 * (-(step as f64) / 60.0).exp() + 3.0 + ((step * 7919) % 13) as f64 * 0.15,
        staleness: step % 3,
        feed_seconds: 0.004,
        compute_seconds: 0.021,
        sync_seconds: 0.006,
    });
    let steps: Vec<StepRecord> = steps.collect();
    let epochs = steps.chunks(100).map(|rounds| {
        let loss = rounds.iter().map(|s| s.loss).sum::<f64>() / rounds.len() as f64;
        let last = rounds[rounds.len() - 1];
        EpochRecord {
            epoch: last.epoch,
            samples: 51_200,
            loss,
            validation_loss: Some(last.loss * 1.1),
            seconds: 3.1,
        }
    });
    let epochs = epochs.collect();
    History {
        initial_loss: 77.8,
        steps,
        epochs,
        samples_per_rank: vec![51_200, 51_200, 50_960, 51_440],
        bytes_sent_per_rank: vec![96_000_000, 96_000_000, 95_500_000, 96_400_000],
    }
}

fn filters(layer: &str, shape: [usize; 3]) -> LayerFilters {
    let [filters, channels, length] = shape;
    let mut values = Vec::new();
    for filter in 0..filters {
        for channel in 0..channels {
            for tap in 0..length {
                let t = tap as f32 / length as f32 - 0.5;
                let (a, b) = (filter as f32, channel as f32);
                values.push((-12.0 * t * t).exp() * (t * (4.0 + a) + a + 0.7 * b).sin() * 0.3);
            }
        }
    }
    LayerFilters { layer: layer.into(), shape, values }
}

fn model() -> ModelSection {
    let example = |n: usize| {
        let series: Vec<f32> = (0..156)
            .map(|t| ((t * (n + 2)) as f32 / 9.0).sin() + 0.5 * ((t * 31 + n * 17) % 7) as f32 / 3.5 - 0.5)
            .collect();
        let reconstruction = series.iter().map(|v| v * 0.85).collect();
        ReconstructionExample {
            label: format!("sub-01, voxel {} 24 11", 12 + n),
            t_r: Some(2.0),
            series,
            reconstruction,
            r: 0.97 - 0.1 * n as f64,
        }
    };
    ModelSection {
        name: "dca".into(),
        stage: "dist_dca".into(),
        parameters: 6_020_381,
        settings: vec![
            ("lambda".into(), "0.006".into()),
            ("ranks".into(), "4".into()),
            ("minibatch".into(), "256".into()),
        ],
        lineage: vec![
            ("training table".into(), "series".into()),
            ("training subjects".into(), "sub-01".into()),
        ],
        history: history(),
        filters: vec![filters("encoder.0", [32, 1, 21]), filters("encoder.1", [64, 32, 9])],
        reconstructions: (0..4).map(example).collect(),
        ..ModelSection::default()
    }
}

/// A model that was chosen among penalties.
fn chosen() -> ModelSection {
    let penalties: Vec<f64> = (-1..7).map(|power| 10f64.powi(power)).collect();
    let score = |penalty: &f64| 0.031 - 0.004 * (penalty.log10() - 3.0).powi(2);
    let choice = Choice {
        scoring: "r2".into(),
        mean_scores: penalties.iter().map(score).collect(),
        penalties,
        chosen: Some(4),
    };
    let epoch = EpochRecord { epoch: 0, samples: 9_000, loss: 0.969, validation_loss: None, seconds: 2.0 };
    ModelSection {
        name: "enc".into(),
        stage: "ridge_cv".into(),
        parameters: 90_300,
        history: History { initial_loss: 1.0, epochs: vec![epoch], ..History::default() },
        choice: Some(choice),
        ..ModelSection::default()
    }
}

/// The report.
pub fn report() -> Report {
    let mut report = Report::new("Resting state, one subject", "2026-01-31 12:00 UTC", "0.1.0");
    report.pipeline_text =
        Some("CREATE TABLE series AS SELECT * FROM clean(bold, detrend => true);\n".into());
    report.statements = vec![
        StatementRow::unchanged(
            "CREATE TABLE series AS SELECT * FROM clean(bold, detrend => true)",
            Some(18_400),
        ),
        StatementRow::ran(
            "TRAIN MODEL dca USING dist_dca (lambda => 0.006) ON series WITH (ranks => 4)",
            12.4,
            Some(18_400),
        ),
    ];
    report.tables = vec![TableRow {
        name: "series".into(),
        rows: 18_400,
        columns: ["subject", "run", "voxel", "i", "j", "k", "series"].map(String::from).into(),
        path: Some("out/tables/series".into()),
        bytes: Some(11_900_000),
    }];
    report.files = vec![
        FileRow { path: HOSTILE.into(), bytes: 81_234, what: "reconstruction r of each voxel".into() },
        FileRow { path: "model/model.safetensors".into(), bytes: 24_081_524, what: "weights of dca".into() },
    ];
    report.ledger = vec![
        LedgerRow {
            statement: "table series".into(),
            run: "sub-01 task-rest".into(),
            what: "constant voxel".into(),
            reason: "no variance over the volumes that are kept".into(),
            count: 37,
            places: "4-40".into(),
        },
        LedgerRow {
            statement: "table series".into(),
            run: "sub-02 task-rest".into(),
            what: "dropped volume".into(),
            reason: "framewise displacement over 0.5 mm".into(),
            count: 5,
            places: "0-3,17".into(),
        },
    ];
    report.results = vec![ResultTable {
        title: "Held-out reconstruction".into(),
        caption: "Median Pearson r over held-out voxels.".into(),
        header: vec!["model".into(), "hidden size".into(), "median r".into()],
        rows: vec![
            vec!["dist-DCA".into(), "64".into(), "0.91".into()],
            vec!["PCA".into(), "64".into(), "0.93".into()],
        ],
    }];
    report.models = vec![model(), chosen()];
    report.maps = vec![
        MapSection::image("Mean image", "a.u.", head()).described("Mean over time of the run."),
        MapSection::statistic("Reconstruction r", "r", correlation(), Some(head()))
            .described("Pearson r of each voxel's series with its reconstruction.")
            .thresholded(0.1),
    ];
    report
}
