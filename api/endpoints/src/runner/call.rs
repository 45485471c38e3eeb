//! Calls of endpoints in this process: a request is a value, and so is the response. The checks, the transaction, the
//! events and the `Idempotency-Key` are those of a client's request. The caller has been authenticated, and counts
//! against no rate limit.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crier_store::idempotency::{self, IdempotencySlot, KeyRecord, RequestLine};
use crier_store::keys::Authenticated;
use http::HeaderValue;
use salvo::Request as HttpRequest;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::access::Access;
use super::room;
use super::write::{self, receive_form};
use crate::app::App;
use crate::context::Context;
use crate::endpoint::{AnyEndpoint, BoundHandler, BoundRequest, Endpoint, EndpointSpec, ValueSlot};
use crate::error::{ApiError, Result};
use crate::fields::{Problems, ReadContext};
use crate::file::{FileResponse, FileStream};
use crate::request::unknown::KnownNames;
use crate::request::{Parsed, Request};
use crate::response::{ApiResponse, Nothing, Output, Timestamp};
use crate::tus::{self, TusRequest, TusResponse};

/// A caller in this process.
pub struct InProcessCall<'a> {
    pub app: &'a Arc<App>,
    pub authenticated: Authenticated,
    /// The IDs in the endpoint's path, by name, and possibly others.
    pub ids: Vec<(&'static str, i64)>,
    /// The `updated_at` of the post, the conversation or the queue in the path, as the user saw it. If it differs, a
    /// write fails.
    pub version: Option<Timestamp>,
    /// The same for a request that changes several posts, by post ID. A post without an entry is not checked.
    pub versions: HashMap<i64, Timestamp>,
    pub request_id: &'a str,
}

/// The `Idempotency-Key` of a write, with the hash and the size of what the caller was asked to write.
pub struct WriteKey {
    pub key: String,
    pub fingerprint: Vec<u8>,
    /// In bytes. Bounds what is stored, like the size of a client's body.
    pub size: usize,
}

/// The result of a write.
pub struct Written<T> {
    /// `None` if the write was repeated, and its response was stored by the first one.
    value: Option<T>,
    response: ApiResponse,
}

#[derive(serde::Deserialize)]
struct Data<T> {
    data: T,
}

impl<T: DeserializeOwned> Written<T> {
    /// Returns the value, if necessary from the stored response.
    pub fn into_value(self) -> Result<T> {
        if let Some(value) = self.value {
            return Ok(value);
        }
        let stored = serde_json::from_slice::<Data<T>>(&self.response.body);
        stored
            .map(|stored| stored.data)
            .map_err(|error| ApiError::bug(format!("a stored response could not be read: {error}")))
    }
}

