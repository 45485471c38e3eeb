//! Runs write endpoints: the `Idempotency-Key`, the transaction, and the response that is stored with it.
//!
//! A write's changes, its jobs and its response commit in one transaction; workers are notified only after the commit.
//! An error stores nothing, so the client can send the corrected request under the same key. A transaction that fails
//! with a serialization error is retried. If a response is too large to store, only the ids of its records are stored,
//! and it is rendered again from them.

use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use crier_store::idempotency::{self, FreeKey, IdempotencySlot, KeyRecord, KeyState, RequestLine};
use crier_store::{Store, Tx, files};
use crier_telemetry::traces;
use http::HeaderMap;
use salvo::{Request, Response};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use tracing::Instrument;

use super::form::{self, Form};
use super::{body, read_json, room, write_ignored_fields};
use crate::admission;
use crate::context::{Context, OtherParts};
use crate::endpoint::{AnyEndpoint, BodyFormat, BoundHandler, BoundPrepare, BoundRequest, FirstStep, Rerender, Step};
use crate::error::{ApiError, ErrorCode, Result};
use crate::fields::Problems;
use crate::request::unknown::KnownNames;
use crate::response::ApiResponse;

/// The maximum number of attempts of a write that the database aborts with a serialization error.
const MAX_ATTEMPTS: u32 = 3;
/// The timeout of an external service while a request waits.
const EXTERNAL_TIMEOUT: Duration = Duration::from_secs(20);

/// Runs a client's request.
pub async fn run(
    endpoint: &AnyEndpoint,
    known: &KnownNames,
    mut cx: Context,
    record: KeyRecord,
    req: &mut Request,
    res: &mut Response,
) -> Result<ApiResponse> {
    let key = require_idempotency_key(req.headers())?;
    if !record.exists() {
        // Checked before the body is read, because it may be a large file.
        room::check_disk_for_creation(&cx)?;
    }
    let (body, bound) = receive(endpoint, known, &mut cx, record.exists(), req).await?;
    cx.body_size = body.len();
    write_ignored_fields(&mut cx, bound.as_ref().ok().and_then(|bound| bound.ignored), res);
    let line = RequestLine { method: req.method().to_string(), path: req.uri().path().to_owned() };
    let fingerprint = fingerprint(req, &body);
    let slot = IdempotencySlot { api_key_id: cx.caller.key_id, key, fingerprint, request: Some(line) };
    execute(cx, slot, record, bound).await
}

/// Runs a write, unless its key has a stored response. `bound` is an error if the body could not be read: the state of
/// the key is reported first.
pub async fn execute(
    cx: Context,
    slot: IdempotencySlot,
    record: KeyRecord,
    bound: Result<BoundRequest>,
) -> Result<ApiResponse> {
    let rerender = bound.as_ref().ok().and_then(|bound| bound.rerender.as_ref());
    let free = match free_or_stored(record.state(&cx.app.store, &slot)?)? {
        KeyLookup::Stored(response) => return render(rerender, cx, response).await,
        KeyLookup::Free(free) => free,
    };
    let in_flight = cx.app.in_flight.enter(&slot).ok_or_else(ApiError::in_progress)?;
    room::check_disk_for_creation(&cx)?;
    room::check_disk_for_body(&cx)?;
    let BoundRequest { handler, rerender, .. } = bound?;
    match handler {
        Some(BoundHandler::Write(step)) => {
            let response = write_with_retries(&cx, &slot, free, rerender.as_ref(), &step).await?;
            render(rerender.as_ref(), cx, response).await
        }
        Some(BoundHandler::TwoSteps(first, prepare)) => {
            let free = match first.needs_lease() {
                true => match lease_key(&cx.app.store, &slot, free).await? {
                    KeyLookup::Stored(response) => return render(rerender.as_ref(), cx, response).await,
                    KeyLookup::Free(leased) => leased,
                },
                false => free,
            };
            // Runs as a separate task, so that new tokens are saved even if the client disconnects.
            let work = async move {
                let _in_flight = in_flight;
                two_steps(cx, slot, prepare, first, free).await
            };
            let work = Box::pin(work.in_current_span());
            let work = tokio::spawn(traces::in_current_span(work));
            work.await.unwrap_or_else(|error| Err(ApiError::bug(format!("the work was not finished: {error}"))))
        }
        Some(BoundHandler::Read(_) | BoundHandler::Download(_) | BoundHandler::Stream(_) | BoundHandler::Tus(_))
        | None => Err(ApiError::bug("an endpoint that does not write was run as a write")),
    }
}

