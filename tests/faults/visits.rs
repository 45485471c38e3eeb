//! Views and clicks of link-in-bio pages are counted in memory. An orderly stop loses none, with any number of
//! replicas. `kill -9` loses those of the last seconds, and counts none twice.

use serde_json::json;

use crate::support::client::{Client, id, until};
use crate::support::process::{Installation, on_both_forms};
use crate::support::servers::free_port;

on_both_forms!(visit_counts_are_flushed_at_shutdown, a_crash_loses_few_visits_and_doubles_none);

const VISITS: i64 = 40;

/// Creates a page with a link; returns the paths of the page and the link.
async fn create_page(crier: &Client) -> [String; 2] {
    let brand = crier.brand().await;
    let links = json!([{ "title": "Menu", "url": "https://example.com/" }]);
    let new = json!({ "title": "T", "slug": "visited", "links": links });
    let page = crier.write(&format!("/brands/{brand}/link-in-bio"), new).await;
    let link = id(&page["links"][0]);
    ["/@visited".to_owned(), format!("/@visited/l/{link}")]
}

/// Requests the page and its link `times` times each; does not follow the link's redirect.
async fn visit_page(crier: &Client, url: &str, paths: &[String; 2], times: i64) {
    for _ in 0..times {
        for (path, status) in paths.iter().zip([200, 302]) {
            let response = crier.http.send(crier.http.request(reqwest::Method::GET, &format!("{url}{path}"))).await;
            assert_eq!(response.expect("a response").status.as_u16(), status, "{path}");
        }
    }
}

const VIEWS_AND_CLICKS: &str = "SELECT p.views * 1000 + l.clicks FROM bio_pages p JOIN bio_links l ON l.page_id = p.id";

fn expected_count(times: i64) -> i64 {
    times * 1_001
}

async fn visit_counts_are_flushed_at_shutdown(mut crier: Installation) {
    let paths = create_page(&crier).await;
    let api = crier.of("api");
    let mut all = vec![(api.clone(), crier.url.clone())];
    if crier.is_split() {
        let (second, port) = (format!("{api}#2"), free_port());
        crier.start_one_with(&second, &[("CRIER_HTTP_ADDR", &format!("127.0.0.1:{port}"))]).await;
        all.push((second, format!("http://127.0.0.1:{port}")));
    }
    let visits = all.iter().map(|(_, url)| visit_page(&crier, url, &paths, VISITS));
    futures::future::join_all(visits).await;
    for (name, _) in &all {
        assert_eq!(crier.terminate(name).await, Some(0), "{}", crier.log(name));
    }
    assert_eq!(crier.number(VIEWS_AND_CLICKS).await, expected_count(VISITS * i64::try_from(all.len()).unwrap()));
}

async fn a_crash_loses_few_visits_and_doubles_none(mut crier: Installation) {
    let paths = create_page(&crier).await;
    visit_page(&crier, &crier.url, &paths, VISITS).await;
    // Different flushes may write the last view and the last click.
    let written = || async { (crier.number(VIEWS_AND_CLICKS).await == expected_count(VISITS)).then_some(()) };
    until("the views and clicks are written", written).await;
    visit_page(&crier, &crier.url, &paths, VISITS).await;
    let api = crier.of("api");
    crier.kill(&api);
    crier.start_all().await;
    let counted = crier.number(VIEWS_AND_CLICKS).await;
    assert!((expected_count(VISITS)..=expected_count(2 * VISITS)).contains(&counted), "{counted}");
    visit_page(&crier, &crier.url, &paths, VISITS).await;
    assert_eq!(crier.terminate(&api).await, Some(0));
    assert_eq!(crier.number(VIEWS_AND_CLICKS).await, counted + expected_count(VISITS));
}