impl InProcessCall<'_> {
    /// Calls an endpoint that changes nothing.
    pub async fn read<Q: Request, R: Output>(
        self,
        endpoint: &Endpoint<Q, R>,
        request: impl Into<Parsed<Q>>,
    ) -> Result<R::Value> {
        let spec = Arc::new(endpoint.spec.clone());
        let cx = self.access(&spec, &KeyRecord::default()).await?;
        let slot = ValueSlot::default();
        let BoundRequest { handler, .. } = endpoint.bind(&cx, request.into(), Some(slot.clone()));
        let Some(BoundHandler::Read(step)) = handler else { return Err(wrong_kind(&spec)) };
        let mut conn = cx.app.store.read().await?;
        step(&cx, &mut conn).await?;
        take(&slot).ok_or_else(|| ApiError::bug(format!("{} returned no value", spec.id)))
    }

    /// Returns the file of a download.
    pub async fn download<R: Output>(self, endpoint: &Endpoint<(), R>) -> Result<FileResponse> {
        let spec = Arc::new(endpoint.spec.clone());
        let cx = self.access(&spec, &KeyRecord::default()).await?;
        let BoundRequest { handler, .. } = endpoint.bind(&cx, ().into(), None);
        let Some(BoundHandler::Download(handler)) = handler else { return Err(wrong_kind(&spec)) };
        let mut conn = cx.app.store.read().await?;
        handler.call(&cx, &mut conn).await
    }

    /// Returns a file that is created while it is sent.
    pub async fn stream<Q: Request, R: Output>(
        self,
        endpoint: &Endpoint<Q, R>,
        request: impl Into<Parsed<Q>>,
    ) -> Result<FileStream> {
        let spec = Arc::new(endpoint.spec.clone());
        let cx = self.access(&spec, &KeyRecord::default()).await?;
        let BoundRequest { handler, .. } = endpoint.bind(&cx, request.into(), None);
        let Some(BoundHandler::Stream(handler)) = handler else { return Err(wrong_kind(&spec)) };
        let mut conn = cx.app.store.read().await?;
        handler(&cx, &mut conn).await
    }

    /// Calls an endpoint of the tus protocol.
    pub async fn tus(self, endpoint: &Endpoint<(), Nothing>, request: TusRequest<'_>) -> Result<TusResponse> {
        let spec = Arc::new(endpoint.spec.clone());
        let cx = self.access(&spec, &KeyRecord::default()).await?;
        let BoundRequest { handler, .. } = endpoint.bind(&cx, ().into(), None);
        let Some(BoundHandler::Tus(handler)) = handler else { return Err(wrong_kind(&spec)) };
        tus::check_version(request.headers)?;
        room::check_disk_for_creation(&cx)?;
        handler.call(&cx, request).await
    }

    /// Calls an endpoint that writes.
    pub async fn write<Q: Request, R: Output>(
        self,
        endpoint: &Endpoint<Q, R>,
        request: impl Into<Parsed<Q>>,
        key: WriteKey,
    ) -> Result<Written<R::Value>> {
        let spec = Arc::new(endpoint.spec.clone());
        let record = self.record(&key.key).await?;
        let cx = self.access(&spec, &record).await?;
        let slot = ValueSlot::default();
        let bound = endpoint.bind(&cx, request.into(), Some(slot.clone()));
        finish(cx, key, record, Ok(bound), &slot).await
    }

    /// Sends a multipart form to an endpoint that stores its file. `texts` gets the other fields if the whole form arrives,
    /// even if it is rejected.
    pub async fn upload<Q: Request, R: Output>(
        self,
        endpoint: &Endpoint<Q, R>,
        form: &mut HttpRequest,
        key: String,
        texts: &mut Map<String, Value>,
    ) -> Result<Written<R::Value>> {
        let spec = Arc::new(endpoint.spec.clone());
        let record = self.record(&key).await?;
        let mut cx = self.access(&spec, &record).await?;
        if !record.exists() {
            // Checked before the form is read, because its file may be large.
            room::check_disk_for_creation(&cx)?;
        }
        let form = receive_form(&KnownNames::of(&spec), &mut cx, record.exists(), form).await?;
        let slot = ValueSlot::default();
        let (fingerprint, bound) = match form {
            Ok((fields, digest)) => {
                let problems = Problems::from(cx.unknown.typos.clone());
                let request = Parsed::read(problems, &fields, ReadContext::new(cx.zone(), cx.now).texts());
                *texts = fields;
                (digest, Ok(endpoint.bind(&cx, request, Some(slot.clone()))))
            }
            Err(error) => (Vec::new(), Err(error)),
        };
        finish(cx, WriteKey { key, fingerprint, size: 0 }, record, bound, &slot).await
    }

    /// Calls an endpoint with the fields of its body or its query, whose values are texts. `key` is needed for a write.
    /// Returns the response, and the names that the endpoint ignored.
    pub async fn send(
        self,
        endpoint: &AnyEndpoint,
        known: &KnownNames,
        fields: &Map<String, Value>,
        key: Option<WriteKey>,
    ) -> Result<(ApiResponse, Option<HeaderValue>)> {
        let record = match &key {
            Some(key) => self.record(&key.key).await?,
            None => KeyRecord::default(),
        };
        let mut cx = self.access(&endpoint.spec, &record).await?;
        cx.unknown.check_body(known, fields);
        let bound = endpoint.read(&cx, Problems::from(cx.unknown.typos.clone()), fields);
        if let Some(name) = bound.ignored {
            cx.unknown.ignore("", name);
        }
        let ignored = cx.unknown.header();
        let response = match (key, &bound.handler) {
            (Some(key), _) => run_write(cx, key, record, Ok(bound)).await?,
            (None, Some(BoundHandler::Read(step))) => step(&cx, &mut cx.app.store.read().await?).await?,
            (None, _) => return Err(wrong_kind(&endpoint.spec)),
        };
        Ok((response, ignored))
    }

    async fn record(&self, key: &str) -> Result<KeyRecord> {
        let mut conn = self.app.store.read().await?;
        Ok(idempotency::read(&mut conn, self.authenticated.caller.key_id, key).await?)
    }

    /// Takes the IDs that the endpoint's path contains.
    async fn access(self, spec: &Arc<EndpointSpec>, record: &KeyRecord) -> Result<Context> {
        let Self { app, mut authenticated, ids, version, versions, request_id } = self;
        let find = |name: &str| ids.iter().find(|(n, _)| *n == name).copied();
        let id = |name| find(name).ok_or_else(|| ApiError::bug(format!("{} needs the id `{name}`", spec.id)));
        let ids = spec.ids().map(id).collect::<Result<Vec<_>>>()?;
        let brand_id = ids.iter().find(|(name, _)| *name == "brand").map(|(_, id)| *id);
        authenticated.membership.take_if(|(brand, _)| Some(brand.id) != brand_id);
        let request_id = request_id.to_owned();
        let cx = Access { app, spec, ids, authenticated, record, request_id }.check().await?;
        let versions = versions.into_iter().map(|(id, version)| (id, version.0)).collect();
        Ok(Context { version: version.map(|version| version.0), versions, ..cx })
    }
}

async fn run_write(
    mut cx: Context,
    key: WriteKey,
    record: KeyRecord,
    bound: Result<BoundRequest>,
) -> Result<ApiResponse> {
    let WriteKey { key, fingerprint, size } = key;
    cx.body_size = size;
    let line = RequestLine { method: cx.spec.method.to_string(), path: cx.path() };
    let slot = IdempotencySlot { api_key_id: cx.caller.key_id, key, fingerprint, request: Some(line) };
    Box::pin(write::execute(cx, slot, record, bound)).await
}

async fn finish<T>(
    cx: Context,
    key: WriteKey,
    record: KeyRecord,
    bound: Result<BoundRequest>,
    slot: &ValueSlot<T>,
) -> Result<Written<T>> {
    let response = run_write(cx, key, record, bound).await?;
    Ok(Written { value: take(slot).filter(|_| !response.replayed || response.is_reference), response })
}

fn take<T>(slot: &Mutex<Option<T>>) -> Option<T> {
    slot.lock().unwrap_or_else(PoisonError::into_inner).take()
}

fn wrong_kind(spec: &EndpointSpec) -> ApiError {
    ApiError::bug(format!("{} has a different kind of handler", spec.id))
}
