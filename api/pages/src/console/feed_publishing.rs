//! `/brands/{brand}/feeds/{feed}/publishing`: how the new articles of a feed become posts, a preview, and the outcomes of
//! the articles.

use askama::Template;
use crier_domain::account::SocialAccount;
use crier_domain::auto_post::{FeedDestination, FeedPostStatus};
use crier_domain::plan::Feature;
use crier_endpoints::admission;
use crier_endpoints::error::{ApiError, ErrorCode, Result};
use crier_endpoints::routes::feeds::auto_post::FeedAutoPost;
use crier_endpoints::routes::feeds::posts::FeedPost;
use crier_endpoints::routes::feeds::preview::ArticlePreview;
use crier_endpoints::routes::feeds::{self, Feed};
use http::StatusCode;
use serde_json::{Map, Value, json};

use super::account_choices;
use super::lists;
use super::post_rows::chip;
use super::route::PageRoute;
use super::shared::{AccountChip, Badge, Choice, FieldErrors, Pages, Time, Tone};
use super::shell::{Section, Shell};
use super::visit::{PageReply, Visit, form_errors};
use super::wording::in_quotes;

/// The name of the field of the endpoint, which begins the names of the fields of the form.
const FIELD: &str = "auto_post";
const DEFAULT_TEMPLATE: &str = "{title}\n\n{url}";
const DEFAULT_MAX_PER_DAY: &str = "10";

#[derive(Template)]
#[template(path = "console/feed_publishing.html")]
struct FeedPublishing {
    shell: Shell,
    /// Errors of the fields, whose names begin with [`FIELD`].
    errors: FieldErrors,
    id: i64,
    /// Why the last articles were not posted.
    problem: Option<String>,
    values: Values,
    accounts: Vec<AccountPick>,
    destinations: Vec<Choice>,
    /// `None` unless a preview was requested.
    previews: Option<Previews>,
    /// A page of the articles that were posted or skipped.
    articles: Vec<FeedPostRow>,
    pages: Pages,
}

/// The posts that the last articles would become. The script receives it as an HTML fragment.
#[derive(Template)]
#[template(path = "console/article_previews.html")]
struct Previews {
    /// The problems of the settings, if these cannot be used.
    problems: Vec<String>,
    list: Vec<ArticlePreview>,
}

/// The values of the form: as submitted, else as stored.
struct Values {
    is_active: bool,
    template: String,
    accounts: Vec<i64>,
    destination: String,
    /// One word or phrase per line.
    include: String,
    exclude: String,
    max_per_day: String,
}

struct AccountPick {
    id: i64,
    account: AccountChip,
    checked: bool,
}

struct FeedPostRow {
    title: String,
    /// Only http or https.
    url: Option<String>,
    status: Badge,
    post: Option<i64>,
    reason: Option<String>,
    at: Time,
}

pub fn routes() -> Vec<PageRoute> {
    vec![
        PageRoute::get("/brands/{brand}/feeds/{feed}/publishing", show),
        PageRoute::post("/brands/{brand}/feeds/{feed}/publishing", update),
        PageRoute::post("/brands/{brand}/feeds/{feed}/publishing/preview", preview),
    ]
}

async fn show(visit: &Visit) -> Result<PageReply> {
    let stored = visit.call().read(feeds::show::endpoint(), ()).await?;
    let values = Values::stored(stored.auto_post.clone());
    render(visit, StatusCode::OK, stored, values, None, FieldErrors::default()).await
}

async fn update(visit: &Visit) -> Result<PageReply> {
    let values = Values::submitted(visit);
    let body = Map::from_iter([(FIELD.to_owned(), Value::Object(values.to_request()))]);
    match visit.call().write(feeds::update::endpoint(), visit.parse(&body)).await {
        Ok(_) => visit.to(&format!("feeds/{}/publishing", visit.id("feed").unwrap_or_default()), "feed-saved"),
        Err(error) => rejected(visit, values, form_errors(error)?).await,
    }
}

/// Shows the form as it was submitted, with the posts that the last articles would become. Saves nothing. The script
/// requests only the posts, while the form is filled in.
async fn preview(visit: &Visit) -> Result<PageReply> {
    let values = Values::submitted(visit);
    let request = visit.parse(&values.to_request());
    match visit.call().read(feeds::preview::endpoint(), request).await {
        Ok(list) => {
            let previews = Previews { problems: Vec::new(), list };
            if visit.is_fetch {
                return visit.page(&previews);
            }
            let stored = visit.call().read(feeds::show::endpoint(), ()).await?;
            render(visit, StatusCode::OK, stored, values, Some(previews), FieldErrors::default()).await
        }
        Err(error) if visit.is_fetch && error.code == ErrorCode::ValidationFailed => {
            let problems = error.fields.values().flatten().map(|problem| in_quotes(problem)).collect();
            visit.page(&Previews { problems, list: Vec::new() })
        }
        Err(error) => rejected(visit, values, preview_errors(error)?).await,
    }
}

/// Returns the errors of a preview, whose fields have shorter names.
fn preview_errors(error: ApiError) -> Result<FieldErrors> {
    if error.code != ErrorCode::ValidationFailed {
        return form_errors(error);
    }
    let fields: Vec<(String, Vec<String>)> =
        error.fields.iter().map(|(path, messages)| (format!("{FIELD}.{path}"), messages.clone())).collect();
    Ok(FieldErrors::new(fields.iter().map(|(path, messages)| (path.as_str(), messages.clone()))))
}

