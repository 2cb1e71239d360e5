//! Times as people write and read them: RFC 3339 in UTC, dates, and ages.

use std::time::{SystemTime, UNIX_EPOCH};

const DAY_MS: i64 = 86_400_000;

/// Now, in epoch milliseconds.
pub fn now() -> i64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX)
}

/// Days since 1970-01-01 of a civil date (proleptic Gregorian calendar).
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// The civil date of a day number; the inverse of [`days_from_civil`].
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_shifted + 2) / 5 + 1;
    let month = if month_shifted < 10 { month_shifted + 3 } else { month_shifted - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// Epoch milliseconds as `2026-11-30 14:02:07` in UTC.
pub fn format(milliseconds: i64) -> String {
    let (year, month, day) = civil_from_days(milliseconds.div_euclid(DAY_MS));
    let seconds = milliseconds.rem_euclid(DAY_MS) / 1000;
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

/// Epoch milliseconds as `2026-11-30T14:02:07.123Z`.
pub fn format_exact(milliseconds: i64) -> String {
    format!("{}.{:03}Z", format(milliseconds).replace(' ', "T"), milliseconds.rem_euclid(1000))
}

/// A length of time as people say it, in its two largest units.
pub fn span(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) if milliseconds < 10_000 => format!("{}.{} s", seconds, milliseconds % 1000 / 100),
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, ..) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

/// Reads `2026-11-30`, `2026-11-30T14:00:00Z` (also with a space, without seconds or `Z`; always UTC), or an age such as `12h`.
pub fn parse_since(text: &str) -> Result<i64, String> {
    parse_at(text, now()).ok_or_else(|| {
        "expected a date (2026-11-30), a date and time in UTC (2026-11-30T14:00:00Z) or an age (90s, 15m, 12h, 7d)"
            .into()
    })
}

fn parse_at(text: &str, now: i64) -> Option<i64> {
    let unit = match text.chars().last()? {
        's' => 1000,
        'm' => 60_000,
        'h' => 3_600_000,
        'd' => DAY_MS,
        _ => 0,
    };
    if unit > 0 {
        let number: i64 = text.get(..text.len() - 1)?.parse().ok()?;
        return now.checked_sub(number.checked_mul(unit)?);
    }
    let text = text.trim_end_matches(['Z', 'z']);
    let (date, clock) = text.split_once(['T', 't', ' ']).unwrap_or((text, "00:00:00"));
    let numbers = |text: &str, separator| -> Option<Vec<i64>> {
        text.split(separator).map(|part| part.parse().ok().filter(|number| *number >= 0)).collect()
    };
    let [year, month, day] = numbers(date, '-')?[..] else { return None };
    let (hour, minute, second) = match numbers(clock.split('.').next()?, ':')?[..] {
        [hour, minute] => (hour, minute, 0),
        [hour, minute, second] => (hour, minute, second),
        _ => return None,
    };
    let days = days_from_civil(year, month, day);
    let valid = year < 10_000 && hour < 24 && minute < 60 && second < 60 && civil_from_days(days) == (year, month, day);
    valid.then(|| days * DAY_MS + ((hour * 60 + minute) * 60 + second) * 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_go_both_ways() {
        for (milliseconds, text) in [
            (0, "1970-01-01 00:00:00"),
            (951_827_696_000, "2000-02-29 12:34:56"),
            (1_785_014_439_000, "2026-07-25 21:20:39"),
            (-1000, "1969-12-31 23:59:59"),
        ] {
            assert_eq!(format(milliseconds), text);
            assert_eq!(parse_at(text, 0), Some(milliseconds));
        }
    }

    #[test]
    fn spans_have_two_units() {
        let said = [0, 1_250, 59_999, 61_000, 3_600_000, 90_000_000].map(span);
        assert_eq!(said, ["0.0 s", "1.2 s", "59 s", "1 min 1 s", "1 h 0 min", "1 d 1 h"]);
    }

    #[test]
    fn ages_and_nonsense() {
        assert_eq!(parse_at("90s", 100_000), Some(10_000));
        assert_eq!(parse_at("2d", 0), Some(-2 * DAY_MS));
        for bad in ["", "x", "2026-13-01", "2026-02-30", "2026-01-01T25:00", "-", "5", "1w", "2026-1-1-1"] {
            assert_eq!(parse_at(bad, 0), None, "{bad}");
        }
    }
}
