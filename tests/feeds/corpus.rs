//! Parses each document in `corpus/` and compares the result with a snapshot; also some documents too large to store.
//!
//! **To add a document:** add a file there, run `CRIER_TEST_UPDATE=1 ./scripts/test -q --test it -- feeds::corpus`, and
//! review the new snapshot.

use std::fs;
use std::path::Path;

use crier_worker::feeds::{self, Deadline, FeedError, Format, Parsed};
use insta::assert_json_snapshot;
use serde_json::json;
use url::Url;

fn parse(bytes: &[u8]) -> Result<Parsed, FeedError> {
    feeds::parse(bytes, None, &Url::parse("https://feeds.example/sub/feed.xml").unwrap(), &Deadline::none())
}

#[test]
fn every_document_matches_its_snapshot() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/feeds/corpus");
    let mut files: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 40, "{} documents", files.len());
    for file in files {
        let name = file.file_name().unwrap().to_str().unwrap().to_owned();
        match parse(&fs::read(&file).unwrap()) {
            Ok(parsed) => assert_json_snapshot!(name, parsed),
            Err(why) => assert_json_snapshot!(name, json!({ "rejected": why.to_string() })),
        }
    }
}

/// No document yields executable content, or content from a file or the network.
#[test]
fn parsed_articles_contain_no_active_content() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/feeds/corpus");
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let Ok(parsed) = parse(&fs::read(&path).unwrap()) else { continue };
        for article in &parsed.articles {
            let summary = article.summary.as_deref().unwrap_or_default();
            for word in ["<script", "<img", "<svg", "<iframe", "<style", "onerror=", "javascript:", "root:", "\0"] {
                assert!(!summary.contains(word), "{}: {word} in {summary}", path.display());
            }
            for url in [&article.url, &article.image_url].into_iter().flatten() {
                assert!(url.starts_with("http://") || url.starts_with("https://"), "{url}");
            }
            assert!(!article.guid.is_empty() && article.guid.len() <= 2_048, "{article:?}");
        }
    }
}

/// Parsing takes linear time: 100,000 articles, elements nested 100,000 deep, entities, tags with thousands of
/// attributes, HTML that expands into huge trees.
#[test]
fn hostile_documents_are_parsed_in_linear_time() {
    let item = |n: usize| format!("<item><guid>{n}</guid><title>Title {n}</title></item>");
    let many: String = (0..100_000).map(item).collect();
    let deep = "<media:group>".repeat(100_000);
    let attributes: String = (0..50_000).map(|n| format!(" a{n}=''")).collect();
    let sources = format!("<content{}/>", " src=''".repeat(2_300)).repeat(40);
    let namespaces: String = (0..100_000).map(|n| format!("<x xmlns:n{n}='u{n}'>")).collect();
    let bold: String = (0..3_000).map(|n| format!("&lt;b a={n}&gt;")).collect();
    let tree =
        format!("<item><description>&lt;p&gt;{bold}{}</description></item>", "&lt;p&gt;x".repeat(2_000)).repeat(10);
    let feed = |inside: &str| format!("<rss version='2.0'><channel><title>T</title>{inside}</channel></rss>");
    let parsed = parse(feed(&many).as_bytes()).unwrap();
    assert_eq!((parsed.format, parsed.articles.len(), parsed.articles[0].guid.as_str()), (Format::Rss, 400, "0"));
    assert!(
        matches!(parse(feed(&format!("<item>{deep}")).as_bytes()), Err(FeedError::Broken(why)) if why.contains("deep"))
    );
    assert!(matches!(parse(feed(&namespaces).as_bytes()), Err(FeedError::Broken(_))));
    assert!(matches!(parse(feed(&format!("<item{attributes}/>")).as_bytes()), Err(FeedError::Broken(_))));
    assert!(matches!(parse(feed(&sources).as_bytes()), Err(FeedError::Broken(why)) if why.contains("attributes")));
    assert!(parse(feed(&tree).as_bytes()).unwrap().articles.len() == 10);
    assert!(parse(feed("&a;".repeat(200_000).as_str()).as_bytes()).is_ok());
    for json in ["[".repeat(200_000), format!("{{\"a\":{}", "{\"a\":".repeat(100_000))] {
        assert!(parse(json.as_bytes()).is_err());
    }
    for bytes in
        [&b"<"[..], b"<!", b"<![CDATA[", b"<!--", b"&", b"{", b"\xff\xfe", b"\xfe\xff\xd8", b"<rss", b"<rss/>", b""]
    {
        assert!(parse(bytes).is_err() || parse(bytes).unwrap().articles.is_empty());
    }
}

proptest::proptest! {
    /// Truncated, repeated and corrupted documents.
    #[test]
    fn corrupted_documents_never_panic(
        which in proptest::prelude::any::<proptest::sample::Index>(),
        edits in proptest::collection::vec((0.0_f64..1.0, proptest::collection::vec(proptest::num::u8::ANY, 0..4)), 0..4),
        cut in 0.0_f64..1.0,
    ) {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/feeds/corpus");
        let mut files: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        let mut bytes = fs::read(which.get(&files)).unwrap();
        for (place, insert) in edits {
            let at = (bytes.len() as f64 * place) as usize;
            bytes.splice(at..(at + insert.len()).min(bytes.len()), insert);
        }
        bytes.truncate((bytes.len() as f64 * (1.0 - cut * cut)) as usize);
        let _ = parse(&bytes);
    }
}
