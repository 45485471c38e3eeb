//! Formats ranges of days.

use chrono::{Datelike, NaiveDate};

/// Returns a text such as "25 Oct to 23 Nov 2026". Empty if neither end is known.
pub fn range(start: Option<NaiveDate>, end: Option<NaiveDate>) -> String {
    const FULL: &str = "%-d %b %Y";
    match (start, end) {
        (None, None) => String::new(),
        (Some(start), None) => format!("From {}", start.format(FULL)),
        (None, Some(end)) => format!("Until {}", end.format(FULL)),
        (Some(start), Some(end)) if start == end => end.format(FULL).to_string(),
        (Some(start), Some(end)) => {
            let first = if start.year() == end.year() { "%-d %b" } else { FULL };
            format!("{} to {}", start.format(first), end.format(FULL))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_names_each_year_once() {
        let day = |text: &str| text.parse::<NaiveDate>().ok();
        for (start, end, text) in [
            ("2026-10-25", "2026-11-23", "25 Oct to 23 Nov 2026"),
            ("2025-12-31", "2026-01-01", "31 Dec 2025 to 1 Jan 2026"),
            ("2026-11-23", "2026-11-23", "23 Nov 2026"),
            ("2026-11-23", "", "From 23 Nov 2026"),
            ("", "2026-11-23", "Until 23 Nov 2026"),
            ("", "", ""),
        ] {
            assert_eq!(range(day(start), day(end)), text);
        }
    }
}
