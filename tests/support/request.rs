//! Requests to a [`TestApp`], and its responses.

#![allow(dead_code, reason = "each test uses only a part")]

use http::{HeaderMap, Method};
use serde_json::Value;

use super::app::TestApp;

/// A request builder.
pub struct Request<'a> {
    app: &'a TestApp,
    method: Method,
    url: String,
    headers: HeaderMap,
    body: Option<Vec<u8>>,
}

impl<'a> Request<'a> {
    /// Begins a request to an absolute URL.
    pub fn new(app: &'a TestApp, method: &str, url: &str) -> Self {
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        Self { app, method, url: url.to_owned(), headers: HeaderMap::new(), body: None }
    }

    pub fn to(self, url: String) -> Self {
        Self { url, ..self }
    }

    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.insert(name, value.parse().expect("a header's value"));
        self
    }

    /// Appends another value of a header.
    pub fn append_header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.append(name, value.parse().expect("a header's value"));
        self
    }

    pub fn key(self, key: &str) -> Self {
        self.header("authorization", &format!("Bearer {key}"))
    }

    pub fn idempotency_key(self, key: &str) -> Self {
        self.header("idempotency-key", key)
    }

    pub fn without(mut self, name: &'static str) -> Self {
        self.headers.remove(name);
        self
    }

    pub fn json(self, body: &Value) -> Self {
        self.raw(body.to_string().into_bytes())
    }

    /// Sets a multipart body with a file and text fields. Each request has its own boundary.
    pub fn form(self, file: Option<(&str, &[u8])>, texts: &[(&str, &str)]) -> Self {
        let boundary = format!("boundary-{:016x}", crier_base::random::u64());
        let mut body = Vec::new();
        for (name, text) in texts {
            let head = format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{text}\r\n");
            body.extend_from_slice(head.as_bytes());
        }
        if let Some((name, bytes)) = file {
            let head = format!(
                "--{boundary}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\nContent-Type: application/octet-stream\r\n\r\n"
            );
            body.extend_from_slice(head.as_bytes());
            body.extend_from_slice(bytes);
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
        let mut request = self.header("content-type", &format!("multipart/form-data; boundary={boundary}"));
        request.body = Some(body);
        request
    }

    /// Sets a body with the content type JSON, which need not be valid JSON.
    pub fn raw(self, body: impl Into<Vec<u8>>) -> Self {
        let mut request = self.header("content-type", "application/json");
        request.body = Some(body.into());
        request
    }

    pub async fn send(self) -> Reply {
        let mut request = self.app.http.request(self.method, &self.url).headers(self.headers);
        if let Some(body) = self.body {
            request = request.body(body);
        }
        let response = self.app.http.send(request).await.expect("a response");
        Reply { status: response.status.as_u16(), headers: response.headers, body: response.body.to_vec() }
    }
}

/// A response.
#[derive(Debug, Clone)]
pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|v| v.to_str().ok())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {}", self.text()))
    }

    /// Returns the body of a response with this status.
    #[track_caller]
    pub fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        self.check_headers();
        let has_location = self.header("location").is_some_and(|path| path.starts_with('/'));
        assert!(has_location || !matches!(status, 201 | 202), "a {status} response needs a `Location`");
        if self.body.is_empty() { Value::Null } else { self.json() }
    }

    /// Returns `data` of a response with this status.
    #[track_caller]
    pub fn data(&self, status: u16) -> Value {
        self.expect(status)["data"].take()
    }

    /// Returns the error of a rejected request, after checks of the whole envelope.
    #[track_caller]
    pub fn expect_error(&self, status: u16, code: &str) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        self.check_headers();
        let error = self.json()["error"].take();
        assert_eq!(error["code"], code, "{error}");
        assert!(error["message"].as_str().is_some_and(|m| m.len() > 10), "{error}");
        assert_eq!(error["request_id"].as_str(), self.header("x-request-id"), "{error}");
        assert_eq!(error.get("fields").is_some(), code == "validation_failed", "{error}");
        assert!(error["type"].as_str().is_some_and(|t| t.ends_with("_error")), "{error}");
        error
    }

    /// Returns the paths of the invalid fields of a 422 response.
    #[track_caller]
    pub fn invalid_fields(&self) -> Vec<String> {
        let error = self.expect_error(422, "validation_failed");
        error["fields"].as_object().expect("fields").keys().cloned().collect()
    }

    /// Asserts only the status, and not the API headers.
    #[track_caller]
    pub fn assert_status(&self, status: u16) {
        assert_eq!(self.status, status, "{}", self.text());
    }

    /// Asserts an HTML 404 page.
    #[track_caller]
    pub fn not_found(&self) {
        self.assert_status(404);
        assert!(self.header("content-type").is_some_and(|kind| kind.starts_with("text/html")), "{self:?}");
    }

    pub fn replayed(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    #[track_caller]
    fn check_headers(&self) {
        for name in ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"] {
            let value = self.header(name).unwrap_or_else(|| panic!("no {name} on a {}", self.status));
            assert!(value.parse::<u64>().is_ok(), "{name}: {value}");
        }
        assert!(self.header("x-request-id").is_some_and(|id| id.starts_with("req_")), "no request id");
    }
}

/// Asserts that a record has these fields with these values. It may have others.
#[track_caller]
pub fn assert_fields(record: &Value, expected: Value) {
    for (name, value) in expected.as_object().expect("an object") {
        assert_eq!(&record[name], value, "{name}: {record}");
    }
}
