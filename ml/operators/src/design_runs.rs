//! Runs whose events become designs: which moments their volumes stand for, their events, their regressors.

use crate::events_reader::read_events;
use crate::{DESIGN_METADATA_KEY, Error, Result, SessionStores, series_column::series_type};
use arrow::datatypes::DataType;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use voxelflow_dataset::{Finding, Ledger, LedgerEntry, Level, RunKey};
use voxelflow_signal::SampleMask;
use voxelflow_signal::design::{Design, DesignSettings, DriftModel, Event, FrameTimes, HrfModel};
use voxelflow_stage::{EventFiles, KeptVolumes, RunEvent, RunFiles, RunLengths, RunVolumes};

/// Whether the `StartTime` of a run's sidecar is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StartTime {
    /// Where there is one, volumes stand for `StartTime + n · t_r`.
    #[default]
    Sidecar,
    /// It is not looked at.
    Ignore,
}

/// What becomes of events whose duration is `n/a`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MissingDuration {
    /// The job fails and names the first one, as nilearn does.
    #[default]
    Error,
    /// They are impulses.
    Zero,
}

/// Options of `design`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DesignOptions {
    /// How a design is made.
    #[serde(flatten)]
    pub settings: DesignSettings,
    /// The moment that a volume stands for, as a share of `t_r` from 0 to 1, where no sidecar says it.
    pub slice_time_ref: Option<f64>,
    /// Whether the `StartTime` of sidecars is used.
    pub start_time: StartTime,
    /// What becomes of events without a duration.
    pub missing_duration: MissingDuration,
    /// Repetition time in seconds; outranks what the data say.
    pub t_r: Option<f64>,
}

/// The runs of a table, and how each becomes a design.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunDesigns {
    pub runs: Vec<RunFiles>,
    pub options: DesignOptions,
    points: Points,
    /// Seconds, as bits: one that was read from a header may have more digits than JSON keeps.
    t_r: u64,
}

/// What is known of the points of series.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Points {
    /// Of every series, or of the longest.
    pub longest: usize,
    /// Of each run, where they are of several lengths.
    pub lengths: Option<RunLengths>,
    /// Which volumes they are, where some were dropped.
    pub kept: Option<RunVolumes>,
}

impl Points {
    /// Of series of one length, which have all volumes.
    #[cfg(test)]
    fn all(longest: usize) -> Self {
        Self { longest, lengths: None, kept: None }
    }

    /// Of a run.
    fn of_run(&self, run: &RunKey) -> usize {
        self.lengths.as_ref().and_then(|lengths| lengths.of_run(run)).unwrap_or(self.longest)
    }

    /// Volumes of the longest run.
    fn stored(&self) -> usize {
        let cut = self.kept.iter().flat_map(RunVolumes::iter).map(|(_, kept)| kept.stored());
        cut.fold(self.longest, usize::max)
    }
}

/// The regressors of a run, and what there is to note.
pub(crate) struct RunDesign {
    pub design: Design,
    pub ledger: Ledger,
}

/// An option without effect beside the others, and what it has one with.
fn idle(settings: &DesignSettings) -> Option<(&'static str, &'static str)> {
    let usual = DesignSettings::default();
    let fir = settings.hrf_model == HrfModel::Fir;
    [
        (
            "drift_order",
            settings.drift_order != usual.drift_order,
            settings.drift_model == DriftModel::Polynomial,
            "drift_model => 'polynomial'",
        ),
        (
            "high_pass",
            settings.high_pass != usual.high_pass,
            settings.drift_model == DriftModel::Cosine,
            "drift_model => 'cosine'",
        ),
        ("fir_delays", settings.fir_delays != usual.fir_delays, fir, "hrf_model => 'fir'"),
        ("oversampling", settings.oversampling != usual.oversampling, !fir, "a response that is not 'fir'"),
    ]
    .into_iter()
    .find_map(|(option, is_given, is_used, of)| (is_given && !is_used).then_some((option, of)))
}

