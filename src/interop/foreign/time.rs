//! Times as other tools write them.

use crate::event::json;
use crate::event::limits::is_safe;

/// Epoch milliseconds of a JSON value: an RFC 3339 date and time, or a number of milliseconds.
pub(super) fn of(value: &str) -> Option<i64> {
    let time = match json::string(value) {
        Some(text) => rfc3339(&text)?,
        None => json::integer(value)?,
    };
    is_safe(time).then_some(time)
}

/// `2026-11-30T14:02:07.123Z`, with any number of decimals and any offset.
fn rfc3339(text: &str) -> Option<i64> {
    let number = |from: usize, to: usize| -> Option<i64> {
        let digits = text.get(from..to)?;
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
    };
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let separators = [(4, "-"), (7, "-"), (13, ":"), (16, ":")];
    let sound = separators.iter().all(|&(at, mark)| text.get(at..at + 1) == Some(mark))
        && matches!(text.get(10..11), Some("T" | "t" | " "))
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60;
    if !sound {
        return None;
    }
    let rest = text.get(19..)?;
    let (decimals, zone) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len())),
        None => ("", rest),
    };
    let millis: i64 = format!("{decimals:0<3}").get(..3)?.parse().ok()?;
    let offset = match zone {
        "" | "Z" | "z" => 0,
        _ => {
            let sign = if zone.starts_with('-') { -1 } else { 1 };
            let (hours, minutes) = zone.strip_prefix(['+', '-'])?.split_once(':')?;
            let plain = |digits: &str| digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
            if !plain(hours) || !plain(minutes) {
                return None;
            }
            sign * (hours.parse::<i64>().ok()? * 60 + minutes.parse::<i64>().ok()?)
        }
    };
    // Days since 1970-01-01, with the year starting in March so that leap days come last.
    let shifted = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (shifted.div_euclid(400), shifted.rem_euclid(400));
    let day_of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    let days = era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468;
    let seconds = ((days * 24 + hour) * 60 + minute - offset) * 60 + second;
    Some(seconds * 1000 + millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_with_and_without_decimals_and_offsets() {
        for (text, expected) in [
            ("\"1970-01-01T00:00:00Z\"", Some(0)),
            ("\"2026-11-30T14:02:07.123Z\"", Some(1_796_047_327_123)),
            ("\"2026-11-30T16:02:07.1234567+02:00\"", Some(1_796_047_327_123)),
            ("\"2026-11-30T14:02:07.1Z\"", Some(1_796_047_327_100)),
            ("\"2024-02-29 23:59:59\"", Some(1_709_251_199_000)),
            ("\"1969-12-31T23:59:59.999Z\"", Some(-1)),
            ("1796047327123", Some(1_796_047_327_123)),
            ("\"2026-13-30T14:02:07Z\"", None),
            ("\"2026-11-30\"", None),
            ("\"2026-11-30T14:02:07+2\"", None),
            ("\"\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\"", None),
            ("1.5", None),
            ("null", None),
        ] {
            assert_eq!(of(text), expected, "{text}");
        }
    }
}
