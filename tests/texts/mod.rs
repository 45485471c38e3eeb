//! The texts that people see. `visible.txt` lists them by surface, so that a change of a text is read as such, and `words.rs`
//! has the words that Crier does not use in them.
//!
//! A paragraph of the list has the texts of a file in their order, separated by ` · `. A text that occurs again is not
//! repeated, and lines are long, so that a person can read the whole list.
//!
//! The list is generated from the sources: `CRIER_TEST_UPDATE=1 ./scripts/test --test it -- texts`.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod rust;
mod scripts;
mod templates;
mod words;

use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use crate::support::page;

const LIST: &str = "tests/texts/visible.txt";
const OPENAPI: &str =
    "api/endpoints/src/openapi/snapshots/crier_endpoints__openapi__tests__the_document_is_what_was_promised.snap";
const ALERTS: &str = "ops/prometheus/crier.rules.yml";

/// Each surface with its files and directories, without `tests` in them. A path belongs to the first surface that has it.
const SURFACES: [(&str, &[&str]); 6] = [
    ("Pages and emails", &["api/pages/src", "api/pages/templates", "common/mail/src", "worker/templates"]),
    ("Command line", &["src"]),
    ("Configuration", &["common/config/src"]),
    ("Reports", &["worker/reports/src"]),
    ("Metrics", &["common/telemetry/src/metrics"]),
    (
        "Errors, messages and logs",
        &[
            "api/endpoints/src",
            "api/oauth/src",
            "api/src",
            "common/base/src",
            "common/domain/src",
            "common/html/src",
            "common/http/src",
            "common/jobs/src",
            "common/jpeg/src",
            "common/media/src",
            "common/platforms/src",
            "common/queue/src",
            "common/runtime/src",
            "common/store/src",
            "common/telemetry/src",
            "scheduler/src",
            "worker/src",
        ],
    ),
];

/// The maximum number of characters in a line of the list.
const WIDTH: usize = 160;

/// A place and its texts.
struct Source {
    name: String,
    texts: Vec<String>,
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test's own switch")]
fn the_list_has_every_visible_text() {
    let list = list();
    if std::env::var("CRIER_TEST_UPDATE").is_ok() {
        std::fs::write(page::path(LIST), &list).unwrap();
        return;
    }
    let expected = page::read(LIST);
    let differs = list.lines().zip(expected.lines()).find(|(is, was)| is != was);
    assert!(list == expected, "{LIST} is stale ({differs:?}); run: CRIER_TEST_UPDATE=1 cargo test --test it texts");
}

#[test]
fn visible_texts_use_the_words_of_the_project() {
    let sources = surfaces().into_iter().flat_map(|(_, sources)| sources).chain(documents());
    let found: Vec<String> = sources.flat_map(|source| words::misused(&source.name, &source.texts)).collect();
    assert!(found.is_empty(), "{} texts:\n{}", found.len(), found.join("\n"));
}

/// A summary is an imperative and a resource; that of a webhook is the subject and its change. A description is
/// sentences, or noun phrases that end as sentences do.
#[test]
fn the_api_reference_keeps_to_its_patterns() {
    let document = openapi();
    let mut problems = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let Some(summary) = operation["summary"].as_str() else {
                problems.push(format!("{method} {path} has no summary"));
                continue;
            };
            let verb = summary.split(' ').next().unwrap_or_default();
            if !words::IMPERATIVES.contains(&verb) || summary.contains(['.', ':', ';']) || !summary.contains(' ') {
                problems.push(format!("summary of {method} {path}: {summary}"));
            }
        }
    }
    for (event, methods) in document["webhooks"].as_object().unwrap() {
        let summary = methods["post"]["summary"].as_str().unwrap_or_default();
        if summary.to_lowercase() != event.replace(['.', '_'], " ") || !summary.starts_with(char::is_uppercase) {
            problems.push(format!("summary of {event}: {summary}"));
        }
    }
    let mut descriptions = Vec::new();
    described(&document, &mut |key, text| {
        if key == "description" {
            descriptions.push(text.to_owned());
        }
    });
    let is_sentence = |text: &String| {
        // An error's description is the list of its codes.
        if text.split(", ").all(|code| code.starts_with('`') && code.ends_with('`')) {
            return true;
        }
        let text = text.trim_end_matches(['`', ')', '"', '*']);
        let begins = text.trim_start_matches(['`', '*', '"', '(']).chars().next();
        text.ends_with(['.', '?', ':']) && (begins.is_some_and(|c| !c.is_lowercase()) || text.starts_with('`'))
    };
    problems
        .extend(descriptions.into_iter().filter(|text| !is_sentence(text)).map(|text| format!("description: {text}")));
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
}

fn list() -> String {
    let mut seen = HashSet::new();
    let mut list = String::new();
    for (surface, sources) in surfaces() {
        writeln!(list, "# {surface}\n").unwrap();
        for mut source in sources {
            source.texts.retain(|text| seen.insert(text.clone()));
            if !source.texts.is_empty() {
                list += &wrap(&format!("{}: {}", source.name, source.texts.join(" · ")));
            }
        }
        list.push('\n');
    }
    list
}