impl RunDesigns {
    /// # Errors
    /// A table that knows no runs or no repetition time, settings that no run could be made a design with.
    pub fn try_new(
        runs: Vec<RunFiles>,
        options: DesignOptions,
        points: Points,
        t_r: Option<f64>,
    ) -> Result<Self> {
        let setting = |setting, reason: String| voxelflow_signal::Error::Setting { setting, reason };
        let Some(t_r) = options.t_r.or(t_r) else {
            let reason = "the table does not say how long a volume takes; give t_r => seconds".to_owned();
            return Err(setting("t_r", reason).into());
        };
        if let Some(share) = options.slice_time_ref
            && !(0.0..=1.0).contains(&share)
        {
            let reason = format!("{share} must be from 0 to 1: a share of t_r, half of it for 0.5");
            return Err(setting("slice_time_ref", reason).into());
        }
        if let Some((option, of)) = idle(&options.settings) {
            return Err(setting(option, format!("it has an effect with {of} only; leave it out")).into());
        }
        if runs.is_empty() {
            let reason = "the table does not know its runs: take one STORED AS BIDS or HCP, or one with \
                          OPTIONS (events 'file'), or series that were made of one";
            return Err(Error::Design {
                run: "this table".into(),
                keys: Box::default(),
                reason: reason.into(),
            });
        }
        let t_r_bits = t_r.to_bits();
        let designs = Self { runs, options, points, t_r: t_r_bits };
        // What is wrong with the settings is wrong for every run.
        let times = FrameTimes::try_new(designs.points.stored(), t_r, 0.0)?;
        Design::try_new(&times, &[], &[], &designs.options.settings)?;
        Ok(designs)
    }

    /// The options as JSON: what tells two designs of the same table apart.
    pub fn identity(&self) -> Result<String> {
        serde_json::to_string(&self.options)
            .map_err(|e| voxelflow_stage::Error::Data { what: "design".into(), reason: e.to_string() }.into())
    }

    /// The type of the regressors: lists of several lengths, where runs are.
    pub fn series_type(&self) -> DataType {
        match (series_type(self.points.longest), &self.points.lengths) {
            (DataType::FixedSizeList(item, _), Some(_)) => DataType::List(item),
            (one_length, _) => one_length,
        }
    }

    /// Metadata of a table of the designs: how they were made, how long runs are, and which of their volumes they have.
    ///
    /// # Errors
    /// Never: names and numbers can be written.
    pub fn metadata(&self) -> Result<HashMap<String, String>> {
        let mut metadata = HashMap::from([(DESIGN_METADATA_KEY.to_owned(), self.identity()?)]);
        if let Some(lengths) = &self.points.lengths {
            metadata.extend(lengths.to_metadata()?);
        }
        if let Some(kept) = &self.points.kept {
            metadata.extend(kept.to_metadata()?);
        }
        Ok(metadata)
    }

    /// The design of the run with these keys.
    ///
    /// # Errors
    /// A run that the table does not know, or without events; events that cannot be read or placed; a `StartTime` that
    /// contradicts `slice_time_ref`.
    pub fn design(&self, keys: &RunKey, stores: &SessionStores) -> Result<RunDesign> {
        let Some(run) = self.runs.iter().find(|run| run.keys == *keys) else {
            let run = RunFiles { keys: keys.clone(), ..RunFiles::default() };
            return Err(wrong(&run, "the table has no such run: keep its key columns as they are".into()));
        };
        let found = read_events(run, stores).map_err(|reason| wrong(run, reason))?;
        let events = found.iter().map(|event| self.event(event, run)).collect::<Result<Vec<Event>>>()?;
        let t_r = f64::from_bits(self.t_r);
        let start_time = start_time(run, &self.options, t_r).map_err(|reason| wrong(run, reason))?;
        let signal = |e| match e {
            voxelflow_signal::Error::Event { index, reason } => wrong(
                run,
                format!("{}: {reason}", found.get(index).map_or_else(String::new, |e| place(e, run))),
            ),
            source => Error::RunSignal { run: run.label(), keys: Box::new(run.keys.clone()), source },
        };
        let own = self.points.of_run(keys);
        let kept = self.points.kept.as_ref().and_then(|kept| kept.of_run(keys));
        if let Some(kept) = kept.filter(|kept| kept.count() != own) {
            let reason = format!(
                "its series have {own} points, but {} of its volumes were kept: take the series as clean left them",
                kept.count()
            );
            return Err(wrong(run, reason));
        }
        let volumes = kept.map_or(own, KeptVolumes::stored);
        let times = FrameTimes::try_new(volumes, t_r, start_time).map_err(signal)?;
        let mut design = Design::try_new(&times, &events, &[], &self.options.settings).map_err(signal)?;
        if let Some(kept) = kept {
            let mask = SampleMask::from_indices(&kept.indices().collect::<Vec<_>>(), volumes);
            design = mask.and_then(|mask| design.at(&mask)).map_err(signal)?;
        }
        let ledger = ledger(&design, &found, run);
        Ok(RunDesign { design, ledger })
    }

