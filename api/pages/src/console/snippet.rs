//! `/brands/{brand}/snippets/{snippet}`: a snippet, and its text for the script of the composer.

use askama::Template;
use crier_endpoints::error::{ApiError, Result};
use crier_endpoints::routes::snippets::{self, Snippet};
use http::StatusCode;

use super::route::PageRoute;
use super::shared::{Choice, FieldErrors};
use super::shell::{Section, Shell};
use super::snippets::kinds;
use super::visit::{PageReply, Visit, form_errors};

#[derive(Template)]
#[template(path = "console/snippet.html")]
struct SnippetPage {
    shell: Shell,
    /// Errors of `name`, `kind`, `content`.
    errors: FieldErrors,
    id: i64,
    /// As submitted, else as stored.
    name: String,
    kinds: Vec<Choice>,
    content: String,
}

pub fn routes() -> Vec<PageRoute> {
    vec![
        PageRoute::form("/brands/{brand}/snippets/{snippet}", render),
        PageRoute::post("/brands/{brand}/snippets/{snippet}", update),
        PageRoute::post("/brands/{brand}/snippets/{snippet}/delete", delete),
        PageRoute::get("/brands/{brand}/snippets/{snippet}/text", text),
    ]
}

/// Returns the snippet in the path; 404 if it does not exist.
async fn find(visit: &Visit) -> Result<Snippet> {
    let id = visit.id("snippet");
    let all = visit.call().read(snippets::list::endpoint(), ()).await?;
    all.into_iter().find(|snippet| Some(snippet.id) == id).ok_or_else(|| ApiError::not_found("snippet"))
}

async fn render(visit: &Visit, status: StatusCode, errors: FieldErrors) -> Result<PageReply> {
    let snippet = find(visit).await?;
    let view = SnippetPage {
        shell: visit.shell(Section::Snippets, snippet.name.clone()),
        errors,
        id: snippet.id,
        name: visit.form.get_or("name", &snippet.name).to_owned(),
        kinds: kinds(visit.form.get_or("kind", snippet.kind.as_str())),
        content: visit.form.get_or("content", &snippet.content).to_owned(),
    };
    visit.page_with(status, &view)
}

async fn update(visit: &Visit) -> Result<PageReply> {
    let mut body = visit.form.texts(&["name", "kind", "content"]);
    // Null would keep the value; an empty one is rejected.
    for name in ["name", "content"] {
        body.insert(name.to_owned(), visit.form.text(name).unwrap_or_default().into());
    }
    match visit.call().write(snippets::update::endpoint(), visit.parse(&body)).await {
        Ok(_) => visit.to("snippets", "snippet-saved"),
        Err(error) => render(visit, StatusCode::UNPROCESSABLE_ENTITY, form_errors(error)?).await,
    }
}

async fn delete(visit: &Visit) -> Result<PageReply> {
    visit.call().write(snippets::delete::endpoint(), ()).await?;
    visit.to("snippets", "snippet-deleted")
}

async fn text(visit: &Visit) -> Result<PageReply> {
    Ok(PageReply::Text(StatusCode::OK, find(visit).await?.content))
}
