//! `crier-bench posts`: measures lists, searches and the calendar of a brand with very many posts, through the functions
//! that the API and the console call. Other brands of the workspace have as many posts together.
//!
//! On Postgres, each list is measured twice: before the first `ANALYZE` of the tables, as after an import, and after it.
//! SQLite has no statistics, because Crier never creates them.
//!
//! **To add a measurement:** a case in [`cases::all`], and its name in `tests/bench/posts.rs`.

use std::time::{Duration, Instant};

use crier_store::{PageRequest, Store};

use super::figure::{Figure, percentile};
use super::{Figures, Suite, figure};
use crate::args::{BenchOptions, BenchPosts};

mod cases;
mod sample;

use cases::Case;
use sample::SamplePosts;

type Bench = super::Bench<BenchPosts>;

/// The default of the API.
const PER_PAGE: i64 = 20;
const GOAL: Duration = Duration::from_millis(50);
/// How long a list is read repeatedly.
const MAX_DURATION: Duration = Duration::from_secs(5);

impl Suite for BenchPosts {
    fn options(&self) -> &BenchOptions {
        &self.options
    }

    async fn measure(bench: &Bench) -> Figures {
        let environment = bench.create_environment().await?;
        let mut figures = figure::machine_figures(&environment).await?;
        let store = environment.api();
        sample::disable_autovacuum(store.db()).await?;
        let posts = SamplePosts::create(bench, store).await?;
        let cases = cases::all(&posts);
        if !environment.is_embedded() {
            figures.extend(measure_all(bench, store, "never analyzed", &posts, &cases).await?);
        }
        sample::run_maintenance(store.db()).await?;
        figures.extend(measure_all(bench, store, "lists", &posts, &cases).await?);
        Ok(figures)
    }
}

async fn measure_all(
    bench: &Bench,
    store: &Store,
    measurement: &'static str,
    posts: &SamplePosts,
    cases: &[Case],
) -> Figures {
    let mut figures = Vec::new();
    for case in cases {
        bench.show_progress(format_args!("{measurement}: {}", case.name));
        figures.extend(measure(bench, store, measurement, posts.brand_id, case).await?);
    }
    Ok(figures)
}

async fn measure(bench: &Bench, store: &Store, measurement: &'static str, brand_id: i64, case: &Case) -> Figures {
    let mut conn = store.read().await?;
    let mut page = PageRequest { page: 1, per_page: PER_PAGE };
    // Also warms the cache.
    let total = case.read(&mut conn, brand_id, page).await?;
    page.page = case.page_of(total, PER_PAGE);
    let (began, mut times) = (Instant::now(), Vec::new());
    for number in 0..bench.args.repeat {
        if number > 0 && began.elapsed() > MAX_DURATION {
            break;
        }
        let began = Instant::now();
        case.read(&mut conn, brand_id, page).await?;
        times.push(began.elapsed());
    }
    let count = times.len();
    let time = |which: &str, percent| {
        Figure::time(measurement, format!("{}, {which}", case.name), percentile(times.clone(), percent))
    };
    let mut figures = vec![time("p50", 50), time("p95", 95).with_goal(GOAL), time("max", 100)];
    if count < bench.args.repeat as usize {
        figures.push(Figure::count(measurement, format!("{}, reads in 5 s", case.name), "reads", count));
    }
    Ok(figures)
}