    fn event(&self, event: &RunEvent, run: &RunFiles) -> Result<Event> {
        let duration = match (event.duration, self.options.missing_duration) {
            (Some(duration), _) => duration,
            (None, MissingDuration::Zero) => 0.0,
            (None, MissingDuration::Error) => {
                let reason = format!(
                    "{}: its duration is n/a; write it, or say missing_duration => 'zero' to make such events impulses",
                    place(event, run)
                );
                return Err(wrong(run, reason));
            }
        };
        let (onset, modulation) = (event.onset, event.modulation);
        Ok(Event { onset, duration, condition: event.condition.clone(), modulation })
    }
}

fn wrong(run: &RunFiles, reason: String) -> Error {
    Error::Design { run: run.label(), keys: Box::new(run.keys.clone()), reason }
}

/// The file of an event.
fn path<'r>(event: &RunEvent, run: &'r RunFiles) -> &'r str {
    let paths = run.events.as_ref().map(EventFiles::paths).unwrap_or_default();
    paths.get(event.file).copied().unwrap_or_default()
}

/// `/data/sub-01_events.tsv, line 7`.
fn place(event: &RunEvent, run: &RunFiles) -> String {
    format!("{}, line {}", path(event, run), event.line)
}

/// Seconds from the beginning of a volume to the moment that it stands for.
///
/// The sidecar knows what slice timing correction made of the data, so a `slice_time_ref` that says something else is
/// refused, not added and not preferred.
fn start_time(run: &RunFiles, options: &DesignOptions, t_r: f64) -> Result<f64, String> {
    let said = run.start_time.filter(|_| options.start_time == StartTime::Sidecar);
    let Some(start_time) = said else { return Ok(options.slice_time_ref.unwrap_or(0.0) * t_r) };
    if !(0.0..=t_r).contains(&start_time) {
        return Err(format!(
            "its sidecar says StartTime {start_time} s, which is not within a volume of {t_r} s; correct it, or say \
             start_time => 'ignore'"
        ));
    }
    match options.slice_time_ref {
        Some(share) if (share * t_r - start_time).abs() > 1e-3 * t_r => Err(format!(
            "its sidecar says StartTime {start_time} s, but slice_time_ref => {share} means {} s: leave \
             slice_time_ref out, or say start_time => 'ignore'",
            share * t_r
        )),
        _ => Ok(start_time),
    }
}

/// What a design did not simply take over.
fn ledger(design: &Design, events: &[RunEvent], run: &RunFiles) -> Ledger {
    let report = &design.report;
    let entry = |level, what, reason: &str, count: usize| {
        LedgerEntry::of_run(run.keys.clone(), level, what, reason, count as u64)
    };
    let at_line = |event: &RunEvent| format!("{}:{}", path(event, run), event.line);
    let mut places: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
    for note in &report.notes {
        let at = events.get(note.event).map(at_line).unwrap_or_default();
        places.entry(note.outcome.reason()).or_default().push(at);
    }
    let mut ledger = Ledger::default();
    for (reason, places) in places {
        ledger.add(entry(Level::Value, Finding::Event, reason, places.len()).named(places));
    }
    if let Some((reason, files)) = without_events(events, run) {
        ledger.add(entry(Level::Value, Finding::Event, reason, files.len()).named(files));
    }
    let missing = events.iter().filter(|event| event.duration.is_none());
    let missing: Vec<String> = missing.map(at_line).collect();
    ledger.add(
        entry(Level::Value, Finding::Filled, "an event's duration is n/a: 0 s taken", missing.len())
            .named(missing),
    );
    if report.dummy {
        let reason = "no trial_type among the events: all are 'dummy'";
        ledger.add(entry(Level::Run, Finding::Noted, reason, 1));
    }
    let empty = report.empty.clone();
    ledger.add(
        entry(Level::Value, Finding::Noted, "a regressor is zero in every volume", empty.len()).named(empty),
    );
    let dependent = design.names.len() - report.rank - report.empty.len();
    if dependent > 0 {
        let reason = format!("the design has {} columns, but rank {}", design.names.len(), report.rank);
        ledger.add(entry(Level::Run, Finding::Noted, &reason, 1));
    }
    ledger
}

