//! What a [`Cleaner`] does, in words.

use super::Cleaner;
use crate::{Filter, Standardize, butterworth::ORDER};

impl Cleaner {
    /// What is done, for the history of the data.
    pub fn describe(&self) -> String {
        let s = &self.settings;
        let mut steps = Vec::new();
        if !self.mask.keeps_all() {
            steps.push(format!("{} of {} volumes kept", self.kept(), self.time_points()));
        }
        if self.preparation.filled() > 0 {
            steps.push(format!("{} filled by a cubic spline for the filter", self.preparation.filled()));
        }
        if s.detrend {
            steps.push("linear detrend".to_owned());
        }
        let t_r = self.t_r.unwrap_or_default();
        if self.preparation.filter.is_some() {
            let cut = |name, hertz: Option<f64>| hertz.map(|f| format!(" {name} {f} Hz")).unwrap_or_default();
            let (high, low) = (cut("high_pass", s.high_pass), cut("low_pass", s.low_pass));
            steps.push(format!("Butterworth of order {ORDER}{high}{low} (t_r {t_r} s)"));
        }
        if s.filter == Filter::Cosine {
            let hertz = s.high_pass.unwrap_or_default();
            steps.push(format!("{} cosine drifts under {hertz} Hz removed (t_r {t_r} s)", self.drifts));
        }
        if self.confounds > 0 {
            steps.push(format!("{} confounds removed", self.confounds));
        }
        match s.standardize {
            Standardize::ZscoreSample => steps.push("zscore_sample".to_owned()),
            Standardize::Zscore => steps.push("zscore".to_owned()),
            Standardize::Psc => steps.push("psc".to_owned()),
            Standardize::None => {}
        }
        format!("clean: {}", if steps.is_empty() { "nothing".to_owned() } else { steps.join(", ") })
    }
}
