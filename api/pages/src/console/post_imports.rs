//! `/brands/{brand}/posts/imports`: the imports of posts of the brand, and the form for a file.

use askama::Template;
use crier_domain::account::SocialAccount;
use crier_domain::post_import::{DateFormat, PostImportStatus};
use crier_endpoints::error::{ErrorCode, Result};
use crier_endpoints::routes::post_imports::{self, PostImport};
use crier_endpoints::runner::call::Written;
use crier_store::{PageRequest, accounts};
use http::StatusCode;

use super::form::Form;
use super::route::PageRoute;
use super::shared::{Badge, Choice, FieldErrors, Platform, Time, Tone};
use super::shell::{Section, Shell};
use super::visit::{PageReply, Visit, form_errors};
use super::wording::in_quotes;

/// The maximum number of accounts to choose from.
const MAX_ACCOUNTS: i64 = 500;

#[derive(Template)]
#[template(path = "console/post_imports.html")]
struct PostImports {
    shell: Shell,
    /// Errors of `file`, `date_format`, `accounts`.
    errors: FieldErrors,
    imports: Vec<ImportRow>,
    date_formats: Vec<Choice>,
    accounts: Vec<Choice>,
}

pub struct ImportRow {
    pub id: i64,
    pub name: String,
    pub status: Badge,
    /// "2 of 3 rows imported".
    pub facts: String,
    pub error: Option<String>,
    pub at: Time,
}

impl ImportRow {
    pub fn new(visit: &Visit, import: PostImport) -> Self {
        let (total, kind) = (import.rows_total, if import.dry_run { "checked" } else { "processed" });
        let queued = match import.rows_queued {
            0 => String::new(),
            queued => format!(", {queued} into the queue"),
        };
        let facts = match import.status {
            PostImportStatus::Completed if import.dry_run => {
                format!("{} of {total} rows can be imported{queued}", import.rows_valid)
            }
            PostImportStatus::Completed | PostImportStatus::Failed => {
                let skipped = match import.rows_skipped {
                    0 => String::new(),
                    skipped => format!(", {skipped} already existed"),
                };
                format!("{} of {total} rows imported{queued}{skipped}", import.rows_imported)
            }
            PostImportStatus::Pending | PostImportStatus::Running => {
                format!("{} of {total} rows {kind}", import.rows_done)
            }
        };
        Self {
            id: import.id,
            name: import.filename.unwrap_or_else(|| format!("Import {}", import.id)),
            status: badge(import.status, import.dry_run),
            facts,
            error: import.error.as_deref().map(in_quotes),
            at: visit.time(import.created_at.0),
        }
    }
}

fn badge(status: PostImportStatus, is_dry_run: bool) -> Badge {
    match status {
        PostImportStatus::Pending => Badge::new(Tone::Plain, "Waiting"),
        PostImportStatus::Running if is_dry_run => Badge::new(Tone::Info, "Checking"),
        PostImportStatus::Running => Badge::new(Tone::Info, "Importing"),
        PostImportStatus::Completed if is_dry_run => Badge::new(Tone::Plain, "Checked"),
        PostImportStatus::Completed => Badge::new(Tone::Good, "Imported"),
        PostImportStatus::Failed => Badge::new(Tone::Bad, "Failed"),
    }
}

pub fn routes() -> Vec<PageRoute> {
    vec![
        PageRoute::get("/brands/{brand}/posts/imports", list),
        PageRoute::post("/brands/{brand}/posts/imports", upload),
    ]
}

async fn list(visit: &Visit) -> Result<PageReply> {
    render(visit, StatusCode::OK, FieldErrors::default(), &Form::default()).await
}

/// `sent`: the submitted fields of the form.
async fn render(visit: &Visit, status: StatusCode, errors: FieldErrors, sent: &Form) -> Result<PageReply> {
    let imports = visit.call().read(post_imports::list::endpoint(), ()).await?;
    let page = PageRequest { page: 1, per_page: MAX_ACCOUNTS };
    let brand_id = visit.brand()?.0.id;
    let known = accounts::list(&mut visit.app.store.read().await?, brand_id, page).await?;
    let chosen = sent.get("accounts");
    let named = Choice::new("", "Only the accounts in the file", chosen.is_empty());
    let account = |account: SocialAccount| {
        let platform = Platform::of(account.platform.as_str()).name;
        let id = account.id.to_string();
        Choice::new(&id, &format!("{} on {platform}", account.name), id == chosen)
    };
    let chosen_format = sent.text("date_format").unwrap_or(DateFormat::Iso.as_str());
    let view = PostImports {
        shell: visit.shell(Section::Posts, "Import posts"),
        errors,
        imports: imports.into_iter().map(|import| ImportRow::new(visit, import)).collect(),
        date_formats: DateFormat::ALL.iter().map(|one| date_format(*one, chosen_format)).collect(),
        accounts: [named].into_iter().chain(known.rows.into_iter().map(account)).collect(),
    };
    visit.page_with(status, &view)
}

fn date_format(format: DateFormat, chosen: &str) -> Choice {
    let label = match format {
        DateFormat::Iso => "2026-05-31",
        DateFormat::DayFirst => "31/05/2026",
        DateFormat::MonthFirst => "05/31/2026",
        DateFormat::YearFirst => "2026/05/31",
    };
    Choice::new(format.as_str(), label, format.as_str() == chosen)
}

/// Checks a file. The posts are imported from the page of the result.
async fn upload(visit: &Visit) -> Result<PageReply> {
    let mut sent = Form::default();
    let written = visit.call().upload(post_imports::create::endpoint(), &mut sent).await;
    let error = match written.and_then(Written::into_value) {
        Ok(import) => return visit.to(&format!("posts/imports/{}", import.id), "posts-checking"),
        Err(error) => error,
    };
    let errors = match error.code {
        ErrorCode::UnsupportedMediaType | ErrorCode::PayloadTooLarge => {
            FieldErrors::new([("file", vec![error.message.to_string()])])
        }
        _ => form_errors(error)?,
    };
    render(visit, StatusCode::UNPROCESSABLE_ENTITY, errors, &sent).await
}
