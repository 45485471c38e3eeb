//! `/brands/{brand}/feeds`: the feeds of the brand, and the form for a new one.

use askama::Template;
use crier_domain::feed::{FeedStatus, FeedType};
use crier_endpoints::error::{ApiError, ErrorCode, Result};
use crier_endpoints::routes::feeds::{self, Feed};
use crier_endpoints::runner::call::Written;
use http::StatusCode;

use super::lists;
use super::route::PageRoute;
use super::shared::{Badge, Choice, FieldErrors, Pages, Time, Tone};
use super::shell::{Section, Shell};
use super::visit::{PageReply, Visit, form_errors};
use super::wording::in_quotes;

#[derive(Template)]
#[template(path = "console/feeds.html")]
struct Feeds {
    shell: Shell,
    /// Errors of `url`, `name`, `type`.
    errors: FieldErrors,
    feeds: Vec<FeedRow>,
    pages: Pages,
    url: String,
    name: String,
    types: Vec<Choice>,
}

pub struct FeedRow {
    pub id: i64,
    pub name: String,
    pub url: String,
    pub status: Badge,
    pub articles: i64,
    pub last_fetched: Option<Time>,
    pub error: Option<String>,
    /// Whether its new articles become posts.
    pub publishing: Badge,
    /// Why the last articles were not posted.
    pub problem: Option<String>,
}

impl FeedRow {
    pub fn new(visit: &Visit, feed: Feed) -> Self {
        let status = match feed.status {
            FeedStatus::Pending => Badge::new(Tone::Plain, "Waiting for first fetch"),
            FeedStatus::Active => Badge::new(Tone::Good, "Active"),
            FeedStatus::Failing => Badge::new(Tone::Bad, "Failing"),
        };
        Self {
            id: feed.id,
            name: feed.name,
            url: feed.url,
            status,
            articles: feed.articles_count,
            last_fetched: feed.last_fetched_at.map(|at| visit.time(at.0)),
            error: feed.last_error,
            publishing: match feed.auto_post {
                Some(settings) if settings.is_active => Badge::new(Tone::Good, "On"),
                _ => Badge::new(Tone::Plain, "Off"),
            },
            problem: feed.auto_post_problem.as_deref().map(in_quotes),
        }
    }
}

pub const fn kind(kind: FeedType) -> &'static str {
    match kind {
        FeedType::Rss => "RSS",
        FeedType::Atom => "Atom",
        FeedType::Wordpress => "WordPress",
        FeedType::Json => "JSON",
    }
}

pub fn routes() -> Vec<PageRoute> {
    vec![PageRoute::form("/brands/{brand}/feeds", render), PageRoute::post("/brands/{brand}/feeds", create)]
}

async fn render(visit: &Visit, status: StatusCode, errors: FieldErrors) -> Result<PageReply> {
    let all = visit.call().read(feeds::list::endpoint(), ()).await?;
    let shell = visit.shell(Section::Feeds, "Feeds");
    let (rows, pages) = lists::paginate(visit, &shell.at("feeds"), all);
    let chosen = visit.form.text("type").unwrap_or(FeedType::Rss.as_str());
    let types = FeedType::ALL.iter().map(|one| Choice::new(one.as_str(), kind(*one), one.as_str() == chosen));
    let view = Feeds {
        shell,
        errors,
        feeds: rows.into_iter().map(|feed| FeedRow::new(visit, feed)).collect(),
        pages,
        url: visit.form.get("url").to_owned(),
        name: visit.form.get("name").to_owned(),
        types: types.collect(),
    };
    visit.page_with(status, &view)
}

/// Returns the errors of a form with a URL.
pub fn url_errors(error: ApiError) -> Result<FieldErrors> {
    match error.code {
        ErrorCode::InvalidSourceUrl => Ok(FieldErrors::new([("url", vec![error.message.into_owned()])])),
        _ => form_errors(error),
    }
}

async fn create(visit: &Visit) -> Result<PageReply> {
    let mut body = visit.form.texts(&["url", "name", "type"]);
    // If the name is omitted, the feed's own title is used.
    body.retain(|_, value| !value.is_null());
    let created = visit.call().write(feeds::create::endpoint(), visit.parse(&body)).await;
    match created.and_then(Written::into_value) {
        Ok(created) => visit.to(&format!("feeds/{}", created.id), "feed-added"),
        Err(error) => render(visit, StatusCode::UNPROCESSABLE_ENTITY, url_errors(error)?).await,
    }
}
