//! The time of day, for reports.

use std::time::SystemTime;

/// The time now, as `2026-01-31 12:00:00 UTC`.
pub fn now_utc() -> String {
    let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    now.replace('T', " ").replace('Z', " UTC")
}