/// Reads the body and binds it to the handler. Also returns the bytes that identify it. A parse error is part of the
/// result, because the state of the key is reported before problems of the body.
async fn receive(
    endpoint: &AnyEndpoint,
    known: &KnownNames,
    cx: &mut Context,
    key_is_known: bool,
    req: &mut Request,
) -> Result<(Bytes, Result<BoundRequest>)> {
    let Some(body) = endpoint.spec.body else {
        let bound = endpoint.read(cx, Problems::from(cx.unknown.typos.clone()), &Map::new());
        return Ok((Bytes::new(), Ok(bound)));
    };
    if body.format == BodyFormat::Multipart {
        return Ok(match receive_form(known, cx, key_is_known, req).await? {
            Ok((texts, digest)) => {
                let bound = endpoint.read(cx, Problems::from(cx.unknown.typos.clone()), &texts);
                (digest.into(), Ok(bound))
            }
            Err(error) => (Bytes::from_static(b"unreadable"), Err(error)),
        });
    }
    let (raw, app) = (body::read(req, cx.app.min_rate).await?, cx.app.clone());
    let bound = app.large_bodies.run(raw.len(), || read_json(endpoint, known, cx, req, &raw)).await;
    Ok((raw, bound))
}

/// Reads a form into the context. Returns its texts and its digest, or the error of an unreadable form.
pub async fn receive_form(
    known: &KnownNames,
    cx: &mut Context,
    key_is_known: bool,
    req: &mut Request,
) -> Result<Result<(Map<String, Value>, Vec<u8>)>> {
    let limits = load_file_limits(cx, key_is_known).await?;
    match form::read(req, limits, &cx.app.library, cx.caller.workspace_id, cx.app.min_rate).await {
        Ok(Form { texts, file, other_files, digest }) => {
            cx.unknown.check_form(known, &texts, &other_files);
            cx.file = file;
            cx.other_parts = OtherParts { texts: texts.keys().cloned().collect(), files: other_files };
            Ok(Ok((texts, digest)))
        }
        // These errors are not about the form, which was not read.
        Err(error) if matches!(error.code, ErrorCode::StorageLimitExceeded | ErrorCode::ServiceUnavailable) => {
            Err(error)
        }
        Err(error) => Ok(Err(error)),
    }
}

/// Returns the limits of an uploaded file. For a known key, the remaining storage is not checked: the file may already
/// be in the library, and the stored response must be returned even if the storage is full.
async fn load_file_limits(cx: &Context, key_is_known: bool) -> Result<form::FileLimits> {
    let library = &cx.app.library;
    let limits = form::FileLimits {
        max_bytes: library.limits().max_bytes,
        max_video_bytes: library.max_video_bytes(),
        remaining_bytes: None,
        storage_mib: cx.plan.storage_mib,
    };
    let Some(cap) = cx.plan.storage_bytes().filter(|_| !key_is_known) else { return Ok(limits) };
    let used = files::usage(&mut cx.app.store.read().await?, cx.caller.workspace_id).await?.total();
    let room = cap.saturating_sub(u64::try_from(used).unwrap_or_default());
    Ok(form::FileLimits { remaining_bytes: Some(room), ..limits })
}

fn require_idempotency_key(headers: &HeaderMap) -> Result<String> {
    if headers.get(admission::IDEMPOTENCY_KEY).is_none_or(|value| value.is_empty()) {
        let message = "The `Idempotency-Key` header is missing. Send a new value with each request, and the same value \
             when you retry a request.";
        return Err(ApiError::new(ErrorCode::IdempotencyKeyRequired, message));
    }
    admission::idempotency_key(headers).map(str::to_owned).ok_or_else(|| {
        let message = "The `Idempotency-Key` must have 1 to 255 visible ASCII characters and no spaces.";
        ApiError::new(ErrorCode::IdempotencyKeyInvalid, message)
    })
}

