use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn at(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

fn rule() -> RecurringPost {
    let now = at("2026-11-01T00:00:00Z");
    RecurringPost {
        id: 1,
        brand_id: 1,
        author_id: Some(1),
        name: "Menu".to_owned(),
        frequency: Frequency::Daily,
        weekdays: Vec::new(),
        day: None,
        cron: None,
        time: Some("09:00".to_owned()),
        starts_on: "2026-11-01".parse().unwrap(),
        ends_on: None,
        count: None,
        destination: Destination::Calendar,
        is_active: true,
        accounts: vec![1],
        labels: Vec::new(),
        planned: 0,
        version: 1,
        planned_version: 0,
        problem: None,
        deleted_at: None,
        created_at: now,
        updated_at: now,
        variations: ["a", "b", "c"].map(|text| Variation { content: text.to_owned(), media: Vec::new() }).to_vec(),
        overrides: Vec::new(),
    }
}

/// A store of one rule, with what a job and users do to it.
struct Model {
    rule: RecurringPost,
    zone: Tz,
    rows: Vec<StoredOccurrence>,
    now: DateTime<Utc>,
    next_id: i64,
    /// The number of posts that were made for each slot.
    made: BTreeMap<String, usize>,
    /// The posts that users changed, by the id of their occurrence.
    changed: BTreeMap<i64, DateTime<Utc>>,
}

impl Model {
    fn new() -> Self {
        Self {
            rule: rule(),
            zone: chrono_tz::Europe::Berlin,
            rows: Vec::new(),
            now: at("2026-11-01T00:00:00Z"),
            next_id: 1,
            made: BTreeMap::new(),
            changed: BTreeMap::new(),
        }
    }

    fn stored(&self) -> Vec<StoredOccurrence> {
        self.rows.iter().filter(|row| row.occurs_at > OccurrencePlan::since(self.now)).cloned().collect()
    }

    fn row(&mut self, id: i64) -> &mut StoredOccurrence {
        self.rows.iter_mut().find(|row| row.id == id).unwrap()
    }

    /// Writes a plan, as the job does.
    fn plan(&mut self) {
        let plan = OccurrencePlan::new(&self.rule, self.zone, &self.stored(), self.now);
        for id in &plan.delete {
            assert!(!self.row(*id).is_made());
        }
        self.rows.retain(|row| !plan.delete.contains(&row.id));
        for id in &plan.remove {
            self.row(*id).is_removed = true;
        }
        for moved in &plan.moved {
            assert!(!self.changed.contains_key(&moved.id), "a changed post does not move");
            let row = self.row(moved.id);
            row.slot.clone_from(&moved.occurrence.slot);
            (row.occurs_at, row.number, row.is_removed) = (moved.occurrence.occurs_at, moved.number, false);
        }
        for (occurrence, number) in plan.add {
            self.rows.push(StoredOccurrence {
                id: self.next_id,
                slot: occurrence.slot,
                occurs_at: occurrence.occurs_at,
                number,
                version: self.rule.version,
                is_removed: false,
                written_at: None,
                post_id: None,
                post_status: None,
                post_updated_at: None,
            });
            self.next_id += 1;
        }
        (self.rule.planned, self.rule.planned_version) = (plan.planned, self.rule.version);
        let slots: HashSet<&String> = self.rows.iter().map(|row| &row.slot).collect();
        assert_eq!(slots.len(), self.rows.len(), "each occurrence is stored once");
    }

    /// Makes, rewrites and removes at most `count` occurrences, as the job does.
    fn make(&mut self, count: usize) {
        let (now, version) = (self.now, self.rule.version);
        self.rows.retain(|row| !(row.is_removed && row.occurs_at > now && row.is_unchanged()));
        for row in self.rows.iter_mut().filter(|row| row.is_removed && row.occurs_at > now) {
            // It was changed after the plan, so it stays.
            row.is_removed = false;
            self.rule.planned += 1;
        }
        for row in self.rows.iter_mut().filter(|row| row.occurs_at > now && !row.is_removed).take(count) {
            if row.is_made() && !(row.version < version && row.is_unchanged()) {
                continue;
            }
            if !row.is_made() {
                *self.made.entry(row.slot.clone()).or_default() += 1;
                row.post_id = Some(row.id);
            }
            row.version = version;
            row.post_status = Some(PostStatus::Scheduled);
            (row.written_at, row.post_updated_at) = (Some(now), Some(now));
        }
    }

    /// Publishes what is due.
    fn publish(&mut self) {
        let now = self.now;
        for row in self.rows.iter_mut().filter(|row| row.occurs_at <= now && row.post_status.is_some()) {
            row.post_status = Some(PostStatus::Published);
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Advance(i64),
    Zone(Tz),
    Time(&'static str),
    Weekly,
    Daily,
    Active(bool),
    Change(usize),
    Delete(usize),
    Plan,
    Make(usize),
}

fn step() -> impl Strategy<Value = Step> {
    use chrono_tz::{Africa::Casablanca, America::New_York, Australia::Lord_Howe, Europe::Berlin};
    prop_oneof![
        1 => (1_i64..96).prop_map(Step::Advance),
        1 => prop::sample::select(vec![Berlin, New_York, Lord_Howe, Casablanca]).prop_map(Step::Zone),
        1 => prop::sample::select(vec!["00:15", "02:15", "09:00", "23:45"]).prop_map(Step::Time),
        1 => Just(Step::Weekly),
        1 => Just(Step::Daily),
        1 => any::<bool>().prop_map(Step::Active),
        1 => (0_usize..40).prop_map(Step::Change),
        1 => (0_usize..40).prop_map(Step::Delete),
        3 => Just(Step::Plan),
        3 => (0_usize..40).prop_map(Step::Make),
    ]
}

fn apply(model: &mut Model, step: Step) {
    let now = model.now;
    match step {
        Step::Advance(hours) => model.now += TimeDelta::hours(hours),
        Step::Zone(zone) => model.zone = zone,
        Step::Time(time) => model.rule.time = Some(time.to_owned()),
        Step::Weekly => (model.rule.frequency, model.rule.weekdays) = (Frequency::Weekly, vec![1, 4]),
        Step::Daily => model.rule.frequency = Frequency::Daily,
        Step::Active(is_active) => model.rule.is_active = is_active,
        Step::Change(n) => {
            if let Some(row) = model.rows.get_mut(n).filter(|row| row.post_status == Some(PostStatus::Scheduled)) {
                row.post_updated_at = Some(now + TimeDelta::seconds(1));
                model.changed.insert(row.id, row.occurs_at);
            }
        }
        Step::Delete(n) => {
            if let Some(row) = model.rows.get_mut(n).filter(|row| row.post_status == Some(PostStatus::Scheduled)) {
                (row.post_id, row.post_status, row.post_updated_at) = (None, None, None);
            }
        }
        Step::Plan => model.plan(),
        Step::Make(count) => model.make(count),
    }
    if matches!(step, Step::Zone(_) | Step::Time(_) | Step::Weekly | Step::Daily | Step::Active(_)) {
        model.rule.version += 1;
    }
    model.publish();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_interleaving_ends_with_each_occurrence_once(steps in prop::collection::vec(step(), 1..60)) {
        let mut model = Model::new();
        for step in steps {
            apply(&mut model, step);
        }
        model.plan();
        model.make(usize::MAX);
        let again = OccurrencePlan::new(&model.rule, model.zone, &model.stored(), model.now);
        let unchanged = OccurrencePlan { planned: model.rule.planned, ..OccurrencePlan::default() };
        prop_assert_eq!(again, unchanged, "a plan that is repeated changes nothing");
        prop_assert!(model.rows.iter().all(|row| !row.is_removed || row.occurs_at <= model.now));
        let until = model.now + TimeDelta::days(HORIZON_DAYS);
        let wanted = model.rule.occurrences(model.zone, model.now, until);
        for one in wanted.iter().filter(|_| model.rule.is_active) {
            let row = model.rows.iter().find(|row| row.slot == one.slot).unwrap();
            prop_assert!(row.is_made(), "{one:?} is made");
            prop_assert!(!row.is_unchanged() || row.occurs_at == one.occurs_at || row.occurs_at <= model.now);
        }
        // What is left beside these was changed, deleted or published.
        for row in model.rows.iter().filter(|row| row.occurs_at > model.now) {
            let is_wanted = model.rule.is_active && wanted.iter().any(|one| one.slot == row.slot);
            prop_assert!(is_wanted || !row.is_unchanged(), "{row:?}");
        }
        for (id, occurs_at) in &model.changed {
            let row = model.rows.iter().find(|row| row.id == *id);
            prop_assert!(row.is_some_and(|row| row.occurs_at == *occurs_at), "a changed post stays where it is");
        }
    }
}

#[test]
fn variations_are_used_in_turn_and_a_count_ends_the_rule() {
    let mut model = Model::new();
    model.rule.count = Some(4);
    model.plan();
    model.make(usize::MAX);
    let texts = |model: &Model| -> Vec<String> {
        let texts = model.rows.iter().map(|row| model.rule.variation(row.number).unwrap().content.clone());
        texts.collect()
    };
    assert_eq!(texts(&model), ["a", "b", "c", "a"]);
    model.now += TimeDelta::days(2);
    model.publish();
    model.plan();
    assert_eq!((model.rows.len(), model.rule.planned), (4, 4));
    assert_eq!(model.rule.next_due(model.zone, model.now), None);
    // Days between the others get their variations in the new order.
    let mut model = Model::new();
    model.rule.frequency = Frequency::Weekly;
    model.rule.weekdays = vec![1];
    model.plan();
    model.make(usize::MAX);
    model.rule.weekdays = vec![1, 3];
    model.rule.version += 1;
    model.plan();
    model.rows.sort_by_key(|row| row.occurs_at);
    assert_eq!(texts(&model)[..4], ["a", "b", "c", "a"]);
}

#[test]
fn a_smaller_count_makes_no_posts_beside_those_that_users_changed() {
    let mut model = Model::new();
    model.rule.count = Some(8);
    model.plan();
    model.make(usize::MAX);
    let later = model.now + TimeDelta::seconds(1);
    for row in model.rows.iter_mut().skip(4) {
        row.post_updated_at = Some(later);
        model.changed.insert(row.id, row.occurs_at);
    }
    for (count, rows) in [(6, 6), (2, 4), (2, 4), (5, 5)] {
        model.rule.count = Some(count);
        model.rule.version += 1;
        model.plan();
        model.make(usize::MAX);
        assert_eq!((model.rows.len(), model.rule.planned), (rows, length(rows)), "{count}");
    }
}

#[test]
fn a_post_moves_with_its_time_instead_of_being_made_again() {
    let mut model = Model::new();
    model.rule.frequency = Frequency::Weekly;
    model.rule.weekdays = vec![1];
    model.plan();
    model.make(usize::MAX);
    let before = model.made.values().sum::<usize>();
    model.rule.weekdays = vec![2];
    model.rule.version += 1;
    model.plan();
    model.make(usize::MAX);
    assert_eq!(model.made.values().sum::<usize>(), before);
    assert!(model.rows.iter().all(|row| row.occurs_at.weekday() == chrono::Weekday::Tue));
}

#[test]
fn a_rule_is_due_once_per_occurrence_or_per_day() {
    let now = at("2026-11-01T08:00:00Z");
    let daily = rule();
    // The next occurrence that is not made is 31 days later.
    assert_eq!(daily.next_due(chrono_tz::UTC, now), Some(at("2026-11-02T04:00:00Z")));
    assert_eq!(daily.next_due(chrono_tz::UTC, at("2026-11-01T09:00:00Z")), Some(at("2026-11-02T09:00:00Z")));
    let hourly = RecurringPost { frequency: Frequency::Cron, cron: Some("0 * * * *".to_owned()), ..rule() };
    assert_eq!(hourly.next_due(chrono_tz::UTC, now), Some(now + MIN_PAUSE));
    let monthly = RecurringPost { frequency: Frequency::Monthly, day: Some(15), ..rule() };
    assert_eq!(monthly.next_due(chrono_tz::UTC, now), Some(now + MAX_PAUSE));
    let ended = RecurringPost { ends_on: "2026-11-05".parse().ok(), ..rule() };
    assert_eq!(ended.next_due(chrono_tz::UTC, now), None);
    let inactive = RecurringPost { is_active: false, ..rule() };
    assert_eq!(inactive.next_due(chrono_tz::UTC, now), None);
}

#[test]
fn a_rule_that_is_too_frequent_is_found() {
    let now = at("2026-11-01T08:00:00Z");
    let every = |cron: &str| {
        let rule = RecurringPost { frequency: Frequency::Cron, cron: Some(cron.to_owned()), ..rule() };
        is_too_frequent(&rule.recurrence(chrono_tz::UTC).unwrap(), &rule.days(), now)
    };
    assert!(every("* * * * *"));
    assert!(every("0 * * * *"));
    assert!(!every("0 8,10,12,14,16,18 * * *"));
}

#[test]
fn a_rule_that_becomes_too_frequent_later_is_limited() {
    let mut model = Model::new();
    (model.rule.frequency, model.rule.cron) = (Frequency::Cron, Some("* * 31 * *".to_owned()));
    (model.zone, model.now) = (chrono_tz::UTC, at("2026-12-31T23:58:00Z"));
    let recurrence = model.rule.recurrence(model.zone).unwrap();
    // The next 31st is more than 30 days later.
    assert!(!is_too_frequent(&recurrence, &model.rule.days(), model.now));
    model.now = at("2027-01-02T00:00:00Z");
    model.plan();
    assert_eq!(model.rows.len(), MAX_OCCURRENCES);
    model.make(usize::MAX);
    model.plan();
    assert_eq!(model.rows.len(), MAX_OCCURRENCES);
}

#[test]
fn the_largest_move_repeats_no_day() {
    let mut model = Model::new();
    (model.zone, model.rule.time) = (chrono_tz::Pacific::Kiritimati, Some("00:00".to_owned()));
    model.plan();
    model.make(usize::MAX);
    // 5 November was 48.5 hours ago at the old time, and is in half an hour at the new one.
    model.now = at("2026-11-06T10:30:00Z");
    model.publish();
    (model.zone, model.rule.time) = (chrono_tz::Pacific::Pago_Pago, Some("23:59".to_owned()));
    model.rule.version += 1;
    model.plan();
    model.make(usize::MAX);
    assert_eq!(model.made.get("2026-11-05"), Some(&1));
}

#[test]
fn the_posts_of_a_process_whose_clock_is_ahead_stay() {
    let mut model = Model::new();
    model.now += TimeDelta::hours(20);
    model.plan();
    model.make(usize::MAX);
    let times = |model: &Model| model.rows.iter().map(|row| (row.id, row.occurs_at)).collect::<Vec<_>>();
    let early = times(&model);
    model.now -= TimeDelta::hours(20);
    model.plan();
    model.make(usize::MAX);
    assert_eq!(times(&model)[..early.len()], early);
    assert_eq!((model.rows.len(), model.rule.planned), (31, 31), "the day between the clocks is made, too");
    // They follow a change of the rule.
    model.rule.is_active = false;
    model.rule.version += 1;
    model.plan();
    model.make(usize::MAX);
    assert_eq!((model.rows.len(), model.rule.planned), (0, 0));
}

#[test]
fn a_plan_in_a_repeated_hour_keeps_the_posts() {
    let mut model = Model::new();
    (model.rule.starts_on, model.rule.time) = ("2026-10-01".parse().unwrap(), Some("02:30".to_owned()));
    model.now = at("2026-10-20T12:00:00Z");
    model.plan();
    model.make(usize::MAX);
    // 02:10, for the second time.
    model.now = at("2026-10-25T01:10:00Z");
    model.publish();
    let before: Vec<i64> = model.rows.iter().map(|row| row.id).collect();
    model.plan();
    model.make(usize::MAX);
    assert!(before.iter().all(|id| model.rows.iter().any(|row| row.id == *id)), "no post is deleted");
    assert!(model.made.values().all(|count| *count == 1));
    assert_eq!(model.made.keys().filter(|slot| *slot == "2026-10-25").count(), 1);
}

#[test]
fn an_expression_with_several_times_has_no_occurrence_at_a_skipped_one() {
    let start = at("2027-03-27T12:00:00Z");
    let of = |cron: &str| -> Vec<String> {
        let (frequency, cron) = (Frequency::Cron, Some(cron.to_owned()));
        let rule = RecurringPost { frequency, cron, ..rule() };
        let found = rule.occurrences(chrono_tz::Europe::Berlin, start, start + TimeDelta::hours(24));
        found.into_iter().map(|one| one.slot).collect()
    };
    assert_eq!(of("30 2 * * *"), ["2027-03-28T03:00"]);
    assert_eq!(of("30 2,8 * * *"), ["2027-03-28T08:30"]);
}

#[test]
fn a_repeated_hour_has_one_occurrence() {
    let rule = RecurringPost { frequency: Frequency::Cron, cron: Some("*/30 * * * *".to_owned()), ..rule() };
    for (zone, day) in [("Europe/Berlin", "2026-10-25"), ("Australia/Lord_Howe", "2027-04-04")] {
        let start = at(&format!("{day}T00:00:00Z")) - TimeDelta::hours(24);
        let rule = RecurringPost { starts_on: "2026-01-01".parse().unwrap(), ..rule.clone() };
        let found = rule.occurrences(zone.parse().unwrap(), start, start + TimeDelta::hours(60));
        let of_day = found.iter().filter(|one| one.slot.starts_with(day)).count();
        assert_eq!(of_day, 48, "{zone}");
    }
}

#[test]
fn the_next_times_have_the_numbers_that_a_run_gives_them() {
    let mut rule = RecurringPost { frequency: Frequency::Weekly, weekdays: vec![1], ..rule() };
    let (zone, now) = (chrono_tz::Europe::Berlin, at("2026-11-01T00:00:00Z"));
    let times = rule.next_times(zone, now);
    assert_eq!(rule.numbers(zone, &[], now, &times), [0, 1, 2, 3, 4]);
    let monthly = RecurringPost { frequency: Frequency::Monthly, day: Some(1), ..rule.clone() };
    let months = monthly.next_times(zone, now);
    assert_eq!(monthly.numbers(zone, &[], now, &months), [0, 1, 2, 3, 4], "only the first one is planned");
    let occurrence = |id: i64, at: DateTime<Utc>, number: i64| StoredOccurrence {
        id,
        slot: at.with_timezone(&zone).format("%Y-%m-%d").to_string(),
        occurs_at: at,
        number,
        version: 1,
        is_removed: false,
        written_at: None,
        post_id: None,
        post_status: None,
        post_updated_at: None,
    };
    // Seven occurrences were planned before, of which two are in the future.
    let stored = [occurrence(1, times[0], 5), occurrence(2, times[1], 6)];
    (rule.planned, rule.planned_version) = (7, 1);
    assert_eq!(rule.numbers(zone, &stored, now, &times), [5, 6, 7, 8, 9]);
    assert_eq!(rule.variation(5).map(|variation| variation.content.as_str()), Some("c"));
}
