use chrono::SecondsFormat;
use proptest::prelude::*;

use super::*;

fn at(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

fn slot(weekday: u32, time: &str, account_ids: &[i64]) -> Slot {
    let time = NaiveTime::parse_from_str(time, "%H:%M").unwrap();
    Slot { weekday, time, account_ids: account_ids.to_vec() }
}

/// Returns the occurrences from a date on, for some days, as local times with their offsets.
fn local(slots: &[Slot], zone: &str, from: &str, days: i64) -> Vec<String> {
    let zone: Tz = zone.parse().unwrap();
    let midnight = in_zone(from.parse::<NaiveDate>().unwrap().and_time(NaiveTime::MIN), zone).unwrap();
    let found = occurrences(slots, zone, midnight, midnight + TimeDelta::days(days));
    found.map(|o| o.at.with_timezone(&zone).to_rfc3339_opts(SecondsFormat::Secs, false)).collect()
}

#[test]
fn slots_occur_each_week_in_order() {
    let slots = [slot(3, "18:00", &[]), slot(1, "09:30", &[]), slot(3, "08:00", &[])];
    assert_eq!(
        local(&slots, "UTC", "2026-06-01", 9),
        [
            "2026-06-01T09:30:00+00:00",
            "2026-06-03T08:00:00+00:00",
            "2026-06-03T18:00:00+00:00",
            "2026-06-08T09:30:00+00:00",
        ]
    );
    assert!(local(&[], "UTC", "2026-06-01", 9).is_empty());
}

/// All of these days are Sundays.
#[test]
fn a_skipped_slot_is_at_the_next_existing_minute() {
    for (zone, from, time, expected) in [
        ("Europe/Berlin", "2026-03-29", "02:00", "2026-03-29T03:00:00+02:00"),
        ("Europe/Berlin", "2026-03-29", "02:59", "2026-03-29T03:00:00+02:00"),
        ("Europe/Berlin", "2026-03-29", "01:59", "2026-03-29T01:59:00+01:00"),
        ("Europe/Berlin", "2026-03-29", "03:00", "2026-03-29T03:00:00+02:00"),
        ("America/New_York", "2026-03-08", "02:30", "2026-03-08T03:00:00-04:00"),
        // Half an hour is skipped, from 2:00 to 2:30.
        ("Australia/Lord_Howe", "2026-10-04", "02:10", "2026-10-04T02:30:00+11:00"),
        ("Australia/Lord_Howe", "2026-10-04", "02:30", "2026-10-04T02:30:00+11:00"),
        // The end of Ramadan.
        ("Africa/Casablanca", "2026-03-22", "02:30", "2026-03-22T03:00:00+01:00"),
    ] {
        assert_eq!(local(&[slot(7, time, &[])], zone, from, 1), [expected], "{zone} {time}");
    }
}

#[test]
fn a_repeated_slot_occurs_once() {
    for (zone, from, time, expected) in [
        ("Europe/Berlin", "2026-10-25", "02:30", "2026-10-25T02:30:00+02:00"),
        ("Europe/Berlin", "2026-10-25", "03:00", "2026-10-25T03:00:00+01:00"),
        ("America/New_York", "2026-11-01", "01:30", "2026-11-01T01:30:00-04:00"),
        ("America/New_York", "2026-11-01", "02:00", "2026-11-01T02:00:00-05:00"),
        // Half an hour is repeated, from 1:30 to 2:00.
        ("Australia/Lord_Howe", "2026-04-05", "01:45", "2026-04-05T01:45:00+11:00"),
        ("Australia/Lord_Howe", "2026-04-05", "02:00", "2026-04-05T02:00:00+10:30"),
        // The beginning of Ramadan.
        ("Africa/Casablanca", "2026-02-15", "02:30", "2026-02-15T02:30:00+01:00"),
    ] {
        assert_eq!(local(&[slot(7, time, &[])], zone, from, 1), [expected], "{zone} {time}");
    }
    // Between the first and the second 2:30, the slot has passed.
    let slots = [slot(7, "02:30", &[])];
    let between = at("2026-10-25T01:00:00Z");
    let next = occurrences(&slots, chrono_tz::Europe::Berlin, between, between + HORIZON).next();
    assert_eq!(next.map(|o| o.at), Some(at("2026-11-01T01:30:00Z")));
}

#[test]
fn slots_that_are_skipped_to_one_time_are_one() {
    let slots = [slot(7, "02:15", &[1]), slot(7, "02:45", &[2]), slot(7, "03:00", &[1])];
    assert_eq!(local(&slots, "Europe/Berlin", "2026-03-29", 1), ["2026-03-29T03:00:00+02:00"]);
    let midnight = at("2026-03-28T23:00:00Z");
    let found = occurrences(&slots, chrono_tz::Europe::Berlin, midnight, midnight + TimeDelta::days(1)).next().unwrap();
    assert!(found.is_for(&[1, 2]) && !found.is_for(&[1, 3]));
}

#[test]
fn a_skipped_day_ends_at_the_next_one() {
    // Samoa skipped Friday, 30 December 2011.
    let slots = [slot(5, "12:00", &[]), slot(6, "08:00", &[])];
    assert_eq!(
        local(&slots, "Pacific/Apia", "2011-12-29", 3),
        ["2011-12-31T00:00:00+14:00", "2011-12-31T08:00:00+14:00"]
    );
}

fn post(id: i64, account_ids: &[i64]) -> QueuedPost {
    QueuedPost { id, at: at("2026-06-01T00:00:00Z"), account_ids: account_ids.to_vec() }
}

fn timetable(slots: &[Slot]) -> Timetable<'_> {
    Timetable::new(slots, Tz::UTC, at("2026-06-01T00:00:00Z"))
}

