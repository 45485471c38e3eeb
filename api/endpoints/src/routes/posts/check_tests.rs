//! The number of steps to parse and check a body grows at most linearly with its size, whatever its shape.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use crier_domain::account::{AccountStatus, AccountSummary};
use crier_domain::platform::Platform;
use crier_domain::post::Post;
use crier_posts::check::{LookupContext, TextLengthCache, check, check_with};
use crier_posts::{DesiredPost, PostChange};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::create::CreatePostRequest;
use super::request::MAX_ACCOUNTS;
use crate::fields::{MAX_PROBLEMS, Problems, ReadContext, steps};
use crate::request::Parsed;
use crate::runner::json::{self, MAX_VALUES};

/// The maximum steps per value of a body, and the fixed steps per request.
const MAX_STEPS_PER_VALUE: u64 = 12;
const FIXED_STEPS: u64 = 2_000;

/// Generators of hostile bodies with `n` elements.
const SHAPES: &[fn(usize) -> String] = &[
    |n| format!(r#"{{"overrides":[{}]}}"#, list(n, |_| "{}".to_owned())),
    |n| format!(r#"{{"accounts":[1],"overrides":[{}]}}"#, list(n, |i| format!(r#"{{"account_id":{}}}"#, i + 1))),
    |n| format!(r#"{{"accounts":[1],"overrides":[{}]}}"#, list(n, |_| r#"{"account_id":1}"#.to_owned())),
    |n| {
        let all = list(n, |i| (i + 1).to_string());
        format!(r#"{{"accounts":[{all}],"overrides":[{}]}}"#, list(n, |i| format!(r#"{{"account_id":{}}}"#, n - i)))
    },
    |n| format!(r#"{{"content":"x","schedule_type":"now","accounts":[{}]}}"#, list(n, |i| (i + 1).to_string())),
    |n| format!(r#"{{"accounts":[{}]}}"#, list(n, |_| "7".to_owned())),
    |n| format!(r#"{{"accounts":[{}]}}"#, list(n, |_| "\"x\"".to_owned())),
    |n| format!(r#"{{"media":[{}]}}"#, list(n, |i| (i + 1).to_string())),
    |n| {
        let media = list(n.min(100), |i| (i + 1).to_string());
        let one = |i: usize| format!(r#"{{"account_id":{},"media":[{media}]}}"#, i + 1);
        format!(r#"{{"content":"x","overrides":[{}]}}"#, list(n / 100, one))
    },
    |n| format!(r#"{{"content":"{}","schedule_type":"now","accounts":[1,2,3]}}"#, "é".repeat(n)),
    |n| format!(r#"{{"content":"{}"}}"#, "e\u{301}".repeat(n)),
    |n| format!("{{{}}}", list(n, |i| format!(r#""k{i}":{{}}"#))),
    |n| format!("{{{}}}", list(n, |_| r#""overrides":[{},{}]"#.to_owned())),
    |n| {
        format!(
            r#"{{"accounts":[1],"overrides":[{{"account_id":1,"options":{}1{}}}]}}"#,
            open(n),
            "}".repeat(n.min(100))
        )
    },
    |n| {
        let options = list(n, |i| format!(r#""o{i}":"x""#));
        format!(r#"{{"accounts":[1],"overrides":[{{"account_id":1,"options":{{{options}}}}}]}}"#)
    },
    |n| format!(r#"{{"content":"x","thread":[{}]}}"#, list(n % 30, |_| "{}".to_owned())),
    |n| {
        let (accounts, parts) = (list(n % 1_001, |i| (i + 1).to_string()), thread(n % 25));
        format!(
            r#"{{"content":"x","schedule_type":"now","accounts":[{accounts}],"thread":{parts},"first_comment":{{"content":"x"}}}}"#
        )
    },
    |n| {
        let comment = r#""first_comment":{"content":"x"}"#;
        let one = |i: usize| format!(r#"{{"account_id":{},"thread":{},{comment}}}"#, i + 1, thread(24));
        let accounts = list(n / 100, |i| (i + 1).to_string());
        let overrides = list(n / 100, one);
        format!(r#"{{"content":"x","schedule_type":"now","accounts":[{accounts}],"overrides":[{overrides}]}}"#)
    },
];

fn thread(n: usize) -> String {
    format!("[{}]", list(n, |_| r#"{"content":"x","media":[]}"#.to_owned()))
}

fn list(n: usize, element: impl Fn(usize) -> String) -> String {
    (0..n).map(element).collect::<Vec<_>>().join(",")
}

fn open(n: usize) -> String {
    r#"{"a":"#.repeat(n.min(100))
}

fn values(value: &Value) -> u64 {
    match value {
        Value::Array(list) => 1 + list.iter().map(values).sum::<u64>(),
        Value::Object(object) => 1 + object.values().map(values).sum::<u64>(),
        _ => 1,
    }
}

fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(1_781_000_000, 0).unwrap()
}

fn account(id: i64) -> AccountSummary {
    let platform = Platform::ALL[usize::try_from(id).unwrap() % Platform::ALL.len()];
    AccountSummary {
        id,
        platform,
        name: "Bakery".to_owned(),
        status: AccountStatus::Active,
        limits: None,
        granted_scopes: None,
        signature: (id % 2 == 0).then(|| format!("— {id}")),
    }
}

/// Parses and checks a body as `POST /posts` does; returns the problems.
fn run(body: &Value, lookup: &LookupContext) -> Problems {
    let context = ReadContext::new("Europe/Berlin", now());
    let parsed = Parsed::<CreatePostRequest>::read(Problems::default(), body.as_object().unwrap(), context);
    let (post, problems) = (Post::draft(1, now()), parsed.problems());
    let change = PostChange::from(parsed.partial().unwrap());
    let mut desired = DesiredPost::from_change(&post, &[], &change);
    desired.sign(&lookup.accounts);
    check(&post, &desired, &change, lookup, &problems);
    problems
}

/// Returns the records of the accounts, without media.
fn lookup_of(accounts: impl Iterator<Item = i64>) -> LookupContext {
    LookupContext {
        accounts: accounts.map(|id| (id, account(id))).collect(),
        assets: HashMap::new(),
        video_limits: HashMap::new(),
        now: now(),
        private_url: None,
    }
}

/// A recurring post has up to 20 texts, and overrides of up to 1 MiB for each of them.
#[test]
fn texts_of_overrides_are_measured_once_for_several_posts() {
    let accounts: Vec<i64> = (1..=10).collect();
    let overrides: Vec<Value> = accounts.iter().map(|id| json!({ "account_id": id, "content": "own" })).collect();
    let body = json!({ "content": "x", "schedule_type": "now", "accounts": accounts, "overrides": overrides });
    let context = ReadContext::new("Europe/Berlin", now());
    let parsed = Parsed::<CreatePostRequest>::read(Problems::default(), body.as_object().unwrap(), context);
    let (post, change) = (Post::draft(1, now()), PostChange::from(parsed.partial().unwrap()));
    let desired = DesiredPost::from_change(&post, &[], &change);
    let lookup = lookup_of(1..=10);
    let mut measures = TextLengthCache::default();
    let count = |measures: &mut TextLengthCache| {
        steps::count_steps(|| check_with(&post, &desired, &change, &lookup, &Problems::default(), measures)).1
    };
    let first = count(&mut measures);
    measures.forget_shared();
    assert_eq!(count(&mut measures), first - 10);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn validation_steps_are_linear_in_body_size(shape in 0..SHAPES.len(), n in 0_usize..40_000, connected: bool) {
        let text = SHAPES[shape](n);
        // The parser rejects bodies with more values.
        let Ok(body) = json::parse(text.as_bytes()) else { return Ok(()) };
        prop_assert!(values(&body) <= MAX_VALUES as u64);
        let lookup = lookup_of((1..=MAX_ACCOUNTS as i64).filter(|_| connected));
        let (problems, steps) = steps::count_steps(|| run(&body, &lookup));
        prop_assert!(
            steps <= MAX_STEPS_PER_VALUE * values(&body) + FIXED_STEPS,
            "{steps} steps for {} values",
            values(&body)
        );
        if let Err(error) = problems.into_result() {
            let count = error.fields().values().map(Vec::len).sum::<usize>();
            prop_assert!(count <= MAX_PROBLEMS, "{count}");
        }
    }
}
