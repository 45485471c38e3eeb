//! The time of a page with its total: unfiltered, filtered, the last page, and searches for frequent and rare words.

use std::time::Instant;

use chrono::TimeDelta;
use crier_domain::conversation::ConversationStatus;
use crier_domain::platform::ConversationType;
use crier_domain::words;
use crier_store::brands::{self, NewBrand};
use crier_store::conversations::list::{ConversationFilter, list};
use crier_store::{PageRequest, users};

use super::super::environment::BenchEnvironment;
use super::super::figure::{Figure, percentile};
use super::super::{BenchError, Figures, fail, sample_text};
use super::Bench;
use super::sample::{SampleInbox, run_maintenance};

const NAME: &str = "lists";
const PER_PAGE: i64 = 20;
/// Conversations per transaction.
const CHUNK: usize = 500;

/// A measured list: its name, a search, a filter, and the page: 0 for the first, 1 for the last.
type Case = (&'static str, &'static str, fn() -> ConversationFilter, f64);

pub const CASES: &[Case] = &[
    ("all", "", ConversationFilter::default, 0.0),
    ("all, the last page", "", ConversationFilter::default, 1.0),
    ("open", "", || ConversationFilter { status: Some(ConversationStatus::Open), ..Default::default() }, 0.0),
    ("unread direct messages", "", unread_dms, 0.0),
    ("assigned to a member, none", "", || ConversationFilter { assignee_id: Some(1), ..Default::default() }, 0.0),
    ("with a tag", "", || ConversationFilter { tag: Some("vip".to_owned()), ..Default::default() }, 0.0),
    ("a word in every conversation", "hello", ConversationFilter::default, 0.0),
    ("a word in every conversation, the last page", "hello", ConversationFilter::default, 1.0),
    ("a word in every conversation, unread", "hello", unread_dms, 0.0),
    ("a word in one of 10,000 conversations", "unicorn", ConversationFilter::default, 0.0),
    ("a beginning of two letters", "ba", ConversationFilter::default, 0.0),
    ("a beginning of three letters", "bad", ConversationFilter::default, 0.0),
    ("a frequent and a rare word", "hello unicorn", ConversationFilter::default, 0.0),
    ("two frequent words", "hello bab", ConversationFilter::default, 0.0),
    ("part of a Japanese sentence", "届きます", ConversationFilter::default, 0.0),
    ("a word that is not there", "zzz", ConversationFilter::default, 0.0),
];

fn unread_dms() -> ConversationFilter {
    ConversationFilter { unread: Some(true), kind: Some(ConversationType::Dm), ..Default::default() }
}

pub async fn run(bench: &Bench) -> Figures {
    let environment = bench.create_environment().await?;
    let store = environment.api();
    let (conversations, messages) = (i64::from(bench.args.conversations), i64::from(bench.args.messages));
    let mut tx = store.begin().await?;
    let workspace = users::create_workspace(&mut tx, "bench", "unlimited").await?;
    let user = users::create(&mut tx, workspace, "bench@localhost", "bench").await?;
    let new = NewBrand { name: "bench", description: None, website: None, timezone: "UTC" };
    let Some(brand) = brands::create(&mut tx, workspace, user, None, new).await? else {
        return fail("a brand without a cap was rejected");
    };
    tx.commit().await?;
    let first_at = store.now() - TimeDelta::days(30);
    let messages = messages / conversations.max(1);
    let inbox = SampleInbox { brand_id: brand.id, account_id: 1, first_at, text: &text, messages };
    for first in (0..conversations).step_by(CHUNK) {
        bench.show_progress(format_args!("lists: {first} of {conversations} conversations written"));
        let mut tx = store.begin().await?;
        inbox.insert(&mut tx, first..conversations.min(first + i64::try_from(CHUNK).unwrap_or(i64::MAX))).await?;
        tx.commit().await?;
    }
    run_maintenance(store.db()).await?;
    let mut figures = Vec::new();
    for (name, search, filter, depth) in CASES {
        bench.show_progress(format_args!("lists: {name}"));
        let filter = ConversationFilter { words: words::search_terms(search), ..filter() };
        figures.extend(measure(bench, &environment, brand.id, name, &filter, *depth).await?);
    }
    Ok(figures)
}

async fn measure(
    bench: &Bench,
    environment: &BenchEnvironment,
    brand: i64,
    name: &str,
    filter: &ConversationFilter,
    depth: f64,
) -> Result<Vec<Figure>, BenchError> {
    let mut conn = environment.api().read().await?;
    let mut page = PageRequest { page: 1, per_page: PER_PAGE };
    // Also warms the cache.
    let total = list(&mut conn, brand, filter, page).await?.total;
    if depth > 0.0 {
        page.page = (total / PER_PAGE).max(1);
    }
    let mut times = Vec::new();
    for _ in 0..bench.args.repeat {
        let began = Instant::now();
        list(&mut conn, brand, filter, page).await?;
        times.push(began.elapsed());
    }
    let median = Figure::time(NAME, format!("{name}, p50"), percentile(times.clone(), 50));
    Ok(vec![median, Figure::time(NAME, format!("{name}, p95"), percentile(times, 95))])
}

/// Returns the text of a message: eight words, some of which are frequent.
fn text(conversation: i64, message: i64) -> String {
    let seed = conversation.unsigned_abs().wrapping_mul(1_000).wrapping_add(message.unsigned_abs());
    let mut text = format!("hello {}", sample_text::words(seed, 7));
    if conversation % 10_000 == 77 && message == 0 {
        text.push_str(" unicorn");
    }
    if conversation % 100 == 3 && message == 0 {
        text.push_str(" 東京都の注文はいつ届きますか");
    }
    text
}