/// Breaks a paragraph into lines. All but the first are indented.
fn wrap(paragraph: &str) -> String {
    let mut lines = String::new();
    let mut width = 0;
    for word in paragraph.split_ascii_whitespace() {
        let length = word.chars().count();
        if width > 0 && width + 1 + length > WIDTH {
            lines.push_str("\n ");
            width = 1;
        }
        if width > 0 {
            lines.push(' ');
            width += 1;
        }
        lines.push_str(word);
        width += length;
    }
    lines + "\n"
}

#[test]
fn paragraphs_are_wrapped_at_words() {
    let word = "x".repeat(WIDTH / 2);
    assert_eq!(wrap(&format!("{word} · {word}")), format!("{word} ·\n  {word}\n"));
    assert_eq!(wrap("a\nb · c"), "a b · c\n");
}

fn surfaces() -> Vec<(&'static str, Vec<Source>)> {
    let mut seen = HashSet::new();
    let mut reference = Vec::new();
    described(&openapi(), &mut |_, text| reference.push(text.split_whitespace().collect::<Vec<_>>().join(" ")));
    let mut found = vec![("API reference", vec![Source { name: "openapi.json".to_owned(), texts: unique(reference) }])];
    for (surface, places) in SURFACES {
        let mut files: Vec<PathBuf> = places.iter().flat_map(|place| files_in(&page::path(place))).collect();
        files.retain(|file| seen.insert(file.clone()));
        found.push((
            surface,
            files.iter().map(|file| source_of(file)).filter(|source| !source.texts.is_empty()).collect(),
        ));
    }
    found.push(("Alerts", vec![Source { name: ALERTS.to_owned(), texts: alerts(&page::read(ALERTS)) }]));
    found
}

fn openapi() -> Value {
    let snapshot = page::read(OPENAPI);
    serde_json::from_str(snapshot.splitn(3, "---\n").last().unwrap()).expect(OPENAPI)
}

/// Calls `visit` with the key and the text of each summary and description.
fn described(value: &Value, visit: &mut dyn FnMut(&str, &str)) {
    match value {
        Value::Object(members) => {
            for (key, member) in members {
                match member.as_str() {
                    Some(text) if ["summary", "description"].contains(&key.as_str()) => visit(key, text),
                    // An example has others' texts.
                    _ if key.starts_with("example") => {}
                    _ => described(member, visit),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| described(item, visit)),
        _ => {}
    }
}

fn source_of(file: &Path) -> Source {
    let name = file.strip_prefix(page::path("")).unwrap().to_str().unwrap().to_owned();
    let source = page::read(&name);
    let texts = match file.extension().and_then(|extension| extension.to_str()) {
        Some("html" | "txt") => templates::texts(&source),
        Some("js") => scripts::texts(&source),
        _ => rust::texts(&source, name.starts_with("src/cli")),
    };
    Source { texts: unique(texts), name }
}

/// Returns the Rust sources, templates and scripts below a directory, in the order of their names, without tests.
fn files_in(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        let is_source = match path.extension().and_then(|extension| extension.to_str()) {
            Some("rs" | "html" | "js") => true,
            // Emails. Elsewhere, such files are data.
            Some("txt") => path.components().any(|part| part.as_os_str() == "templates"),
            _ => false,
        };
        return if is_source { vec![path.to_owned()] } else { Vec::new() };
    }
    let mut entries: Vec<PathBuf> = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    entries.retain(|entry| {
        !entry.file_stem().is_some_and(|name| name == "tests" || name == "snapshots" || name == "examples")
    });
    entries.iter().flat_map(|entry| files_in(entry)).collect()
}

fn alerts(rules: &str) -> Vec<String> {
    static ANNOTATION: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"(?m)^ +(?:summary|description): *(?:>-\n)?((?:.|\n {12,})*)").unwrap());
    let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    ANNOTATION.captures_iter(rules).map(|found| one_line(&found[1])).collect()
}

/// Returns the prose of the documents, a paragraph each; without code.
fn documents() -> Vec<Source> {
    static CODE: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"(?s)```.*?```|`[^`\n]*`|\]\([^)\n]*\)|<!--.*?-->").unwrap());
    let mut files = vec![page::path("README.md"), page::path("CHANGELOG.md"), page::path("CONTRIBUTING.md")];
    for directory in ["docs", "docs/decisions", "docs/examples/n8n", "migrations", "ops"] {
        let mut entries: Vec<PathBuf> =
            std::fs::read_dir(page::path(directory)).unwrap().map(|entry| entry.unwrap().path()).collect();
        entries.retain(|entry| entry.extension().is_some_and(|extension| extension == "md"));
        entries.sort();
        files.extend(entries);
    }
    let document = |file: PathBuf| {
        let name = file.strip_prefix(page::path("")).unwrap().to_str().unwrap().to_owned();
        let prose = CODE.replace_all(&page::read(&name), "``").into_owned();
        Source { texts: prose.lines().map(str::to_owned).collect(), name }
    };
    files.into_iter().map(document).collect()
}

fn unique(texts: Vec<String>) -> Vec<String> {
    let mut seen = HashSet::new();
    texts.into_iter().filter(|text| seen.insert(text.clone())).collect()
}
