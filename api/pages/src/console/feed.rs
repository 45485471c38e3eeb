//! `/brands/{brand}/feeds/{feed}`: a feed with its articles, and the action that creates a draft from an article.

use askama::Template;
use crier_endpoints::error::Result;
use crier_endpoints::routes::feeds;
use crier_endpoints::routes::feeds::articles::FeedArticle;
use crier_html::plain_text;
use http::StatusCode;
use serde_json::{Map, Value};

use super::feeds::{FeedRow, kind, url_errors};
use super::lists;
use super::post_rows::beginning;
use super::route::PageRoute;
use super::shared::{FieldErrors, Pages, Time};
use super::shell::{Section, Shell};
use super::visit::{PageReply, Visit};

/// The maximum length of an article's summary, in characters.
const MAX_SUMMARY_SHOWN: usize = 300;

#[derive(Template)]
#[template(path = "console/feed.html")]
struct FeedPage {
    shell: Shell,
    /// Errors of `name`, `url`.
    errors: FieldErrors,
    feed: FeedRow,
    kind: &'static str,
    /// As submitted, else as stored.
    name: String,
    url: String,
    articles: Vec<ArticleRow>,
    pages: Pages,
}

struct ArticleRow {
    id: i64,
    title: String,
    /// Only http or https.
    url: Option<String>,
    /// Plain text.
    summary: String,
    author: Option<String>,
    at: Time,
}

pub fn routes() -> Vec<PageRoute> {
    vec![
        PageRoute::form("/brands/{brand}/feeds/{feed}", render),
        PageRoute::post("/brands/{brand}/feeds/{feed}", update),
        PageRoute::post("/brands/{brand}/feeds/{feed}/delete", delete),
        PageRoute::post("/brands/{brand}/feeds/{feed}/articles/{article}/draft", draft),
    ]
}

async fn render(visit: &Visit, status: StatusCode, errors: FieldErrors) -> Result<PageReply> {
    let feed = visit.call().read(feeds::show::endpoint(), ()).await?;
    let all = visit.call().read(feeds::articles::endpoint(), ()).await?;
    let shell = visit.shell(Section::Feeds, feed.name.clone());
    let (articles, pages) = lists::paginate(visit, &shell.page("feeds", feed.id, ""), all);
    let view = FeedPage {
        shell,
        errors,
        kind: kind(feed.r#type),
        name: visit.form.get_or("name", &feed.name).to_owned(),
        url: visit.form.get_or("url", &feed.url).to_owned(),
        feed: FeedRow::new(visit, feed),
        articles: articles.into_iter().map(|article| row(visit, article)).collect(),
        pages,
    };
    visit.page_with(status, &view)
}

fn row(visit: &Visit, article: FeedArticle) -> ArticleRow {
    let url = article.url.filter(|url| url.starts_with("https://") || url.starts_with("http://"));
    let title = article.title.filter(|title| !title.is_empty()).or_else(|| url.clone());
    ArticleRow {
        id: article.id,
        title: title.unwrap_or_else(|| "Untitled".to_owned()),
        url,
        summary: beginning(&article.summary.as_deref().map(plain_text).unwrap_or_default(), MAX_SUMMARY_SHOWN),
        author: article.author,
        at: visit.time(article.published_at.0),
    }
}

/// Updates the feed. The name is sent only if it was changed, because a name that is set replaces the feed's own title.
async fn update(visit: &Visit) -> Result<PageReply> {
    let form = &visit.form;
    let text = |name: &str| (name.to_owned(), Value::from(form.text(name).unwrap_or_default()));
    let mut body = Map::from_iter([text("url")]);
    if form.get("name") != form.get("_name") {
        body.extend([text("name")]);
    }
    match visit.call().write(feeds::update::endpoint(), visit.parse(&body)).await {
        Ok(_) => visit.to(&format!("feeds/{}", visit.id("feed").unwrap_or_default()), "feed-saved"),
        Err(error) => render(visit, StatusCode::UNPROCESSABLE_ENTITY, url_errors(error)?).await,
    }
}

async fn delete(visit: &Visit) -> Result<PageReply> {
    visit.call().write(feeds::delete::endpoint(), ()).await?;
    visit.to("feeds", "feed-deleted")
}

/// Creates a post and redirects to it.
async fn draft(visit: &Visit) -> Result<PageReply> {
    let post = visit.call().write(feeds::draft::endpoint(), ()).await?.into_value()?;
    visit.to(&format!("posts/{}", post.id), "draft-made")
}
