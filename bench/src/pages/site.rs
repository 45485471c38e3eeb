//! The visited pages. Each has ten links and a bio, which is typical.

use http::{Method, Request, StatusCode};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use super::super::connection::Connection;
use super::super::service::Service;
use super::super::{BenchError, fail};

/// Path of the page that is visited most, also on a peer.
pub const PAGE: &str = "/@bench";
pub const SLUG: &str = "bench";

/// Creates a page and returns its path in the API.
pub async fn create(api: &mut Connection, service: &Service, slug: &str) -> Result<String, BenchError> {
    let links: Vec<Value> = (1..=10)
        .map(
            |n| json!({ "title": format!("Our shop number {n}"), "url": format!("https://shop{n}.example/?from=bio") }),
        )
        .collect();
    let body = json!({
        "title": "Acme Bakery", "slug": slug, "theme": "ocean", "links": links,
        "bio": "Bread and cakes from our own oven, every day from seven. Come in, or have it brought to you.",
    });
    let path = format!("/api/public/v1/brands/{}/link-in-bio", service.brand);
    let request = Request::builder().method(Method::POST).uri(&path).header("Idempotency-Key", slug);
    let (status, response) = api.send_json(request.header("Authorization", key(service)), &body).await?;
    let page: Value = serde_json::from_slice(&response).unwrap_or_default();
    match page["data"]["id"].as_i64() {
        Some(id) if status == StatusCode::CREATED => Ok(format!("{path}/{id}")),
        _ => fail(format!("a page was answered {status}: {}", String::from_utf8_lossy(&response))),
    }
}

/// Returns the number of views of the page in the database.
pub async fn views(api: &mut Connection, service: &Service, path: &str) -> Result<u64, BenchError> {
    let request = Request::builder().uri(path).header("Authorization", key(service));
    let (_, response) = api.send(request, Vec::new()).await?;
    let page: Value = serde_json::from_slice(&response).unwrap_or_default();
    page["data"]["views"].as_u64().map_or_else(|| fail("the page has no views"), Ok)
}

fn key(service: &Service) -> String {
    format!("Bearer {}", service.key.expose_secret())
}
