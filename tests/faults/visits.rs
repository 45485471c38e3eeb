//! Visits of link-in-bio pages are counted in memory: an orderly stop loses no visit, on any number of replicas; `kill
//! -9` loses those of the last seconds and counts no visit twice.

use serde_json::json;

use crate::support::client::{Client, id, until};
use crate::support::process::Installation;
use crate::support::servers::free_port;

const VISITS: i64 = 40;

/// Creates a page with a link; returns the paths of page and link.
async fn page(crier: &Client) -> [String; 2] {
    let brand = crier.brand().await;
    let links = json!([{ "title": "Menu", "url": "https://example.com/" }]);
    let new = json!({ "title": "T", "slug": "visited", "links": links });
    let page = crier.write(&format!("/brands/{brand}/link-in-bio"), new).await;
    let link = id(&page["links"][0]);
    ["/@visited".to_owned(), format!("/@visited/l/{link}")]
}

/// Visits page and link `times` times each; the link's redirect is not followed.
async fn visit(crier: &Client, url: &str, paths: &[String; 2], times: i64) {
    for _ in 0..times {
        for (path, status) in paths.iter().zip([200, 302]) {
            let answer = crier.http.send(crier.http.request(reqwest::Method::GET, &format!("{url}{path}"))).await;
            assert_eq!(answer.expect("an answer").status.as_u16(), status, "{path}");
        }
    }
}

const COUNTED: &str = "SELECT p.views * 1000 + l.clicks FROM bio_pages p JOIN bio_links l ON l.page_id = p.id";

fn both(times: i64) -> i64 {
    times * 1_001
}

async fn assert_counts_are_flushed_at_shutdown(mut crier: Installation) {
    let paths = page(&crier).await;
    let api = crier.of("api");
    let mut all = vec![(api.clone(), crier.url.clone())];
    if crier.is_split() {
        let (second, port) = (format!("{api}#2"), free_port());
        crier.start_one_with(&second, &[("CRIER_HTTP_ADDR", &format!("127.0.0.1:{port}"))]).await;
        all.push((second, format!("http://127.0.0.1:{port}")));
    }
    let visits = all.iter().map(|(_, url)| visit(&crier, url, &paths, VISITS));
    futures::future::join_all(visits).await;
    for (name, _) in &all {
        assert_eq!(crier.terminate(name).await, Some(0), "{}", crier.log(name));
    }
    assert_eq!(crier.number(COUNTED).await, both(VISITS * i64::try_from(all.len()).unwrap()));
}

async fn assert_crash_loses_seconds_only(mut crier: Installation) {
    let paths = page(&crier).await;
    visit(&crier, &crier.url, &paths, VISITS).await;
    // The last view and the last click can be written by two flushes.
    let written = || async { (crier.number(COUNTED).await == both(VISITS)).then_some(()) };
    until("the views and clicks are written", written).await;
    visit(&crier, &crier.url, &paths, VISITS).await;
    let api = crier.of("api");
    crier.kill(&api);
    crier.start_all().await;
    let counted = crier.number(COUNTED).await;
    assert!((both(VISITS)..=both(2 * VISITS)).contains(&counted), "{counted}");
    visit(&crier, &crier.url, &paths, VISITS).await;
    assert_eq!(crier.terminate(&api).await, Some(0));
    assert_eq!(crier.number(COUNTED).await, counted + both(VISITS));
}

#[tokio::test]
async fn visit_counts_are_flushed_at_shutdown_embedded() {
    assert_counts_are_flushed_at_shutdown(Installation::embedded().await).await;
}

#[tokio::test]
async fn visit_counts_are_flushed_at_shutdown_split() {
    assert_counts_are_flushed_at_shutdown(Installation::split().await).await;
}

#[tokio::test]
async fn a_crash_loses_few_visits_and_doubles_none_embedded() {
    assert_crash_loses_seconds_only(Installation::embedded().await).await;
}

#[tokio::test]
async fn a_crash_loses_few_visits_and_doubles_none_split() {
    assert_crash_loses_seconds_only(Installation::split().await).await;
}
