//! The best times to post: the section of the analytics page with the hours of the week.

use crier_endpoints::routes::analytics::best_times::{BestTimes, Slot};

/// The maximum number of best times.
const BEST: usize = 3;
/// The minimum number of posts with metrics. With fewer posts, the best times are random.
const MIN_POSTS: i64 = 10;

pub const WEEKDAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/// A row of the table.
#[derive(Default)]
pub struct Hour {
    pub label: String,
    /// Monday to Sunday.
    pub days: [HourOfDay; 7],
}

#[derive(Default)]
pub struct HourOfDay {
    pub posts: i64,
    pub engagements: Option<String>,
    /// 0 (not known) to 5 (best).
    pub level: u8,
}

fn label(hour: u32) -> String {
    format!("{hour:02}:00")
}

/// Returns the index of the day of the week. Monday is 0.
fn day(slot: &Slot) -> usize {
    usize::try_from(slot.weekday).unwrap_or_default().wrapping_sub(1)
}

/// Returns the level of a value relative to the best one, 1 to 5.
fn level(value: f64, best: f64) -> u8 {
    match value / best.max(f64::MIN_POSITIVE) {
        part if part > 0.8 => 5,
        part if part > 0.6 => 4,
        part if part > 0.4 => 3,
        part if part > 0.2 => 2,
        _ => 1,
    }
}

/// Returns the hours of the day in which posts were published.
pub fn hours(times: &BestTimes) -> Vec<Hour> {
    let best = times.slots.iter().filter_map(|slot| slot.engagements_per_post).fold(0.0, f64::max);
    let row = |hour| {
        let mut row = Hour { label: label(hour), ..Hour::default() };
        for slot in times.slots.iter().filter(|slot| slot.hour == hour) {
            if let Some(day) = row.days.get_mut(day(slot)) {
                *day = HourOfDay {
                    posts: slot.posts,
                    engagements: slot.engagements_per_post.map(|metric| format!("{metric:.1}")),
                    level: slot.engagements_per_post.map_or(0, |metric| level(metric, best)),
                };
            }
        }
        row
    };
    (0..24).filter(|hour| times.slots.iter().any(|slot| slot.hour == *hour)).map(row).collect()
}

/// Returns the best hours of the week, each with its day (1 is Monday), the best first. None if there are too few posts,
/// or only one hour with posts.
pub fn best_hours(times: &BestTimes) -> impl Iterator<Item = (u32, u32)> {
    best_slots(times).into_iter().map(|slot| (slot.weekday, slot.hour))
}

/// Returns the best times, the best first.
pub fn best(times: &BestTimes) -> Vec<String> {
    let name = |slot: &Slot| Some(format!("{} {}", WEEKDAYS.get(day(slot))?, label(slot.hour)));
    best_slots(times).into_iter().filter_map(name).collect()
}

fn best_slots(times: &BestTimes) -> Vec<&Slot> {
    let known = times.slots.iter().filter_map(|slot| Some((slot, slot.engagements_per_post?)));
    let mut known: Vec<(&Slot, f64)> = known.collect();
    if known.len() < 2 || known.iter().map(|(slot, _)| slot.posts).sum::<i64>() < MIN_POSTS {
        return Vec::new();
    }
    known.retain(|(_, metric)| *metric > 0.0);
    known.sort_by(|a, b| b.1.total_cmp(&a.1));
    known.into_iter().map(|(slot, _)| slot).take(BEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_hours_are_named_in_order() {
        let slot = |weekday, hour, metric| Slot { weekday, hour, posts: 4, engagements_per_post: metric };
        let times = |slots: &[Slot]| BestTimes { timezone: "UTC".to_owned(), slots: slots.to_vec() };
        let all = [slot(1, 9, Some(2.0)), slot(7, 9, Some(10.0)), slot(3, 18, None), slot(2, 5, Some(0.0))];
        let all = times(&all);
        assert_eq!(best(&all), ["Sunday 09:00", "Monday 09:00"]);
        // Too few posts; only one hour.
        let few = [slot(1, 9, Some(2.0)), slot(7, 9, Some(10.0))];
        assert!(best(&times(&few)).is_empty());
        let one = Slot { posts: 40, ..slot(1, 9, Some(2.0)) };
        assert!(best(&times(&[one])).is_empty());
        let rows = hours(&all);
        assert_eq!(rows.iter().map(|row| row.label.as_str()).collect::<Vec<_>>(), ["05:00", "09:00", "18:00"]);
        let levels = rows.get(1).map(|row| row.days.each_ref().map(|day| day.level));
        assert_eq!(levels, Some([1, 0, 0, 0, 0, 0, 5]));
    }
}
