//! The texts of a report's file name, period, numbers and changes.

use chrono::{Datelike, NaiveDate};

use crate::report::ReportDelivery;
use crate::untrusted;

/// Maximum length of each part of a file name, in characters.
const MAX_PART: usize = 60;

/// Returns a readable file name: `Monthly report - Brot & Söhne - 2026-10-01 to 2026-10-31.pdf`.
pub fn file_name(report: &str, brand: &str, delivery: &ReportDelivery) -> String {
    let (start, end) = (delivery.starts_on, delivery.ends_on);
    let period = if start == end { start.to_string() } else { format!("{start} to {end}") };
    let parts = [part(report), part(brand), period];
    let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    format!("{}.{}", parts.join(" - "), delivery.format)
}

/// Returns a part of a file name, without characters that file systems or mail programs do not accept.
fn part(text: &str) -> String {
    let kept = |c: char| match c {
        '/' | '\\' | ':' | '*' | '?' | '"' | '<' | '>' | '|' => ' ',
        // Characters without a width could hide the real extension.
        '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' => ' ',
        c => c,
    };
    let text: String = text.chars().map(kept).collect();
    untrusted::line(&text, MAX_PART).trim_matches(['.', ' ']).to_owned()
}

/// Returns a period in words: `1–31 October 2026`.
pub fn period(start: NaiveDate, end: NaiveDate) -> String {
    let whole = |day: NaiveDate| day.format("%-d %B %Y").to_string();
    if start == end {
        whole(end)
    } else if (start.year(), start.month()) == (end.year(), end.month()) {
        format!("{}–{}", start.day(), whole(end))
    } else if start.year() == end.year() {
        format!("{} – {}", start.format("%-d %B"), whole(end))
    } else {
        format!("{} – {}", whole(start), whole(end))
    }
}

/// Returns a number with thousands separators: `−12,345`.
pub fn count(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3 + 1);
    if number < 0 {
        out.push('−');
    }
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Returns the change of a value, in tenths of a percent, rounded; `None` if the previous value was not positive.
pub fn change(value: i64, before: i64) -> Option<i64> {
    let before = i128::from(before);
    if before <= 0 {
        return None;
    }
    let thousandfold = (i128::from(value) - before) * 1_000;
    let rounded = (thousandfold.abs() + before / 2) / before * thousandfold.signum();
    Some(i64::try_from(rounded).unwrap_or(i64::MAX))
}

/// Formats a change that is given in tenths of a percent: `+12.5%`, `−8%`. Changes of 100% or more have no decimals.
pub fn percent(tenths: i64) -> String {
    let sign = match tenths.signum() {
        1 => "+",
        -1 => "−",
        _ => "",
    };
    match tenths.unsigned_abs() {
        part if part < 1_000 && part % 10 > 0 => format!("{sign}{}.{}%", part / 10, part % 10),
        part => format!("{sign}{}%", count(i64::try_from(part.div_euclid(10) + part % 10 / 5).unwrap_or(i64::MAX))),
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;
    use crate::report::{ReportDeliveryStatus, ReportFormat};

    fn delivery(start: &str, end: &str) -> ReportDelivery {
        ReportDelivery {
            id: 1,
            report_id: 1,
            brand_id: 1,
            schedule_id: None,
            status: ReportDeliveryStatus::Sent,
            has_bom: false,
            format: ReportFormat::Xlsx,
            starts_on: start.parse().unwrap(),
            ends_on: end.parse().unwrap(),
            file_id: None,
            size_bytes: None,
            error: None,
            completed_at: None,
            created_at: DateTime::UNIX_EPOCH,
            updated_at: DateTime::UNIX_EPOCH,
        }
    }

    #[test]
    fn file_names_are_readable_and_safe() {
        let october = delivery("2026-10-01", "2026-10-31");
        for (report, brand, name) in [
            ("Monthly", "Brot & Söhne", "Monthly - Brot & Söhne - 2026-10-01 to 2026-10-31.xlsx"),
            ("../../etc/passwd", "C:\\x", "etc passwd - C x - 2026-10-01 to 2026-10-31.xlsx"),
            ("\u{202e}fdp.exe\r\nX: y", "...", "fdp.exe X y - 2026-10-01 to 2026-10-31.xlsx"),
            ("", "パン屋", "パン屋 - 2026-10-01 to 2026-10-31.xlsx"),
        ] {
            assert_eq!(file_name(report, brand, &october), name);
        }
        assert_eq!(file_name("A", "B", &delivery("2026-10-01", "2026-10-01")), "A - B - 2026-10-01.xlsx");
        assert!(file_name(&"x".repeat(500), &"y".repeat(500), &october).len() < 200);
    }

    #[test]
    fn periods_and_numbers_are_readable() {
        let day = |text: &str| text.parse::<NaiveDate>().unwrap();
        for (start, end, words) in [
            ("2026-10-01", "2026-10-31", "1–31 October 2026"),
            ("2026-10-05", "2026-10-05", "5 October 2026"),
            ("2026-09-28", "2026-10-04", "28 September – 4 October 2026"),
            ("2026-12-15", "2027-01-13", "15 December 2026 – 13 January 2027"),
        ] {
            assert_eq!(period(day(start), day(end)), words);
        }
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (-1_234_567, "−1,234,567"),
            (i64::MIN, "−9,223,372,036,854,775,808"),
        ] {
            assert_eq!(count(number), text);
        }
    }

    #[test]
    fn changes_are_readable() {
        let words = |value, before| change(value, before).map(percent);
        for (value, before, text) in [
            (12, 10, "+20%"),
            (5, 10, "−50%"),
            (4, 3, "+33.3%"),
            (1_000, 1_001, "−0.1%"),
            (99_999, 100_000, "0%"),
            (7, 7, "0%"),
            (0, 3, "−100%"),
            (1_999, 1_000, "+99.9%"),
            (3_456, 1_000, "+246%"),
            (1_000_000, 16, "+6,249,900%"),
        ] {
            assert_eq!(words(value, before).as_deref(), Some(text), "{value} after {before}");
        }
        assert_eq!((change(5, 0), change(5, -1)), (None, None), "there is nothing to compare with");
        assert_eq!(change(i64::MAX, 1), Some(i64::MAX));
        assert_eq!(percent(i64::MIN), "−922,337,203,685,477,581%");
    }
}
