//! `crier-bench recurring`: measures what the scheduler does for many recurring posts, through the functions that its
//! task calls. The brands also have slots, which cost the scheduler nothing: a queued post has a time like others.
//!
//! The rules are daily, so each is due once per day. A tick that finds nothing due reads the head of an index. The work
//! per day is that of all ticks of a day, and of the runs that they enqueue. It is measured with a tenth of the brands
//! too: it must grow with the rules that are due, and not faster.
//!
//! **To add a measurement:** a call in [`measure`], and its figures in `tests/bench/recurring.rs`.

use std::time::Instant;

use chrono::{NaiveDate, NaiveTime, TimeDelta};
use crier_domain::content_plan::Destination;
use crier_domain::job::JobKind;
use crier_domain::queue::Slot;
use crier_domain::recurrence::Frequency;
use crier_domain::recurring_post::{RecurringPost, Variation};
use crier_store::brands::{self, NewBrand};
use crier_store::{Store, Tx, jobs, queues, recurring_posts, users};

use super::figure::{Figure, median};
use super::{Figures, Suite, database, fail, figure};
use crate::args::{BenchOptions, BenchRecurring, RecurringMeasurement};

type Bench = super::Bench<BenchRecurring>;

const NAME: &str = "scheduler";
/// The task ticks every ten seconds.
const TICKS_PER_DAY: u32 = 8_640;
/// The number of rules that one statement of the task enqueues.
const BATCH: i64 = 100;
/// The maximum number of rules that are enqueued for the measurement.
const MAX_DUE: usize = 2_000;

impl Suite for BenchRecurring {
    fn options(&self) -> &BenchOptions {
        &self.options
    }

    async fn measure(bench: &Bench) -> Figures {
        let mut figures = figure::machine_figures(&*bench.create_environment().await?).await?;
        let measure = async |measurement| match measurement {
            RecurringMeasurement::Scheduler => run(bench).await,
        };
        figures.extend(bench.each(RecurringMeasurement::ALL, &[], measure).await?);
        Ok(figures)
    }
}

async fn run(bench: &Bench) -> Figures {
    let mut figures = Vec::new();
    for brands in [(bench.args.brands / 10).max(1), bench.args.brands] {
        figures.extend(measure(bench, brands).await?);
    }
    Ok(figures)
}

async fn measure(bench: &Bench, brands: u32) -> Figures {
    let environment = bench.create_environment().await?;
    let store = environment.api();
    let rules = fill(bench, store, brands).await?;
    database::run_maintenance(store.db()).await?;
    bench.show_progress(format_args!("scheduler: ticks with {} rules", rules.len()));
    let mut ticks = Vec::new();
    for _ in 0..bench.args.repeat {
        let began = Instant::now();
        if enqueue_batch(store).await? > 0 {
            return fail("a rule is due too early");
        }
        ticks.push(began.elapsed());
    }
    let due: Vec<i64> = rules.iter().copied().take(MAX_DUE).collect();
    let mut tx = store.begin().await?;
    for id in &due {
        let at = tx.now - TimeDelta::minutes(1);
        recurring_posts::end_run(&mut tx, *id, Some(at), None).await?;
    }
    tx.commit().await?;
    let (began, mut enqueued) = (Instant::now(), 0);
    while enqueued < due.len() {
        match enqueue_batch(store).await? {
            0 => return fail("a rule is not due"),
            count => enqueued += count,
        }
    }
    let enqueuing = began.elapsed();
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX).max(1);
    let (tick, per_rule) = (median(ticks), enqueuing / count(due.len()));
    let per_day = tick * TICKS_PER_DAY + per_rule * count(rules.len());
    let of = |what: &str| format!("{} rules, {what}", rules.len());
    Ok(vec![
        Figure::time(NAME, of("a tick with nothing due"), tick),
        Figure::time(NAME, of("enqueuing a rule"), per_rule),
        // At most, because the time contains waits for the database.
        Figure::time(NAME, of("work per day"), per_day),
    ])
}

async fn enqueue_batch(store: &Store) -> Result<usize, super::BenchError> {
    let mut tx = store.begin().await?;
    let due = recurring_posts::enqueue_due(&mut tx, BATCH).await?;
    tx.commit().await?;
    Ok(due)
}

/// Creates brands with their slots and their rules, of which none is due. Returns the ids of the rules.
async fn fill(bench: &Bench, store: &Store, brands: u32) -> Result<Vec<i64>, super::BenchError> {
    let mut tx = store.begin().await?;
    let workspace = users::create_workspace(&mut tx, "bench", "unlimited").await?;
    let user = users::create(&mut tx, workspace, "bench@localhost", "bench").await?;
    tx.commit().await?;
    let mut rules = Vec::new();
    for number in 0..brands {
        bench.show_progress(format_args!("scheduler: {number} of {brands} brands written"));
        let mut tx = store.begin().await?;
        let new = NewBrand { name: "bench", description: None, website: None, timezone: "Europe/Berlin" };
        let Some(brand) = brands::create(&mut tx, workspace, user, None, new).await? else {
            return fail("a brand without a cap was rejected");
        };
        queues::lock(&mut tx, brand.id).await?;
        queues::set_slots(&mut tx, brand.id, &slots(bench.args.weekly_slots)).await?;
        for _ in 0..bench.args.rules {
            let rule = rule(&tx, brand.id, user);
            let id = recurring_posts::create(&mut tx, rule, None).await?.id;
            // The rule has no other job, and is due tomorrow.
            jobs::cancel_subject(&mut tx, JobKind::MakeOccurrences, id).await?;
            let at = tx.now + TimeDelta::days(1);
            recurring_posts::end_run(&mut tx, id, Some(at), None).await?;
            rules.push(id);
        }
        tx.commit().await?;
    }
    Ok(rules)
}

/// Returns slots at different hours of the week.
fn slots(count: u32) -> Vec<Slot> {
    let slot = |number: u32| Slot {
        weekday: number % 7 + 1,
        time: NaiveTime::from_hms_opt(number / 7, 0, 0).unwrap_or_default(),
        account_ids: Vec::new(),
    };
    (0..count).map(slot).collect()
}

fn rule(tx: &Tx, brand: i64, user: i64) -> RecurringPost {
    RecurringPost {
        id: 0,
        brand_id: brand,
        author_id: Some(user),
        name: "bench".to_owned(),
        frequency: Frequency::Daily,
        weekdays: Vec::new(),
        day: None,
        cron: None,
        time: Some("09:00".to_owned()),
        starts_on: NaiveDate::default(),
        ends_on: None,
        count: None,
        destination: Destination::Draft,
        is_active: true,
        accounts: Vec::new(),
        labels: Vec::new(),
        planned: 0,
        version: 1,
        planned_version: 0,
        problem: None,
        deleted_at: None,
        created_at: tx.now,
        updated_at: tx.now,
        variations: vec![Variation { content: "Fresh bread.".to_owned(), media: Vec::new() }],
        overrides: Vec::new(),
    }
}