fn days(times: &[Option<DateTime<Utc>>]) -> Vec<Option<u32>> {
    times.iter().map(|at| at.map(|at| at.day())).collect()
}

#[test]
fn a_post_takes_the_first_slot_that_is_free_for_all_of_its_accounts() {
    let slots = [slot(1, "09:00", &[1]), slot(2, "09:00", &[]), slot(3, "09:00", &[1, 2])];
    let table = timetable(&slots);
    let taken = TakenPlaces::from_iter([(2, at("2026-06-02T09:00:00Z"))]);
    let first = |accounts: &[i64]| table.free(accounts, &taken).next().map(|at| at.day());
    assert_eq!((first(&[1]), first(&[2]), first(&[1, 2]), first(&[3])), (Some(1), Some(3), Some(3), Some(2)));
    let has_free = |text: &str, accounts: &[i64]| table.has_free(at(text), accounts, &taken);
    assert!(has_free("2026-06-02T09:00:00Z", &[1]) && has_free("2026-06-03T09:00:00Z", &[1, 2]));
    assert!(!has_free("2026-06-02T09:00:00Z", &[1, 2]) && !has_free("2026-06-01T09:00:00Z", &[2]));
    assert!(!has_free("2026-06-02T10:00:00Z", &[1]) && !has_free("2026-05-27T09:00:00Z", &[1]));
    assert_eq!(table.free(&[1, 2], &taken).take(3).map(|at| at.day()).collect::<Vec<_>>(), [3, 9, 10]);
}

#[test]
fn a_slot_needs_a_minute() {
    let slots = [slot(1, "00:00", &[]), slot(1, "00:01", &[])];
    let from = |now: &str| Timetable::new(&slots, Tz::UTC, at(now)).free(&[1], &TakenPlaces::default()).next();
    assert_eq!(from("2026-06-01T00:00:00Z"), Some(at("2026-06-01T00:01:00Z")));
    assert_eq!(from("2026-06-01T00:00:00.000001Z"), Some(at("2026-06-08T00:00:00Z")));
}

