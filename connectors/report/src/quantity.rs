//! How numbers are written for people: thousands apart, bytes and seconds in a fitting unit.

/// `48751` as `48,751`.
pub(crate) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Bytes in binary units: `3.4 MiB`.
pub(crate) fn bytes(n: u64) -> String {
    let mut value = n as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1024.0 {
            return if unit == "B" { format!("{n} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1024.0;
    }
    format!("{value:.1} TiB")
}

/// Seconds in a fitting unit: `240 µs`, `38 ms`, `3.2 s`, `4 min 05 s`, `2 h 03 min`.
pub(crate) fn seconds(s: f64) -> String {
    if !s.is_finite() {
        return "–".into();
    }
    let whole = s.round().max(0.0) as u64;
    match s {
        0.0 => "0 s".into(),
        s if s < 0.001 => format!("{:.0} µs", s * 1e6),
        s if s < 1.0 => format!("{:.0} ms", s * 1e3),
        s if s < 100.0 => format!("{s:.1} s"),
        _ if whole < 3600 => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{} h {:02} min", whole / 3600, whole / 60 % 60),
    }
}

/// About `digits` significant digits, without needless zeros; a true minus sign.
pub(crate) fn number(value: f64, digits: usize) -> String {
    if value.is_nan() {
        return "NaN".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "∞".into() } else { "−∞".into() };
    }
    if value == 0.0 {
        return "0".into();
    }
    let exponent = value.abs().log10().floor() as i32;
    let text = if !(-4..7).contains(&exponent) {
        format!("{value:.*e}", digits.saturating_sub(1))
    } else {
        let decimals = (digits as i32 - 1 - exponent).max(0) as usize;
        let text = format!("{value:.decimals$}");
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
    };
    let text = if text == "-0" { "0".to_owned() } else { text };
    text.replacen('-', "−", usize::from(value < 0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(48_751), "48,751");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(bytes(12), "12 B");
        assert_eq!(bytes(3_565_158), "3.4 MiB");
        assert_eq!(seconds(0.0381), "38 ms");
        assert_eq!(seconds(245.0), "4 min 05 s");
        assert_eq!(seconds(7_380.0), "2 h 03 min");
        assert_eq!(number(-0.123_456, 3), "−0.123");
        assert_eq!(number(1500.0, 3), "1500");
        assert_eq!(number(0.5, 3), "0.5");
        assert_eq!(number(1.5e-7, 2), "1.5e-7");
        assert_eq!(number(f64::NAN, 3), "NaN");
    }
}
