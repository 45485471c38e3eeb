//! Calls of the API's endpoints from a page, as the user of the session. The call does not count against the rate limit,
//! because the request of the page has been counted.

use std::collections::HashMap;

use crier_endpoints::admission;
use crier_endpoints::endpoint::Endpoint;
use crier_endpoints::error::{ApiError, ErrorCode, Result};
use crier_endpoints::fields::{Problems, ReadContext};
use crier_endpoints::request::{Parsed, Request};
use crier_endpoints::response::{File, Output, Timestamp};
use crier_endpoints::runner::call::{InProcessCall, WriteKey, Written};
use crier_endpoints::runner::send_file;
use crier_store::keys::Authenticated;
use salvo::{Request as HttpRequest, Response};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::form::Form;
use super::visit::Visit;

/// A builder for a call. The IDs in its path are those in the path of the page, unless they are set.
pub struct PageCall<'v> {
    visit: &'v Visit,
    ids: Vec<(&'static str, i64)>,
    /// Distinguishes several writes of one form.
    part: &'v str,
    /// The version of the post or the queue that the user saw.
    version: Option<Timestamp>,
    /// Those of several posts, by ID.
    versions: HashMap<i64, Timestamp>,
}

impl Visit {
    /// Returns a builder for a call of an endpoint.
    pub fn call(&self) -> PageCall<'_> {
        PageCall { visit: self, ids: Vec::new(), part: "", version: None, versions: HashMap::new() }
    }

    /// Reads a request from fields, such as those of the form. The endpoint reports its problems.
    pub fn parse<Q: Request>(&self, fields: &Map<String, Value>) -> Parsed<Q> {
        let zone = self.zone();
        Parsed::read(Problems::default(), fields, ReadContext::new(zone.name(), self.now))
    }
}

impl<'v> PageCall<'v> {
    pub fn id(mut self, name: &'static str, id: i64) -> Self {
        self.ids.push((name, id));
        self
    }

    /// Sets what distinguishes this write from others of the form.
    pub fn part(self, part: &'v str) -> Self {
        Self { part, ..self }
    }

    /// Rejects a write if the post or the queue no longer has this version, because somebody has changed it meanwhile.
    pub fn version(self, version: Timestamp) -> Self {
        Self { version: Some(version), ..self }
    }

    /// Rejects the change of each of these posts that no longer has its version.
    pub fn versions(self, versions: HashMap<i64, Timestamp>) -> Self {
        Self { versions, ..self }
    }

    /// Calls an endpoint that changes nothing.
    pub async fn read<Q: Request, R: Output>(
        self,
        endpoint: Endpoint<Q, R>,
        request: impl Into<Parsed<Q>>,
    ) -> Result<R::Value> {
        Box::pin(self.in_process().read(&endpoint, request)).await
    }

    /// Calls an endpoint that writes. If the form was sent before, the result is that of the first time.
    pub async fn write<Q: Request, R: Output>(
        self,
        endpoint: Endpoint<Q, R>,
        request: impl Into<Parsed<Q>>,
    ) -> Result<Written<R::Value>> {
        let fingerprint = self.fingerprint(endpoint.spec.id);
        let key = WriteKey { key: self.key()?, fingerprint, size: self.visit.form.size() };
        let written = Box::pin(self.in_process().write(&endpoint, request, key)).await;
        written.inspect_err(|error| self.visit.note(error))
    }

    /// Forwards the multipart form of the page. `sent` gets its fields without the file if the whole form arrives, so that
    /// they can be shown again.
    pub async fn upload<Q: Request, R: Output>(
        self,
        endpoint: Endpoint<Q, R>,
        sent: &mut Form,
    ) -> Result<Written<R::Value>> {
        let (headers, body) = self.visit.take_multipart();
        let mut form = HttpRequest::new();
        form.headers_mut().extend(headers);
        form.replace_body(body);
        let key = self.key()?;
        let mut texts = Map::new();
        let written = Box::pin(self.in_process().upload(&endpoint, &mut form, key, &mut texts)).await;
        *sent = Form::of_texts(texts);
        written.inspect_err(|error| self.visit.note(error))
    }

    /// Gets a file, and returns the response that contains it.
    pub async fn download(self, endpoint: Endpoint<(), File>) -> Result<Response> {
        let app = self.visit.app.clone();
        let found = Box::pin(self.in_process().download(&endpoint)).await?;
        let mut res = Response::new();
        send_file(&app, &HttpRequest::new(), &found, &mut res).await?;
        Ok(res)
    }

    /// Gets a file that is created while it is sent, and returns the response that contains it.
    pub async fn stream<Q: Request, R: Output>(
        self,
        endpoint: Endpoint<Q, R>,
        request: impl Into<Parsed<Q>>,
    ) -> Result<Response> {
        let found = Box::pin(self.in_process().stream(&endpoint, request)).await?;
        let mut res = Response::new();
        found.write(&mut res);
        Ok(res)
    }

    fn in_process(&self) -> InProcessCall<'v> {
        let visit = self.visit;
        let ids = self.ids.iter().chain(&visit.ids).copied().collect();
        let authenticated = Authenticated::clone(&visit.authenticated);
        InProcessCall {
            app: &visit.app,
            authenticated,
            ids,
            version: self.version,
            versions: self.versions.clone(),
            request_id: &visit.request_id,
        }
    }

    fn key(&self) -> Result<String> {
        let key = format!("{}{}", self.visit.form.get("_key"), self.part);
        if admission::is_idempotency_key(&key) {
            return Ok(key);
        }
        let message = "This form is incomplete. Go back, reload the page, and submit the form again.";
        Err(ApiError::new(ErrorCode::IdempotencyKeyInvalid, message))
    }

    /// Returns a hash of the call and of the form, whose fields determine the request.
    fn fingerprint(&self, operation: &str) -> Vec<u8> {
        let mut hash = Sha256::new();
        let ids = self.ids.iter().map(|(name, id)| ((*name).to_owned(), id.to_string()));
        for (name, value) in ids.chain([(String::new(), operation.to_owned())]) {
            for part in [name, value] {
                hash.update((part.len() as u64).to_be_bytes());
                hash.update(part);
            }
        }
        hash.update(super::form_write::fingerprint(self.visit));
        hash.finalize().to_vec()
    }
}