#[test]
fn posts_keep_their_order_on_each_account() {
    let first: &[i64] = &[1];
    let accounts = |weekday: u32| if weekday == 1 { first } else { &[] };
    let slots: Vec<Slot> = (1..=5).map(|weekday| slot(weekday, "09:00", accounts(weekday))).collect();
    let table = timetable(&slots);
    let posts = [post(1, &[1, 2]), post(2, &[1]), post(3, &[3]), post(4, &[2])];
    // The second post does not pass the first one on account 1, although Monday is free.
    assert_eq!(days(&table.place(&posts, &TakenPlaces::default())), [Some(2), Some(3), Some(2), Some(3)]);
}

#[test]
fn a_post_without_a_slot_holds_back_only_its_accounts() {
    let slots = [slot(1, "09:00", &[1])];
    let posts = [post(1, &[1, 2]), post(2, &[1]), post(3, &[2])];
    assert_eq!(days(&timetable(&slots).place(&posts, &TakenPlaces::default())), [None, None, None]);
    assert_eq!(days(&timetable(&slots).place(&posts[1..2], &TakenPlaces::default())), [Some(1)]);
}

#[test]
fn a_post_is_moved_before_another_one_or_to_the_end() {
    let ids = |post_id, before| {
        let mut posts: Vec<QueuedPost> = (1..=4).map(|id| post(id, &[1])).collect();
        let is_moved = reorder(&mut posts, post_id, before);
        (is_moved, posts.iter().map(|post| post.id).collect::<Vec<_>>())
    };
    assert_eq!(ids(4, Some(2)), (true, vec![1, 4, 2, 3]));
    assert_eq!(ids(1, Some(4)), (true, vec![2, 3, 1, 4]));
    assert_eq!(ids(2, None), (true, vec![1, 3, 4, 2]));
    for (post_id, before) in [(9, Some(1)), (2, Some(9)), (2, Some(2))] {
        assert_eq!(ids(post_id, before), (false, vec![1, 2, 3, 4]));
    }
}

/// The work does not grow with the product of accounts, slots and days: both searches would otherwise take many minutes,
/// and a change of the queue holds its lock meanwhile.
#[test]
fn many_accounts_and_slots_are_searched_quickly() {
    let started = std::time::Instant::now();
    let accounts: Vec<i64> = (1..=1_000).collect();
    // Twenty times of the week, each with ten slots that list all accounts but the last one.
    let of_all = |n: u32| {
        let (time, part) = (n % 20, usize::try_from(n / 20).unwrap());
        let listed: Vec<i64> = accounts.iter().copied().take(999).skip(part * 100).take(100).collect();
        slot(time % 7 + 1, &format!("{time:02}:00"), &listed)
    };
    let slots: Vec<Slot> = (0..200).map(of_all).collect();
    let times = |accounts: &[i64]| timetable(&slots).free(accounts, &TakenPlaces::default()).count();
    assert_eq!(times(&accounts), 0);
    assert!(times(&accounts[..999]) > 1_000);
    // Another post has taken each time on the last account.
    let open: Vec<Slot> =
        (0..200).map(|n: u32| slot(n % 7 + 1, &format!("{:02}:{:02}", n % 24, n % 60), &[])).collect();
    let table = timetable(&open);
    let taken: TakenPlaces = table.free(&[1_000], &TakenPlaces::default()).map(|at| (1_000, at)).collect();
    assert_eq!(table.free(&accounts, &taken).next(), None);
    // No post has a slot.
    let own: Vec<Slot> = open.iter().map(|slot| Slot { account_ids: vec![1], ..slot.clone() }).collect();
    let posts: Vec<QueuedPost> = (2..=300).map(|id| post(id, &[id])).collect();
    let placed = timetable(&own).for_queued_posts().place(&posts, &TakenPlaces::default());
    assert!(placed.iter().all(Option::is_none));
    // Takes two seconds on a quiet machine.
    assert!(started.elapsed().as_secs() < 300, "{:?}", started.elapsed());
}

const ZONES: [&str; 6] =
    ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "Asia/Kathmandu"];

prop_compose! {
    fn any_slot()(weekday in 1_u32..=7, minute in 0_u32..1_440, accounts in prop::collection::vec(1_i64..4, 0..3)) -> Slot {
        Slot { weekday, time: NaiveTime::from_hms_opt(minute / 60, minute % 60, 0).unwrap(), account_ids: accounts }
    }
}

