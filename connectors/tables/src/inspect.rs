//! What a folder of BIDS derivatives or of the HCP pipelines would give as a table, and what is wrong with it.

use crate::series_file::SeriesFile;
use crate::{Error, Result, RunKeys, SeriesFormat, Stores, run_tables::raw_text};
use voxelflow_formats::XformPolicy;
use voxelflow_formats::bids::{
    BidsDataset, BidsRun, BoldKind, EventFiles, HcpQuery, Problem, Role, select_hcp_runs, select_runs,
    variants_of,
};
use voxelflow_stage::look_at_runs;
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

/// Looks at every run of a folder: names, sidecars and headers, no volumes; `raw` is the raw dataset of BIDS
/// derivatives, where events lie. Nothing when the folder is of no kind that is known here.
///
/// # Errors
/// A folder that cannot be listed, a raw dataset where there can be none.
pub fn inspect_folder(location: &str, raw: Option<&str>) -> Result<Option<FolderReport>> {
    let listing = Stores::default().list(location)?;
    let hcp = listing.paths().iter().any(|path| path.contains("MNINonLinear/Results/"));
    if hcp && let Some(raw) = raw {
        let reason = "events of the HCP pipelines lie in the folder itself: leave the raw dataset out".into();
        return Err(Error::Location { location: raw.into(), reason });
    }
    if hcp {
        return Ok(Some(inspect_hcp(&listing)));
    }
    let raw = raw.map(|raw| Stores::default().list(raw)).transpose()?;
    let read = |path: &str| listing.read_text(path);
    let read_raw = |path: &str| raw_text(raw.as_ref(), path);
    let dataset = BidsDataset::new(listing.paths(), &read);
    let raw = raw.as_ref().map(|raw| BidsDataset::new(raw.paths(), &read_raw));
    let bids = listing.paths().iter().any(|path| path == "dataset_description.json")
        || dataset.files().any(|file| matches!(Role::of(&file.name), Role::Bold(_)));
    Ok(bids.then(|| inspect_bids(&listing, &dataset, raw.as_ref())))
}

fn inspect_bids(listing: &Listing, dataset: &BidsDataset, raw: Option<&BidsDataset>) -> FolderReport {
    let mut report = FolderReport { kind: "BIDS", ..FolderReport::default() };
    let variants = variants_of(dataset);
    for query in &variants {
        let found = select_runs(dataset, raw, query);
        report.inspect(listing, &found.runs, &query.to_string());
        report.take(&found.problems);
    }
    if variants.is_empty() {
        report.take(&select_runs(dataset, raw, &Default::default()).problems);
    }
    report.runs.sort_by(|a, b| (&a.run, &a.variant).cmp(&(&b.run, &b.variant)));
    report
}

fn inspect_hcp(listing: &Listing) -> FolderReport {
    let mut report = FolderReport { kind: "HCP", ..FolderReport::default() };
    let found = select_hcp_runs(listing.paths(), &HcpQuery::default());
    report.inspect(listing, &found.runs, "");
    report.take(&found.problems);
    report
}

impl FolderReport {
    /// Looks at runs, several at a time.
    fn inspect(&mut self, listing: &Listing, runs: &[BidsRun], variant: &str) {
        for (run, problem) in look_at_runs(runs.len(), |run| inspect_run(listing, &runs[run], variant)) {
            self.runs.push(run);
            self.problems.extend(problem);
        }
    }

    fn take(&mut self, problems: &[Problem]) {
        for problem in problems {
            let text = problem.to_string();
            if !self.problems.contains(&text) {
                self.problems.push(text);
            }
        }
    }
}

/// A run, and what is wrong with its images.
fn inspect_run(listing: &Listing, run: &BidsRun, variant: &str) -> (InspectedRun, Option<String>) {
    let header = if run.bold.is_empty() { Ok(None) } else { read_headers(listing, run).map(Some) };
    let (header, problem) = match header {
        Ok(header) => (header, None),
        Err(e) => (None, Some(e.to_string())),
    };
    let (size, volumes, t_r) = match header {
        Some((size, volumes, t_r)) => (Some(size), Some(volumes), t_r),
        None => (None, None, run.t_r),
    };
    let events = run.events.as_ref().map(|events| match events {
        EventFiles::Table(_) => "table".to_owned(),
        EventFiles::ThreeColumns(files) => format!("{} files", files.len()),
    });
    let run = InspectedRun {
        run: run.label(),
        variant: variant.to_owned(),
        usable: size.is_some(),
        size,
        volumes,
        t_r,
        mask: run.mask.is_some(),
        confounds: run.confounds.is_some(),
        events,
    };
    (run, problem)
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
    let reader = Stores::default().open_image(location, XformPolicy::Agree)?;
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
