//! What a folder of BIDS derivatives or of the HCP pipelines would give as a table, and what is wrong with it.

use crate::series_file::SeriesFile;
use crate::{Result, RunKeys, SeriesFormat, Stores};
use voxelflow_formats::bids::{
    BidsDataset, BidsRun, BoldKind, EventFiles, HcpQuery, Problem, Role, select_hcp_runs, select_runs,
    variants_of,
};
use voxelflow_storage::Listing;

/// What was found in a folder.
#[derive(Debug, Default)]
pub struct FolderReport {
    /// `BIDS` or `HCP`: the word after `STORED AS`.
    pub kind: &'static str,
    /// Runs, in each variant (space, resolution, description) that they exist in.
    pub runs: Vec<InspectedRun>,
    /// What is wrong, each once.
    pub problems: Vec<String>,
}

/// A run in one variant.
#[derive(Debug)]
pub struct InspectedRun {
    /// `sub-01 ses-a task-x run-1`.
    pub run: String,
    /// What has to be chosen to get it: `desc-preproc space-T1w`.
    pub variant: String,
    /// Voxels along i, j, k, vertices of the hemispheres, or grayordinates; none for what cannot be read.
    pub size: Option<String>,
    /// Volumes, or points of the series.
    pub volumes: Option<usize>,
    /// Repetition time in seconds: the sidecars', else the header's.
    pub t_r: Option<f64>,
    /// Whether it can be read as voxel series.
    pub usable: bool,
    /// Whether there is a brain mask.
    pub mask: bool,
    /// Whether there are confounds.
    pub confounds: bool,
    /// Where events come from: `table`, or the number of FSL's files.
    pub events: Option<String>,
}

/// Looks at every run of a folder: names, sidecars and headers, no volumes. Nothing when the folder is of no kind
/// that is known here.
///
/// # Errors
/// A folder that cannot be listed.
pub fn inspect_folder(location: &str) -> Result<Option<FolderReport>> {
    let listing = Stores::default().list(location)?;
    if listing.paths().iter().any(|path| path.contains("MNINonLinear/Results/")) {
        return Ok(Some(inspect_hcp(&listing)));
    }
    let read = |path: &str| listing.read_text(path);
    let dataset = BidsDataset::new(listing.paths(), &read);
    let bids = listing.paths().iter().any(|path| path == "dataset_description.json")
        || dataset.files().any(|file| matches!(Role::of(&file.name), Role::Bold(_)));
    Ok(bids.then(|| inspect_bids(&listing, &dataset)))
}

fn inspect_bids(listing: &Listing, dataset: &BidsDataset) -> FolderReport {
    let mut report = FolderReport { kind: "BIDS", ..FolderReport::default() };
    let variants = variants_of(dataset);
    for query in &variants {
        let found = select_runs(dataset, None, query);
        let runs =
            found.runs.iter().map(|run| inspect_run(listing, run, query.to_string(), &mut report.problems));
        let runs: Vec<InspectedRun> = runs.collect();
        report.runs.extend(runs);
        report.take(&found.problems);
    }
    if variants.is_empty() {
        report.take(&select_runs(dataset, None, &Default::default()).problems);
    }
    report.runs.sort_by(|a, b| (&a.run, &a.variant).cmp(&(&b.run, &b.variant)));
    report
}

fn inspect_hcp(listing: &Listing) -> FolderReport {
    let mut report = FolderReport { kind: "HCP", ..FolderReport::default() };
    let found = select_hcp_runs(listing.paths(), &HcpQuery::default());
    for run in &found.runs {
        let inspected = inspect_run(listing, run, String::new(), &mut report.problems);
        report.runs.push(inspected);
    }
    report.take(&found.problems);
    report
}

impl FolderReport {
    fn take(&mut self, problems: &[Problem]) {
        for problem in problems {
            let text = problem.to_string();
            if !self.problems.contains(&text) {
                self.problems.push(text);
            }
        }
    }
}

fn inspect_run(
    listing: &Listing,
    run: &BidsRun,
    variant: String,
    problems: &mut Vec<String>,
) -> InspectedRun {
    let header = if run.bold.is_empty() { Ok(None) } else { read_headers(listing, run).map(Some) };
    let header = header.unwrap_or_else(|e| {
        problems.push(e.to_string());
        None
    });
    let (size, volumes, t_r) = match header {
        Some((size, volumes, t_r)) => (Some(size), Some(volumes), t_r),
        None => (None, None, run.t_r),
    };
    let events = run.events.as_ref().map(|events| match events {
        EventFiles::Table(_) => "table".to_owned(),
        EventFiles::ThreeColumns(files) => format!("{} files", files.len()),
    });
    InspectedRun {
        run: run.label(),
        variant,
        usable: size.is_some(),
        size,
        volumes,
        t_r,
        mask: run.mask.is_some(),
        confounds: run.confounds.is_some(),
        events,
    }
}

/// Size in words, points of the series, repetition time.
type Header = (String, usize, Option<f64>);

fn read_headers(listing: &Listing, run: &BidsRun) -> Result<Header> {
    match (run.kind, &run.bold[..]) {
        (BoldKind::Volume, [bold, ..]) => volume_header(&listing.location_of(bold), run.t_r),
        (BoldKind::Grayordinates, _) => series_headers(listing, run, SeriesFormat::Cifti, "grayordinates"),
        _ => series_headers(listing, run, SeriesFormat::Gifti, "vertices"),
    }
}

fn volume_header(location: &str, t_r: Option<f64>) -> Result<Header> {
    let reader = Stores::default().open_image(location)?;
    let header = reader.header();
    let t_r = if t_r.is_some() { t_r } else { header.t_r()? };
    let [i, j, k] = header.shape;
    Ok((format!("{i}×{j}×{k}"), header.volumes, t_r))
}

fn series_headers(listing: &Listing, run: &BidsRun, format: SeriesFormat, what: &str) -> Result<Header> {
    let look = |bold: &String| {
        let location = listing.location_of(bold);
        SeriesFile::of_run(&location, format, RunKeys::from(run), run.t_r, &Stores::default())
    };
    let files: Vec<SeriesFile> = run.bold.iter().map(look).collect::<Result<_>>()?;
    if let Some((first, others)) = files.split_first() {
        others.iter().try_for_each(|file| file.must_fit(first))?;
    }
    let rows: Vec<String> = files.iter().map(|file| file.rows.to_string()).collect();
    let (points, t_r) = files.first().map_or((0, run.t_r), |first| (first.points, first.t_r));
    Ok((format!("{} {what}", rows.join("+")), points, t_r))
}