prop_compose! {
    fn any_accounts()(mask in 1_u8..8) -> Vec<i64> {
        (0..3).filter(|bit| mask & (1 << bit) != 0).map(|bit| i64::from(bit) + 1).collect()
    }
}

proptest! {
    /// Every existing local time of a slot occurs, and nothing else does.
    #[test]
    fn occurrences_are_ascending_and_in_the_range(
        slots in prop::collection::vec(any_slot(), 0..12),
        zone in prop::sample::select(&ZONES[..]),
        start in 0_i64..4 * 366 * 24 * 60,
        days in 0_i64..40,
    ) {
        let zone: Tz = zone.parse().unwrap();
        let from = at("2025-01-01T00:00:00Z") + TimeDelta::minutes(start);
        let until = from + TimeDelta::days(days);
        let found: Vec<DateTime<Utc>> = occurrences(&slots, zone, from, until).map(|o| o.at).collect();
        prop_assert!(found.windows(2).all(|pair| pair[0] < pair[1]));
        let first = from.with_timezone(&zone).date_naive() - chrono::Days::new(2);
        let of_date = |date: NaiveDate| {
            let of_day = slots.iter().filter(move |slot| slot.weekday == date.weekday().number_from_monday());
            of_day.filter_map(move |slot| in_zone(date.and_time(slot.time), zone)).collect::<Vec<_>>()
        };
        let expected: std::collections::BTreeSet<DateTime<Utc>> = first
            .iter_days()
            .take(usize::try_from(days).unwrap() + 5)
            .flat_map(of_date)
            .filter(|at| (from..=until).contains(at))
            .collect();
        prop_assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
    }

    /// Whatever the slots become, each post has a slot of its own, in order, and a second change moves nothing.
    #[test]
    fn each_post_has_a_slot_of_its_own(
        slots in prop::collection::vec(any_slot(), 1..12),
        accounts in prop::collection::vec(any_accounts(), 0..40),
        taken in prop::collection::vec((1_i64..4, 0_usize..30), 0..10),
        zone in prop::sample::select(&ZONES[..]),
        start in 0_i64..366 * 24 * 60,
    ) {
        let zone: Tz = zone.parse().unwrap();
        let now = at("2026-01-01T00:00:00Z") + TimeDelta::minutes(start);
        let table = Timetable::new(&slots, zone, now);
        let all: Vec<DateTime<Utc>> = occurrences(&slots, zone, table.from, table.until).map(|o| o.at).collect();
        let taken: TakenPlaces =
            taken.into_iter().filter_map(|(account, n)| Some((account, *all.get(n)?))).collect();
        let mut posts: Vec<QueuedPost> = (1..).zip(accounts).map(|(id, account_ids)| QueuedPost { id, at: now, account_ids }).collect();
        let times = table.place(&posts, &taken);
        let mut places = taken.0.clone();
        let mut last: HashMap<i64, DateTime<Utc>> = HashMap::new();
        let mut without: HashSet<i64> = HashSet::new();
        for (post, time) in posts.iter().zip(&times) {
            let Some(time) = time else {
                without.extend(&post.account_ids);
                continue;
            };
            let found = occurrences(&slots, zone, *time, *time).next();
            prop_assert!(found.is_some_and(|found| found.is_for(&post.account_ids)), "not a slot of its accounts");
            for account in &post.account_ids {
                prop_assert!(places.insert((*account, *time)), "two posts in one slot");
                prop_assert!(last.insert(*account, *time).is_none_or(|before| before < *time), "the order changed");
                prop_assert!(!without.contains(account), "passed a post without a slot");
            }
        }
        // Those that have a slot keep it when they are placed once more.
        posts = posts.into_iter().zip(times).filter_map(|(post, at)| Some(QueuedPost { at: at?, ..post })).collect();
        sort(&mut posts);
        let again = table.place(&posts, &taken);
        prop_assert_eq!(again, posts.iter().map(|post| Some(post.at)).collect::<Vec<_>>());
    }
}
