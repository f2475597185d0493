//! A small folder of BIDS derivatives, made of a real image as fMRIPrep names its output.

use crate::program::root;
use std::{
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};
use voxelflow_formats::{NiftiReader, NiftiSpec, NiftiWriter};

/// A real image, 16×16×9×20.
pub const BOLD: &str = "examples/data/ds003_sub-01_mc.nii.gz";
/// Volumes of [`BOLD`].
pub const VOLUMES: usize = 20;

/// Derivatives of two runs of a real image (16×16×9×20), the second backwards in time, as fMRIPrep names them.
pub struct Tree {
    _folder: tempfile::TempDir,
    pub root: PathBuf,
}

impl Tree {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let derivatives = folder.path().join("fmriprep");
        let func = derivatives.join("sub-01/func");
        fs::create_dir_all(&func).unwrap();
        let description = r#"{"Name": "test", "BIDSVersion": "1.9.0", "DatasetType": "derivative"}"#;
        fs::write(derivatives.join("dataset_description.json"), description).unwrap();
        fs::write(derivatives.join("task-rhyme_bold.json"), r#"{"RepetitionTime": 2.0, "StartTime": 1.0}"#)
            .unwrap();
        let (header, values) = NiftiReader::open(root().join(BOLD)).unwrap().read_all().unwrap();
        let size = header.shape.iter().product::<usize>();
        let write = |path: &Path, volumes: Vec<Vec<f32>>| {
            let spec =
                NiftiSpec::new(header.shape, volumes.len()).with_affine(header.affine, 1).with_t_r(2.0);
            let mut writer = NiftiWriter::create(path, &spec).unwrap();
            volumes.iter().for_each(|volume| writer.write_volume(volume).unwrap());
            writer.finish().unwrap();
        };
        let volumes: Vec<Vec<f32>> = values.chunks(size).map(<[f32]>::to_vec).collect();
        let threshold = volumes[0].iter().sum::<f32>() / size as f32;
        let mask: Vec<f32> = volumes[0].iter().map(|x| f32::from(*x > threshold)).collect();
        for run in [1, 2] {
            let file = |end: &str| func.join(format!("sub-01_task-rhyme_run-{run}_{end}"));
            let mut volumes = volumes.clone();
            if run == 2 {
                volumes.reverse();
            }
            write(&file("space-T1w_desc-preproc_bold.nii.gz"), volumes);
            write(&file("space-T1w_desc-brain_mask.nii.gz"), vec![mask.clone()]);
            fs::write(file("desc-confounds_timeseries.tsv"), confounds(VOLUMES, run)).unwrap();
        }
        Self { _folder: folder, root: derivatives }
    }

    pub fn file(&self, run: u8, end: &str) -> PathBuf {
        self.root.join(format!("sub-01/func/sub-01_task-rhyme_run-{run}_{end}"))
    }
}

/// Twenty-four motion parameters as fMRIPrep writes them: derivatives have no first row.
pub fn confounds(volumes: usize, run: usize) -> String {
    let names = ["trans_x", "trans_y", "trans_z", "rot_x", "rot_y", "rot_z"];
    let value = |column: usize, t: usize| ((t as f64) * (0.3 + 0.11 * column as f64) + run as f64).sin();
    let mut header = Vec::new();
    for name in names {
        header
            .extend(["", "_derivative1", "_power2", "_derivative1_power2"].map(|end| format!("{name}{end}")));
    }
    let mut text = header.join("\t");
    for t in 0..volumes {
        let mut cells: Vec<String> = Vec::new();
        for column in 0..names.len() {
            let x = value(column, t);
            let derivative = (t > 0).then(|| x - value(column, t.wrapping_sub(1)));
            let text = |x: Option<f64>| x.map_or("n/a".to_owned(), |x| x.to_string());
            cells.extend([Some(x), derivative, Some(x * x), derivative.map(|d| d * d)].map(text));
        }
        write!(text, "\n{}", cells.join("\t")).unwrap();
    }
    text + "\n"
}
