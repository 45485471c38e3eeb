//! `/brands/{brand}/posts/imports/{import}`: the result of a dry run or of an import, with the problems of its rows.

use askama::Template;
use crier_domain::post_import::PostImportStatus;
use crier_endpoints::error::Result;
use crier_endpoints::routes::post_imports::{self, PostImportError};

use super::post_imports::ImportRow;
use super::route::PageRoute;
use super::shell::{Section, Shell};
use super::visit::{PageReply, Visit};
use super::wording::in_quotes;

/// The maximum number of problems that are shown. The download has all that are stored.
const MAX_SHOWN: usize = 200;

#[derive(Template)]
#[template(path = "console/post_import.html")]
struct PostImportPage {
    shell: Shell,
    import: ImportRow,
    /// Whether the import has not ended. The script then shows its progress.
    is_running: bool,
    rows_done: i32,
    /// 0 until the file was read.
    rows_total: i32,
    /// The number of posts that can be imported now. 0 unless this is a completed dry run.
    importable: i32,
    problems: Vec<PostImportError>,
    hidden: usize,
}

pub fn routes() -> Vec<PageRoute> {
    vec![
        PageRoute::get("/brands/{brand}/posts/imports/{import}", read),
        PageRoute::post("/brands/{brand}/posts/imports/{import}/start", start),
        PageRoute::post("/brands/{brand}/posts/imports/{import}/cancel", cancel),
        PageRoute::get("/brands/{brand}/posts/imports/{import}/errors", download),
    ]
}

async fn read(visit: &Visit) -> Result<PageReply> {
    let detail = visit.call().read(post_imports::show::endpoint(), ()).await?;
    let (import, mut problems) = (detail.import, detail.errors);
    let is_checked = import.dry_run && import.status == PostImportStatus::Completed;
    let importable = if is_checked { import.rows_valid - import.rows_skipped } else { 0 };
    let hidden = problems.len().saturating_sub(MAX_SHOWN);
    problems.truncate(MAX_SHOWN);
    for problem in &mut problems {
        problem.message = in_quotes(&problem.message);
    }
    let is_running = !import.status.is_terminal();
    let (rows_done, rows_total) = (import.rows_done, import.rows_total);
    let import = ImportRow::new(visit, import);
    let shell = visit.shell(Section::Posts, import.name.clone());
    visit.page(&PostImportPage { shell, import, is_running, rows_done, rows_total, importable, problems, hidden })
}

async fn start(visit: &Visit) -> Result<PageReply> {
    visit.call().write(post_imports::start::endpoint(), ()).await?;
    visit.to(&format!("posts/imports/{}", visit.id("import").unwrap_or_default()), "posts-importing")
}

async fn cancel(visit: &Visit) -> Result<PageReply> {
    let import = visit.call().write(post_imports::cancel::endpoint(), ()).await?.into_value()?;
    // An import that completed before the request stays as it is.
    let note = if import.status == PostImportStatus::Failed { "import-canceled" } else { "" };
    visit.to(&format!("posts/imports/{}", import.id), note)
}

async fn download(visit: &Visit) -> Result<PageReply> {
    Ok(PageReply::File(Box::new(visit.call().stream(post_imports::errors::endpoint(), ()).await?)))
}