async fn rejected(visit: &Visit, values: Values, errors: FieldErrors) -> Result<PageReply> {
    let stored = visit.call().read(feeds::show::endpoint(), ()).await?;
    render(visit, StatusCode::UNPROCESSABLE_ENTITY, stored, values, None, errors).await
}

async fn render(
    visit: &Visit,
    status: StatusCode,
    feed: Feed,
    values: Values,
    previews: Option<Previews>,
    errors: FieldErrors,
) -> Result<PageReply> {
    let all = visit.call().read(feeds::posts::endpoint(), ()).await?;
    let shell = visit.shell(Section::Feeds, format!("Publish {}", feed.name));
    let (articles, pages) = lists::paginate(visit, &shell.page("feeds", feed.id, "publishing"), all);
    let mut conn = visit.app.store.read().await?;
    let found = account_choices::load(visit, &mut conn, &values.accounts).await?;
    drop(conn);
    let pick = |account: SocialAccount| AccountPick {
        id: account.id,
        checked: values.accounts.contains(&account.id),
        account: chip(&account),
    };
    let accounts = found.into_iter().map(pick).collect();
    let view = FeedPublishing {
        shell,
        errors,
        id: feed.id,
        problem: feed.auto_post_problem.as_deref().map(in_quotes),
        accounts,
        destinations: destinations(visit, &values.destination)?,
        values,
        previews,
        articles: articles.into_iter().map(|article| row(visit, article)).collect(),
        pages,
    };
    visit.page_with(status, &view)
}

fn destinations(visit: &Visit, chosen: &str) -> Result<Vec<Choice>> {
    let has_approvals = admission::plan(&visit.app, &visit.authenticated.caller)?.has(Feature::Approvals);
    let choice = |one: &FeedDestination| {
        let (label, hint) = match one {
            FeedDestination::Now => ("Publish immediately", "Each new article is published when Crier finds it."),
            FeedDestination::Queue => ("Add to the queue", "Each new article takes the next free slot of the queue."),
            FeedDestination::Draft => ("Draft", "You can edit and publish it."),
            FeedDestination::Approval => ("Submit for approval", "An admin or owner approves it first."),
        };
        Choice { hint: hint.to_owned(), ..Choice::new(one.as_str(), label, one.as_str() == chosen) }
    };
    let is_offered = |one: &&FeedDestination| match one {
        FeedDestination::Now | FeedDestination::Queue => visit.can_publish(),
        FeedDestination::Draft => true,
        FeedDestination::Approval => has_approvals,
    };
    Ok(FeedDestination::ALL.iter().filter(is_offered).map(choice).collect())
}

fn row(visit: &Visit, article: FeedPost) -> FeedPostRow {
    let url = article.url.filter(|url| url.starts_with("https://") || url.starts_with("http://"));
    let title = article.title.filter(|title| !title.is_empty()).or_else(|| url.clone());
    FeedPostRow {
        title: title.unwrap_or_else(|| "Untitled".to_owned()),
        url,
        status: match article.status {
            FeedPostStatus::Waiting => Badge::new(Tone::Plain, "Waiting"),
            FeedPostStatus::Posted => Badge::new(Tone::Good, "Posted"),
            FeedPostStatus::Skipped => Badge::new(Tone::Plain, "Not posted"),
        },
        post: article.post_id,
        reason: article.reason,
        at: visit.time(article.created_at.0),
    }
}

impl Values {
    fn stored(settings: Option<FeedAutoPost>) -> Self {
        let Some(settings) = settings else {
            return Self {
                is_active: true,
                template: DEFAULT_TEMPLATE.to_owned(),
                accounts: Vec::new(),
                destination: FeedDestination::Draft.to_string(),
                include: String::new(),
                exclude: String::new(),
                max_per_day: DEFAULT_MAX_PER_DAY.to_owned(),
            };
        };
        Self {
            is_active: settings.is_active,
            template: settings.template,
            accounts: settings.accounts,
            destination: settings.destination.to_string(),
            include: settings.include.join("\n"),
            exclude: settings.exclude.join("\n"),
            max_per_day: settings.max_per_day.to_string(),
        }
    }

    fn submitted(visit: &Visit) -> Self {
        let value = |name: &str| visit.form.get(&format!("{FIELD}.{name}")).to_owned();
        Self {
            is_active: visit.form.has(&format!("{FIELD}.is_active")),
            template: value("template"),
            accounts: visit.form.ids(&format!("{FIELD}.accounts")),
            destination: value("destination"),
            include: value("include"),
            exclude: value("exclude"),
            max_per_day: value("max_per_day"),
        }
    }

    /// Returns the fields for the endpoint, which reports their problems.
    fn to_request(&self) -> Map<String, Value> {
        let words = |text: &str| {
            let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
            Value::from(lines.map(str::to_owned).collect::<Vec<_>>())
        };
        let max_per_day = self.max_per_day.trim();
        let fields = [
            ("is_active", json!(self.is_active)),
            ("template", json!(self.template)),
            ("accounts", json!(self.accounts)),
            ("destination", json!(self.destination)),
            ("include", words(&self.include)),
            ("exclude", words(&self.exclude)),
            ("max_per_day", max_per_day.parse::<i64>().map_or_else(|_| json!(max_per_day), Value::from)),
        ];
        fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}
