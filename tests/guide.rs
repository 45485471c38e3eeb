//! Checks `docs/webhooks.md`: events, retries and signature match the program, and the receivers are the files that
//! `scripts/webhook-examples` runs.

use std::fmt::Write as _;

use chrono::{DateTime, TimeDelta};
use crier_domain::event::EventName;
use crier_domain::webhook_signature::sign;
use crier_worker::webhooks::schedule::{MAX_ATTEMPTS, next_attempt};

use crate::support::page;

const PAGE: &str = "docs/webhooks.md";
const RECEIVERS: &str = "docs/examples/webhooks";

#[test]
fn the_guide_matches_the_program() {
    let mut parts =
        vec![("request", request()), ("events", events()), ("schedule", schedule()), ("signature", signature())];
    for (file, language) in LANGUAGES {
        let source = page::read(&format!("{RECEIVERS}/{file}"));
        parts.push((file, format!("```{language}\n{source}```\n")));
    }
    page::assert_sections(PAGE, "guide", &parts);
}

/// The receivers, with the names of their languages in Markdown.
const LANGUAGES: [(&str, &str); 5] = [
    ("receiver.py", "python"),
    ("receiver.mjs", "js"),
    ("receiver.php", "php"),
    ("receiver.rb", "ruby"),
    ("receiver.go", "go"),
];

#[test]
fn every_receiver_is_documented_and_tested() {
    let script = page::read("scripts/webhook-examples");
    let files = std::fs::read_dir(page::path(RECEIVERS)).expect("receivers").flatten();
    let mut names: Vec<_> = files.map(|file| file.file_name().into_string().expect("text")).collect();
    names.sort();
    let mut shown = LANGUAGES.map(|(file, _)| file);
    shown.sort_unstable();
    assert_eq!(names, shown);
    for name in names {
        assert!(script.contains(&format!("|{name}|")), "scripts/webhook-examples does not run {name}");
    }
}

fn events() -> String {
    let mut text = String::new();
    for event in EventName::ALL {
        let sample = serde_json::to_string_pretty(&event.sample()).expect("JSON");
        let _ = write!(text, "`{event}`: {}\n\n```json\n{sample}\n```\n\n", event.description());
    }
    text
}

fn schedule() -> String {
    let mut text =
        "| Attempt | After the previous attempt | After the first attempt |\n|---|---|---|\n| 1 | immediately | |\n"
            .to_owned();
    let (now, mut passed) = (DateTime::UNIX_EPOCH, TimeDelta::zero());
    for attempts in 1..MAX_ATTEMPTS {
        // The middle of the jitter's range.
        let next = next_attempt(attempts, MAX_ATTEMPTS, None, now, 0.5).expect("another attempt");
        passed += next - now;
        let _ = writeln!(text, "| {} | {} | {} |", attempts + 1, in_words(next - now), in_words(passed));
    }
    text
}

fn in_words(time: TimeDelta) -> String {
    let (hours, minutes, seconds) = (time.num_hours(), time.num_minutes() % 60, time.num_seconds() % 60);
    let units = [(hours, "h"), (minutes, "min"), (seconds, "s")];
    // Seconds are shown only for times of less than a minute.
    let units = units.iter().filter(|(number, unit)| *number > 0 && (*unit != "s" || hours + minutes == 0));
    units.map(|(number, unit)| format!("{number} {unit}")).collect::<Vec<_>>().join(" ")
}

// A delivery with a known signature, for testing receivers in languages that the page does not cover.
const SECRET: &str = "whsec_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMN";
const TIME: i64 = 1_700_000_000;
const V1: &str = "11fc7ed425ca79b127a95413f68ee1582fd66f6a45aa2322cee11415ad0423b5";

fn known_body() -> String {
    EventName::BrandCreated.sample().to_string()
}

#[test]
fn the_documented_signature_does_not_change() {
    assert_eq!(sign(&SECRET.into(), TIME, known_body().as_bytes()), format!("t={TIME},v1={V1}"));
}

fn request() -> String {
    let headers = format!(
        "X-Webhook-Event: {}\nX-Webhook-Delivery-Id: 3\nX-Webhook-Event-Id: 2\nX-Webhook-Timestamp: {TIME}\nX-Webhook-Signature: t={TIME},v1={V1}",
        EventName::BrandCreated
    );
    let about = "Host: example.com\nContent-Type: application/json\nUser-Agent: Crier-Webhook/1.0";
    format!("```http\nPOST /hooks/crier HTTP/1.1\n{about}\n{headers}\n\n{}\n```\n", known_body())
}

fn signature() -> String {
    let body = known_body();
    format!(
        "```console\n$ printf '%s' '{TIME}.{body}' | openssl dgst -sha256 -hmac {SECRET}\nSHA2-256(stdin)= {V1}\n```\n\nso the header is `X-Webhook-Signature: t={TIME},v1={V1}`.\n"
    )
}
