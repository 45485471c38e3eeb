//! The days that a view of the calendar shows.

use chrono::{Datelike, Days, Months, NaiveDate};

const LIST_DAYS: u64 = 28;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    Month,
    Week,
    List,
}

impl View {
    pub const ALL: [Self; 3] = [Self::Month, Self::Week, Self::List];

    pub const fn slug(self) -> &'static str {
        match self {
            Self::Month => "month",
            Self::Week => "week",
            Self::List => "list",
        }
    }

    pub const fn label(self) -> &'static str {
        match self {
            Self::Month => "Month",
            Self::Week => "Week",
            Self::List => "List",
        }
    }
}

/// Parses a date of the years 2000 to 2999.
pub fn parse_date(text: &str) -> Option<NaiveDate> {
    let date = NaiveDate::parse_from_str(text, "%Y-%m-%d").ok().filter(|_| text.len() == 10);
    date.filter(|date| (2000..3000).contains(&date.year()))
}

/// The days of a view.
pub struct Period {
    pub view: View,
    /// The month, 1 to 12, in the month view.
    pub month: Option<u32>,
    /// "November 2026", "23–29 November 2026".
    pub title: String,
    pub first: NaiveDate,
    pub last: NaiveDate,
    /// A date in the previous period.
    pub prev: NaiveDate,
    /// A date in the next period.
    pub next: NaiveDate,
}

impl Period {
    pub fn of(view: View, date: NaiveDate) -> Self {
        let monday = |date: NaiveDate| date - Days::new(u64::from(date.weekday().num_days_from_monday()));
        match view {
            View::Month => {
                let begins = date.with_day(1).unwrap_or(date);
                let (prev, next) = (begins - Months::new(1), begins + Months::new(1));
                let (first, last) = (monday(begins), monday(next - Days::new(1)) + Days::new(6));
                let title = begins.format("%B %Y").to_string();
                Self { view, month: Some(begins.month()), title, first, last, prev, next }
            }
            View::Week => Self::from(view, monday(date), 7),
            View::List => Self::from(view, date, LIST_DAYS),
        }
    }

    fn from(view: View, first: NaiveDate, days: u64) -> Self {
        let (last, prev, next) = (first + Days::new(days - 1), first - Days::new(days), first + Days::new(days));
        Self { view, month: None, title: days_title(first, last), first, last, prev, next }
    }
}

/// Returns "23–29 November 2026" or "30 November – 6 December 2026".
fn days_title(first: NaiveDate, last: NaiveDate) -> String {
    let end = last.format("%-d %B %Y");
    if first.year() != last.year() {
        format!("{} – {end}", first.format("%-d %B %Y"))
    } else if first.month() != last.month() {
        format!("{} – {end}", first.format("%-d %B"))
    } else {
        format!("{}–{end}", first.day())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn date(text: &str) -> NaiveDate {
        parse_date(text).unwrap()
    }

    fn period(view: View, day: &str) -> (String, String, String) {
        let period = Period::of(view, date(day));
        (period.title, period.first.to_string(), period.last.to_string())
    }

    #[test]
    fn a_view_has_whole_weeks_or_four_from_a_date() {
        let expected = |title: &str, first: &str, last: &str| (title.to_owned(), first.to_owned(), last.to_owned());
        for (view, day, wanted) in [
            (View::Month, "2026-11-23", expected("November 2026", "2026-10-26", "2026-12-06")),
            (View::Month, "2027-02-01", expected("February 2027", "2027-02-01", "2027-02-28")),
            (View::Week, "2026-11-23", expected("23–29 November 2026", "2026-11-23", "2026-11-29")),
            (View::Week, "2026-12-03", expected("30 November – 6 December 2026", "2026-11-30", "2026-12-06")),
            (View::Week, "2027-01-01", expected("28 December 2026 – 3 January 2027", "2026-12-28", "2027-01-03")),
            (View::List, "2026-11-23", expected("23 November – 20 December 2026", "2026-11-23", "2026-12-20")),
        ] {
            assert_eq!(period(view, day), wanted, "{view:?} {day}");
        }
    }

    #[test]
    fn the_periods_before_and_after_adjoin() {
        for day in ["2000-01-01", "2026-03-31", "2999-12-31"] {
            for view in View::ALL {
                let here = Period::of(view, date(day));
                let (before, after) = (Period::of(view, here.prev), Period::of(view, here.next));
                assert!(before.last >= here.first - Days::new(1) && before.first < here.first, "{view:?} {day}");
                assert!(after.first <= here.last + Days::new(1) && after.last > here.last, "{view:?} {day}");
            }
        }
    }

    #[test]
    fn other_dates_are_not_read() {
        for text in ["", "2026-02-30", "26-01-01", "12026-01-01", "1999-12-31", "3000-01-01", "2026-1-1", "x"] {
            assert_eq!(parse_date(text), None, "{text}");
        }
    }
}