/// Returns a hash that identifies the request: method, path, query and raw body.
fn fingerprint(req: &Request, raw: &[u8]) -> Vec<u8> {
    let mut hash = Sha256::new();
    for part in [req.method().as_str(), req.uri().path(), req.uri().query().unwrap_or_default()] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.update(raw);
    hash.finalize().to_vec()
}

/// The result of looking up a key.
enum KeyLookup {
    Stored(ApiResponse),
    Free(FreeKey),
}

/// Fails if the key conflicts with another request.
fn free_or_stored(found: KeyState) -> Result<KeyLookup> {
    match found {
        KeyState::Free(free) => Ok(KeyLookup::Free(free)),
        KeyState::Stored(response) => Ok(KeyLookup::Stored(response.into())),
        KeyState::Reused => Err(ApiError::key_reused()),
        KeyState::InProgress => Err(ApiError::in_progress()),
    }
}

/// Leases the key before a first step that must not run twice concurrently.
async fn lease_key(store: &Store, slot: &IdempotencySlot, mut free: FreeKey) -> Result<KeyLookup> {
    for _ in 1..MAX_ATTEMPTS {
        match try_lease(store, slot, free).await {
            Err(error) if error.is_serialization() => {}
            leased => return Ok(KeyLookup::Free(FreeKey::Leased(leased?))),
        }
        match free_or_stored(idempotency::look_up(store, slot).await?)? {
            KeyLookup::Free(found) => free = found,
            stored => return Ok(stored),
        }
    }
    Ok(KeyLookup::Free(FreeKey::Leased(try_lease(store, slot, free).await?)))
}

async fn try_lease(store: &Store, slot: &IdempotencySlot, free: FreeKey) -> Result<DateTime<Utc>> {
    let mut tx = store.begin().await?;
    let until = idempotency::acquire_lease(&mut tx, slot, free).await?;
    tx.commit().await?;
    Ok(until)
}

async fn two_steps(
    cx: Context,
    slot: IdempotencySlot,
    prepare: BoundPrepare,
    first: FirstStep,
    free: FreeKey,
) -> Result<ApiResponse> {
    let leased_until = if let FreeKey::Leased(until) = free { Some(until) } else { None };
    let lease = Lease { store: cx.app.store.clone(), slot: slot.clone(), leased_until };
    let prepared = match first {
        FirstStep::Upload | FirstStep::Reserve => Ok(prepare(&cx).await),
        FirstStep::Query | FirstStep::Lease => tokio::time::timeout(EXTERNAL_TIMEOUT, prepare(&cx)).await,
    };
    let outcome = match prepared {
        Ok(Ok(finish)) => {
            let written = write_with_retries(&cx, &slot, free, None, &finish.write).await;
            if !matches!(&written, Ok(response) if !response.replayed) {
                finish.undo(&cx).await;
            }
            written
        }
        Ok(Err(error)) => match look_up_again(&cx.app.store, &slot, free, &error).await? {
            KeyLookup::Stored(response) => Ok(response),
            KeyLookup::Free(_) => Err(error),
        },
        Err(_) => Err(ApiError::new(
            ErrorCode::PlatformUnavailable,
            "The external service did not respond within 20 seconds. Nothing was changed in Crier. Retry later.",
        )),
    };
    lease.end(outcome.is_ok()).await;
    outcome
}

/// The lease on a key during an external call. It expires if the process dies.
struct Lease {
    store: Store,
    slot: IdempotencySlot,
    leased_until: Option<DateTime<Utc>>,
}

impl Lease {
    async fn end(mut self, is_stored: bool) {
        if let Some(leased_until) = self.leased_until.take().filter(|_| !is_stored) {
            release(&self.store, &self.slot, leased_until).await;
        }
    }
}