/// What has no regressor because nothing of it stands in a file: conditions of FSL, or all that could happen in a run.
fn without_events(events: &[RunEvent], run: &RunFiles) -> Option<(&'static str, Vec<String>)> {
    match &run.events {
        Some(EventFiles::ThreeColumns(files)) => {
            let happened = |file: usize| events.iter().any(|event| event.file == file);
            let empty = files.iter().enumerate().filter(|(file, _)| !happened(*file));
            let empty: Vec<String> = empty.map(|(_, (name, path))| format!("{name} ({path})")).collect();
            (!empty.is_empty())
                .then_some(("the file of a condition has no event: the condition has no regressor", empty))
        }
        Some(EventFiles::Table(path)) if events.is_empty() => Some((
            "the events file has no event: the run has no regressor of a condition",
            vec![path.clone()],
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn files_without_an_event_are_named() {
        let at = |file: usize| RunEvent {
            onset: 1.0,
            duration: Some(1.0),
            condition: None,
            modulation: 1.0,
            file,
            line: 1,
        };
        let files = ["lh", "rh", "t"].map(|name| (name.to_owned(), format!("/EVs/{name}.txt")));
        let hcp = RunFiles { events: Some(EventFiles::ThreeColumns(files.to_vec())), ..RunFiles::default() };
        let (reason, empty) = without_events(&[at(1)], &hcp).unwrap();
        assert_eq!(empty, ["lh (/EVs/lh.txt)", "t (/EVs/t.txt)"]);
        assert!(reason.contains("no regressor"));
        assert_eq!(without_events(&[at(0), at(1), at(2)], &hcp), None);
        let bids = RunFiles { events: Some(EventFiles::Table("/e.tsv".into())), ..RunFiles::default() };
        assert_eq!(without_events(&[], &bids).unwrap().1, ["/e.tsv"]);
        assert_eq!(without_events(&[at(0)], &bids), None);
    }

    fn run(start_time: Option<f64>) -> RunFiles {
        RunFiles { start_time, ..RunFiles::default() }
    }

    #[test]
    fn the_sidecar_and_the_setting_never_add() {
        let of = |share: Option<f64>, source: StartTime| DesignOptions {
            slice_time_ref: share,
            start_time: source,
            ..DesignOptions::default()
        };
        let sidecar = StartTime::Sidecar;
        assert_eq!(start_time(&run(None), &of(None, sidecar), 2.0), Ok(0.0));
        assert_eq!(start_time(&run(None), &of(Some(0.5), sidecar), 2.0), Ok(1.0));
        assert_eq!(start_time(&run(Some(0.98)), &of(None, sidecar), 2.0), Ok(0.98));
        assert_eq!(start_time(&run(Some(1.0)), &of(Some(0.5), sidecar), 2.0), Ok(1.0));
        assert_eq!(start_time(&run(Some(0.98)), &of(Some(0.25), StartTime::Ignore), 2.0), Ok(0.5));
        let e = start_time(&run(Some(0.98)), &of(Some(0.25), sidecar), 2.0).unwrap_err();
        assert!(e.contains("StartTime 0.98 s") && e.contains("means 0.5 s"), "{e}");
        for wrong in [-1.0, 2.5, f64::NAN] {
            assert!(start_time(&run(Some(wrong)), &of(None, sidecar), 2.0).is_err());
        }
    }

    #[test]
    fn what_is_wrong_for_every_run_is_found_before_one_is_read() {
        let of = |options| RunDesigns::try_new(vec![run(None)], options, Points::all(40), None).unwrap_err();
        assert_eq!(of(DesignOptions::default()).option(), Some("t_r"));
        let known = DesignOptions { t_r: Some(2.0), ..DesignOptions::default() };
        assert_eq!(
            of(DesignOptions { slice_time_ref: Some(1.5), ..known.clone() }).option(),
            Some("slice_time_ref")
        );
        let settings = DesignSettings { high_pass: 0.3, ..DesignSettings::default() };
        assert_eq!(of(DesignOptions { settings, ..known.clone() }).option(), Some("high_pass"));
        let e = RunDesigns::try_new(vec![], known, Points::all(40), None).unwrap_err();
        assert!(e.is_input() && e.to_string().contains("STORED AS BIDS"), "{e}");
    }
}
