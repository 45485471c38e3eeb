//! Calls an endpoint of the API from a page, in this process. Checks, validation, transaction, events and
//! `Idempotency-Key` are the same as for a client. The caller is the user of the session. The call does not count
//! against the rate limit, because the request of the page has been counted.

use std::collections::HashMap;
use std::sync::Arc;

use crier_store::keys::Authenticated;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Uri};
use salvo::http::ReqBody;
use salvo::{Request, Response};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::visit::Visit;
use crate::error::{ApiError, Result};
use crate::PREFIX;
use crate::response::{ApiResponse};
use crate::runner::Runner;

/// The caller of a request that a page makes in this process.
#[derive(Clone, Debug)]
pub struct InProcessCaller(pub Arc<Authenticated>);

/// The endpoints, by `operationId`.
#[derive(Default)]
pub struct Endpoints(HashMap<&'static str, Runner>);

impl Endpoints {
    pub fn new(runners: impl IntoIterator<Item = Runner>) -> Self {
        Self(runners.into_iter().map(|runner| (runner.endpoint().id, runner)).collect())
    }
}

/// A page of a list.
#[derive(Debug, Deserialize)]
pub struct Listed<T> {
    pub data: Vec<T>,
    pub meta: Meta,
}

#[derive(Debug, Default, Deserialize)]
pub struct Meta {
    pub total: i64,
}

#[derive(Deserialize)]
struct One<T> {
    data: T,
}

/// A builder for a call. The IDs in its path are those in the path of the page, unless they are set.
pub struct ApiCall<'v> {
    visit: &'v Visit,
    operation: &'static str,
    ids: Vec<(&'static str, i64)>,
    query: Vec<(String, String)>,
}

impl<'v> ApiCall<'v> {
    pub fn new(visit: &'v Visit, operation: &'static str) -> Self {
        Self { visit, operation, ids: Vec::new(), query: Vec::new() }
    }

    pub fn id(mut self, name: &'static str, id: i64) -> Self {
        self.ids.push((name, id));
        self
    }

    pub fn query(mut self, name: &str, value: impl ToString) -> Self {
        self.query.push((name.to_owned(), value.to_string()));
        self
    }

    /// Adds the query parameters that are not empty.
    pub fn queries<'a>(self, pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let filled = pairs.into_iter().filter(|(_, value)| !value.is_empty());
        filled.fold(self, |call, (name, value)| call.query(name, value))
    }

    /// Gets one record, or a list without pages.
    pub async fn get<T: DeserializeOwned>(self) -> Result<T> {
        one(&self.run(Content::None, "").await?)
    }

    /// Gets a page of a list.
    pub async fn list<T: DeserializeOwned>(self) -> Result<Listed<T>> {
        parse(&self.run(Content::None, "").await?.body)
    }

    /// Sends a body to an endpoint that changes nothing.
    pub async fn check<T: DeserializeOwned>(self, body: &Value) -> Result<T> {
        one(&self.run(Content::Json(body), "").await?)
    }

    /// Sends a write. `part` is appended to the key of the form, and distinguishes several writes of one form.
    pub async fn write(self, part: &str, body: &Value) -> Result<ApiResponse> {
        self.run(Content::Json(body), part).await
    }

    /// Sends a write, and returns the record in the response.
    pub async fn write_for<T: DeserializeOwned>(self, part: &str, body: &Value) -> Result<T> {
        one(&self.write(part, body).await?)
    }

    /// Forwards the multipart form of the page.
    pub async fn upload(self, part: &str) -> Result<ApiResponse> {
        self.run(Content::Form, part).await
    }

    /// Gets a file, and returns the response that contains it.
    pub async fn download(self) -> Result<Response> {
        let mut res = Response::new();
        let operation = self.operation;
        match self.run_into(Content::None, "", &mut res).await? {
            None => Ok(res),
            Some(_) => Err(ApiError::bug(format!("{operation} responds with no file"))),
        }
    }

    async fn run(self, content: Content<'_>, part: &str) -> Result<ApiResponse> {
        let operation = self.operation;
        let response = self.run_into(content, part, &mut Response::new()).await?;
        response.ok_or_else(|| ApiError::bug(format!("{operation} responds with a file")))
    }

    /// Returns the response. `None` if it is a file, which was written to `res`.
    async fn run_into(self, content: Content<'_>, part: &str, res: &mut Response) -> Result<Option<ApiResponse>> {
        let runner = self.visit.endpoints.0.get(self.operation);
        let runner = runner.ok_or_else(|| ApiError::bug(format!("no endpoint is called {}", self.operation)))?;
        let mut req = Request::new();
        *req.method_mut() = runner.endpoint().method.clone();
        let path = self.path(runner.endpoint().path, &mut req)?;
        let uri: std::result::Result<Uri, _> = format!("{PREFIX}{path}?{}", self.query_string()).parse();
        req.set_uri(uri.map_err(|error| ApiError::bug(format!("{path}: {error}")))?);
        let key = format!("{}{part}", self.visit.form.get("_key"));
        if let Ok(key) = HeaderValue::from_str(&key) {
            req.headers_mut().insert("idempotency-key", key);
        }
        match content {
            Content::None => {}
            Content::Json(body) => {
                req.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                req.replace_body(ReqBody::from(body.to_string()));
            }
            Content::Form => {
                let (headers, body) = self.visit.take_multipart();
                req.headers_mut().extend(headers);
                req.replace_body(body);
            }
        }
        req.extensions_mut().insert(InProcessCaller(self.visit.authenticated.clone()));
        Box::pin(runner.run(&mut req, res, &self.visit.request_id)).await
    }

    fn query_string(&self) -> String {
        url::form_urlencoded::Serializer::new(String::new()).extend_pairs(&self.query).finish()
    }

    /// Returns the path with its IDs, and sets them as parameters of the request.
    fn path(&self, template: &str, req: &mut Request) -> Result<String> {
        let mut path = String::new();
        for segment in template.trim_start_matches('/').split('/') {
            path.push('/');
            let Some(name) = segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) else {
                path.push_str(segment);
                continue;
            };
            let own = self.ids.iter().find(|(n, _)| *n == name).map(|(_, id)| *id);
            let id = own.or_else(|| self.visit.id(name)).ok_or_else(|| ApiError::bug(format!("no id for {name}")))?;
            req.params_mut().insert(name, id.to_string());
            path.push_str(&id.to_string());
        }
        Ok(path)
    }
}

enum Content<'a> {
    None,
    Json(&'a Value),
    Form,
}

fn one<T: DeserializeOwned>(response: &ApiResponse) -> Result<T> {
    parse::<One<T>>(&response.body).map(|one| one.data)
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T> {
    serde_json::from_slice(body).map_err(|error| ApiError::bug(format!("a page cannot read a response: {error}")))
}
