//! `POST /brands/{brand}/posts/import`

use std::sync::Arc;

use bytes::Bytes;
use crier_domain::access::Scope;
use crier_domain::post_import::{DateFormat, MAX_IMPORT_ACCOUNTS, MAX_IMPORT_BYTES};
use crier_domain::untrusted;
use crier_posts::check::missing_account;
use crier_store::post_imports::{self, NewPostImport};
use crier_store::{Tx, accounts, brands};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::Value;

use super::{PostImport, TAG, check_key, check_unfinished, enqueue, path};
use crate::context::{Context, UploadedFile};
use crate::endpoint::{Endpoint, Growth, WriteStep};
use crate::error::{ApiError, ErrorCode, Result};
use crate::fields::{Fields, PatchField};
use crate::request::formats::FilePart;
use crate::request::{Format, Parsed, Request};
use crate::response::{One, Reply};

/// The maximum length of a file name that is shown, in characters.
const MAX_FILENAME_CHARS: usize = 200;

/// The file to import.
#[derive(Clone, Debug, Request)]
#[request(name = "NewPostImport")]
pub struct ImportPostsRequest {
    /// A CSV, JSON or XLSX file of at most 10 MiB with at most 5,000 posts.
    #[field(file(), example = "(binary data)")]
    pub file: FilePart,
    /// Whether to only check the rows. Send `false` to import the posts.
    #[field(flag(), default = true, example = true)]
    pub dry_run: bool,
    /// The time zone of times without an offset. Default: that of the brand.
    #[field(timezone(), example = "Europe/Berlin")]
    pub timezone: Option<String>,
    /// The order of day, month and year in dates such as `02/03/2026`. ISO 8601 is always accepted.
    #[field(enum_value(), default = DateFormat::Iso, example = "dmy")]
    pub date_format: DateFormat,
    /// The IDs of the accounts for rows that name none, separated by commas.
    #[field(account_ids(), example = "1,2")]
    pub accounts: Option<Vec<i64>>,
}

/// The ids of accounts in a form.
fn account_ids() -> AccountIds {
    AccountIds
}

struct AccountIds;

impl Format for AccountIds {
    type Value = Vec<i64>;

    fn read(&self, fields: &Fields<'_>, name: &str) -> PatchField<Vec<i64>> {
        fields.read(name, parse_ids)
    }

    fn schema(&self, _: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^[0-9, ]*$" })
    }
}

fn parse_ids(value: &Value) -> std::result::Result<Vec<i64>, String> {
    const INVALID: &str = "Must be IDs of accounts, separated by commas.";
    let text = value.as_str().ok_or(INVALID)?;
    let mut ids = Vec::new();
    for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        let id: i64 = word.parse().ok().filter(|id| *id > 0).ok_or(INVALID)?;
        if !ids.contains(&id) {
            ids.push(id);
        }
        if ids.len() > MAX_IMPORT_ACCOUNTS {
            return Err(format!("List at most {MAX_IMPORT_ACCOUNTS} accounts."));
        }
    }
    Ok(ids)
}

pub fn endpoint() -> Endpoint<ImportPostsRequest, One<PostImport>> {
    Endpoint::post("/brands/{brand}/posts/import", "importPosts", Scope::PostsWrite)
        .tag(TAG)
        .adds(Growth::Files)
        .summary("Import posts from a file")
        .description(
            "Crier reads the file after it has sent the response. Poll `GET /brands/{brand}/posts/imports/{import}` until \
             the status is `completed` or `failed`. By default, the rows are only checked. A row with a time is \
             scheduled, and a row without one becomes a draft, unless its `schedule` is `draft`, `scheduled` or `queue`. \
             A row is skipped if a post of the brand already has its `external_ref`. The columns are `content`, \
             `scheduled_at` (or `date` and `time`), `schedule`, `accounts`, `media_urls`, `labels`, `first_comment` and \
             `external_ref`. Files for Buffer, Hootsuite, Metricool and Publer are also accepted, with their own \
             columns. A brand imports one file at a time. With `dry_run=false`, the \
             key also needs the scope `media:write`, because `media_urls` adds files to the library.",
        )
        .extension()
        .body_is_form()
        .status(202)
        .error_codes(&[ErrorCode::StorageLimitExceeded, ErrorCode::LimitReached])
        .uploads_then_writes(prepare)
}

struct Upload {
    request: ImportPostsRequest,
    filename: Option<String>,
    bytes: Bytes,
}

async fn prepare(cx: &Context, parsed: Arc<Parsed<ImportPostsRequest>>) -> Result<WriteStep<PostImport>> {
    let problems = parsed.problems();
    if cx.file.is_none() {
        problems.add("file", "The form has no part with this name. Send the file as `file`.");
    }
    problems.into_result()?;
    let request = parsed.valid()?.clone();
    let file = cx.file.as_ref().ok_or_else(|| ApiError::bug("a form without a file passed"))?;
    let filename = file.name.as_deref().and_then(|name| untrusted::some_line(name, MAX_FILENAME_CHARS));
    let upload = Upload { request, filename, bytes: read(file).await? };
    Ok(WriteStep::new(upload, |cx, tx, upload| Box::pin(accept(cx, tx, upload))))
}

/// Returns the content of a file. Fails if it is too large to be imported.
async fn read(file: &UploadedFile) -> Result<Bytes> {
    if file.bytes.size() > MAX_IMPORT_BYTES as u64 {
        let message = format!("The file is larger than the maximum of {} MiB.", MAX_IMPORT_BYTES >> 20);
        return Err(ApiError::new(ErrorCode::PayloadTooLarge, message));
    }
    let spooled = file.bytes.clone();
    let read = tokio::task::spawn_blocking(move || spooled.bytes()).await;
    let bytes = read.map_err(|error| ApiError::bug(format!("a file was not read: {error}")))?;
    bytes.map_err(|error| ApiError::storage(error.to_string()))
}

async fn accept(cx: &Context, tx: &mut Tx, upload: Arc<Upload>) -> Result<Reply<PostImport>> {
    let (brand, request) = (cx.brand()?, &upload.request);
    if !request.dry_run {
        check_key(cx)?;
    }
    brands::lock(tx, brand.id).await?;
    let chosen = request.accounts.as_deref().unwrap_or_default();
    let known = accounts::summaries(tx, brand.id, chosen).await?;
    if let Some(missing) = chosen.iter().find(|id| !known.iter().any(|account| account.id == **id)) {
        return Err(ApiError::field("accounts", missing_account(*missing)));
    }
    check_unfinished(tx, brand.id).await?;
    let new = NewPostImport {
        user_id: cx.caller.user_id,
        dry_run: request.dry_run,
        filename: upload.filename.as_deref(),
        timezone: request.timezone.as_deref().unwrap_or(&brand.timezone),
        date_format: request.date_format,
        accounts: chosen,
    };
    let id = post_imports::insert(tx, brand.id, &new, &upload.bytes).await?;
    enqueue(cx, tx, brand.id, id).await?;
    let created = post_imports::find(tx, brand.id, id).await?;
    let created = created.ok_or_else(|| ApiError::bug("a new import is missing"))?;
    Ok(Reply::at(&path(brand.id, id), created.into()))
}