impl Drop for Lease {
    /// Also releases the key if the work panics.
    fn drop(&mut self) {
        if let Some(leased_until) = self.leased_until {
            let (store, slot) = (self.store.clone(), self.slot.clone());
            tokio::spawn(async move { release(&store, &slot, leased_until).await });
        }
    }
}

async fn release(store: &Store, slot: &IdempotencySlot, leased_until: DateTime<Utc>) {
    let write = async {
        let mut tx = store.begin().await?;
        idempotency::release(&mut tx, slot, leased_until).await?;
        tx.commit().await
    };
    if let Err(error) = write.await {
        tracing::warn!(%error, "failed to release an Idempotency-Key; its lease will expire");
    }
}

/// Returns the response. A response that was too large to store is rendered again from the current state of its
/// records. If a record has been deleted, the error is a 404 with this reason; the write is not repeated.
async fn render(rerender: Option<&Rerender>, mut cx: Context, response: ApiResponse) -> Result<ApiResponse> {
    if !response.is_reference {
        return Ok(response);
    }
    let rerender = rerender.ok_or_else(|| ApiError::bug("a stored response cannot be rendered again"))?;
    cx.ids.extend(response.records.iter().map(|id| (rerender.record, *id)));
    let mut conn = cx.app.store.read().await?;
    match (rerender.step)(&cx, &mut conn).await {
        Ok(rendered) => Ok(ApiResponse { body: rendered.body, ..response }),
        Err(error) if error.code == ErrorCode::NotFound => Err(ApiError::record_deleted()),
        Err(error) => Err(error),
    }
}

/// Looks up the key again after an error. The request may have been rejected because the same request was carried out
/// after the first look-up, in another process or while the body arrived. This cannot happen while the key is leased.
async fn look_up_again(store: &Store, slot: &IdempotencySlot, free: FreeKey, error: &ApiError) -> Result<KeyLookup> {
    let is_failure = error.code.status().is_server_error() && !error.is_serialization();
    if is_failure || matches!(free, FreeKey::Leased(_)) {
        return Ok(KeyLookup::Free(free));
    }
    free_or_stored(idempotency::look_up(store, slot).await?)
}

/// Runs the work and stores the response in one transaction. `free`: the state of the key at the last look-up.
async fn write_with_retries(
    cx: &Context,
    slot: &IdempotencySlot,
    mut free: FreeKey,
    rerender: Option<&Rerender>,
    work: &Step<Tx>,
) -> Result<ApiResponse> {
    let mut run = 1;
    loop {
        let error = match try_write(cx, slot, free, rerender, work).await {
            Ok(response) => return Ok(response),
            Err(error) => error,
        };
        match look_up_again(&cx.app.store, slot, free, &error).await? {
            KeyLookup::Stored(response) => return Ok(response),
            KeyLookup::Free(found) => free = found,
        }
        if !error.is_serialization() || run == MAX_ATTEMPTS {
            return Err(error);
        }
        tracing::debug!(run, "serialization error; retrying the write");
        run += 1;
    }
}

async fn try_write(
    cx: &Context,
    slot: &IdempotencySlot,
    free: FreeKey,
    rerender: Option<&Rerender>,
    work: &Step<Tx>,
) -> Result<ApiResponse> {
    let mut tx = cx.app.store.begin().await?;
    let worked = async {
        if let FreeKey::Leased(until) = free
            && let KeyLookup::Stored(response) =
                free_or_stored(idempotency::look_up_leased(&mut tx, slot, until).await?)?
        {
            return Ok(response);
        }
        let response = work(cx, &mut tx).await?;
        room::check_texts(cx, &mut tx).await?;
        idempotency::store(&mut tx, slot, &response.to_stored(rerender.is_some()), free).await?;
        Ok(response)
    };
    match worked.await {
        Ok(response) if !response.replayed => {
            tx.commit().await?;
            Ok(response)
        }
        other => {
            // Roll back explicitly, so that on SQLite the next writer does not wait until the connection is cleaned up.
            if let Err(failed) = tx.rollback().await {
                tracing::debug!(error = %failed, "rollback failed; closing the connection rolls back anyway");
            }
            other
        }
    }
}
