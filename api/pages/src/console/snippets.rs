//! `/brands/{brand}/snippets`: the snippets of the brand, and the form for a new one.

use askama::Template;
use crier_domain::snippet::SnippetKind;
use crier_endpoints::error::Result;
use crier_endpoints::routes::snippets;
use http::StatusCode;

use super::lists;
use super::post_rows::beginning;
use super::route::PageRoute;
use super::shared::{Badge, Choice, FieldErrors, Pages, Tone};
use super::shell::{Section, Shell};
use super::visit::{PageReply, Visit, form_errors};

/// The maximum length of a text in the list, in characters.
const MAX_TEXT_SHOWN: usize = 200;

#[derive(Template)]
#[template(path = "console/snippets.html")]
struct Snippets {
    shell: Shell,
    /// Errors of `name`, `kind`, `content`.
    errors: FieldErrors,
    snippets: Vec<SnippetRow>,
    pages: Pages,
    name: String,
    kinds: Vec<Choice>,
    content: String,
}

struct SnippetRow {
    id: i64,
    name: String,
    kind: Badge,
    /// The beginning of the text.
    text: String,
}

pub fn routes() -> Vec<PageRoute> {
    vec![PageRoute::form("/brands/{brand}/snippets", render), PageRoute::post("/brands/{brand}/snippets", create)]
}

const fn kind_label(kind: SnippetKind) -> &'static str {
    match kind {
        SnippetKind::Text => "Text",
        SnippetKind::Hashtags => "Hashtags",
        SnippetKind::Signature => "Signature",
    }
}

/// Returns the kinds to choose from. `chosen` is a kind in the API.
pub fn kinds(chosen: &str) -> Vec<Choice> {
    let choice = |kind: &SnippetKind| Choice::new(kind.as_str(), kind_label(*kind), kind.as_str() == chosen);
    SnippetKind::ALL.iter().map(choice).collect()
}

async fn render(visit: &Visit, status: StatusCode, errors: FieldErrors) -> Result<PageReply> {
    let all = visit.call().read(snippets::list::endpoint(), ()).await?;
    let shell = visit.shell(Section::Snippets, "Snippets");
    let (rows, pages) = lists::paginate(visit, &shell.at("snippets"), all);
    let row = |snippet: snippets::Snippet| SnippetRow {
        id: snippet.id,
        kind: Badge::new(Tone::Plain, kind_label(snippet.kind)),
        text: beginning(&snippet.content, MAX_TEXT_SHOWN),
        name: snippet.name,
    };
    let view = Snippets {
        shell,
        errors,
        snippets: rows.into_iter().map(row).collect(),
        pages,
        name: visit.form.get("name").to_owned(),
        kinds: kinds(visit.form.text("kind").unwrap_or(SnippetKind::Text.as_str())),
        content: visit.form.get("content").to_owned(),
    };
    visit.page_with(status, &view)
}

async fn create(visit: &Visit) -> Result<PageReply> {
    let body = visit.form.texts(&["name", "kind", "content"]);
    match visit.call().write(snippets::create::endpoint(), visit.parse(&body)).await {
        Ok(_) => visit.to("snippets", "snippet-added"),
        Err(error) => render(visit, StatusCode::UNPROCESSABLE_ENTITY, form_errors(error)?).await,
    }
}
