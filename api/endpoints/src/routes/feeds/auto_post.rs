//! The settings by which a feed publishes, in requests and responses.

use chrono::TimeDelta;
use crier_domain::access::Scope;
use crier_domain::account::AccountSummary;
use crier_domain::auto_post::{
    ArticleText, AutoPost, FeedDestination, MAX_FEED_ACCOUNTS, MAX_FILTER_WORD, MAX_FILTER_WORDS, MAX_POSTS_PER_DAY,
    MAX_TEMPLATE, Template,
};
use crier_domain::catalogue::descriptor;
use crier_domain::feed::{self, FeedStatus};
use crier_platforms::text;
use crier_posts::article;
use crier_posts::check::{Accounts, missing_account};
use crier_store::feed_posts::{self, NewFeedPost};
use crier_store::{Conn, Tx, accounts, articles, feeds};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Map;

use super::update::FeedChange;
use crate::context::Context;
use crate::error::{ApiError, Result};
use crate::fields::{Fields, PatchField, Problems};
use crate::openapi::schema::TextEnum;
use crate::request::Request;

/// The maximum age of the last fetch for which the stored articles are those that the feed lists. Feeds are not fetched
/// while the plan does not include them, and not while Crier is stopped.
const MAX_FETCH_AGE: TimeDelta = TimeDelta::hours(1);

/// The settings for posting the new articles of a feed.
#[derive(Clone, Debug, Request)]
#[request(name = "FeedAutoPostChange", check = check_fields)]
pub struct AutoPostRequest {
    /// Whether new articles are posted.
    #[field(flag(), default = true)]
    pub is_active: bool,
    /// The text of each post, with the variables `{title}`, `{url}`, `{summary}` and `{author}`. If the text is too long
    /// for an account, the summary is cut at a word, and if necessary the title. The URL always stays.
    #[field(text(1..=MAX_TEMPLATE), example = "{title}\n\n{url}")]
    pub template: String,
    /// The IDs of the brand's accounts. At least one is required unless `destination` is `draft`.
    #[field(ids(MAX_FEED_ACCOUNTS), example = [1])]
    pub accounts: Vec<i64>,
    /// The result of each new article. `now`: a post that is published immediately. `queue`: a post in the brand's queue.
    /// `draft`: a draft. `approval`: a post pending approval.
    #[field(enum_value(), example = "draft")]
    pub destination: FeedDestination,
    /// Words or phrases. If there are any, an article is posted only if its title or summary contains one of them.
    #[field(texts(MAX_FILTER_WORDS, 1..=MAX_FILTER_WORD))]
    pub include: Option<Vec<String>>,
    /// Words or phrases. An article whose title or summary contains one of them is not posted.
    #[field(texts(MAX_FILTER_WORDS, 1..=MAX_FILTER_WORD))]
    pub exclude: Option<Vec<String>>,
    /// The maximum number of posts per day in the brand's time zone. Further articles are not posted.
    #[field(number(1..=MAX_POSTS_PER_DAY), example = 10)]
    pub max_per_day: i64,
}

fn check_fields(request: &AutoPostRequest, fields: &Fields<'_>) {
    if let Err(error) = Template::parse(&request.template) {
        fields.problem("template", error.to_string());
    }
}

/// The settings by which a feed publishes.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct FeedAutoPost {
    /// Whether new articles are posted.
    pub is_active: bool,
    /// The text of each post, with variables.
    #[schemars(extend("examples" = ["{title}\n\n{url}"]))]
    pub template: String,
    /// The IDs of the accounts.
    #[schemars(extend("examples" = [[1]]))]
    pub accounts: Vec<i64>,
    /// The result of each new article.
    #[schemars(with = "TextEnum<FeedDestination>", extend("examples" = ["draft"]))]
    pub destination: FeedDestination,
    /// Words or phrases. If there are any, an article must contain at least one of them.
    #[schemars(extend("examples" = [[]]))]
    pub include: Vec<String>,
    /// Words or phrases that an article must not contain.
    #[schemars(extend("examples" = [[]]))]
    pub exclude: Vec<String>,
    /// The maximum number of posts per day in the brand's time zone.
    #[schemars(extend("examples" = [10]))]
    pub max_per_day: i64,
}

impl From<AutoPost> for FeedAutoPost {
    fn from(settings: AutoPost) -> Self {
        let AutoPost { is_active, template, accounts, destination, include, exclude, max_per_day } = settings;
        Self { is_active, template, accounts, destination, include, exclude, max_per_day }
    }
}

impl From<AutoPostRequest> for AutoPost {
    fn from(request: AutoPostRequest) -> Self {
        let AutoPostRequest { is_active, template, accounts, destination, include, exclude, max_per_day } = request;
        let (include, exclude) = (include.unwrap_or_default(), exclude.unwrap_or_default());
        Self { is_active, template, accounts, destination, include, exclude, max_per_day }
    }
}

/// Checks the scope of posts, and the feature and the role that the destination requires. `change`: `None` if a required
/// field is invalid.
pub fn check_access(cx: &Context, change: Option<&FeedChange>) -> Result<()> {
    let Some(PatchField::Value(request)) = change.map(|change| &change.auto_post) else { return Ok(()) };
    cx.check_scope(Scope::PostsWrite)?;
    cx.check_approvals(request.destination == FeedDestination::Approval)?;
    if request.destination.publishes() && !cx.role()?.can_publish() {
        return Err(ApiError::for_publishers());
    }
    Ok(())
}

/// Checks that a key which cannot write posts does not change the URL of a feed that creates them, nor a contributor that
/// of a feed that publishes: its articles are published in the name of another member, and without approval.
pub fn check_move(cx: &Context, feed: &feed::Feed, change: &FeedChange) -> Result<()> {
    let is_moved = matches!(&change.url, PatchField::Value(url) if *url != feed.url);
    let keeps_settings = matches!(change.auto_post, PatchField::Omitted);
    let Some(settings) = feed.auto_post.as_ref().filter(|_| is_moved && keeps_settings) else { return Ok(()) };
    cx.check_scope(Scope::PostsWrite)?;
    if settings.destination.publishes() && !cx.role()?.can_publish() {
        return Err(ApiError::for_publishers());
    }
    Ok(())
}

/// Stores the settings of a feed whose row is locked. If it begins to publish, the articles that it lists now are never
/// posted.
pub async fn update(cx: &Context, tx: &mut Tx, feed_id: i64, change: &PatchField<AutoPostRequest>) -> Result<()> {
    let user_id = cx.caller.user_id;
    let settings = match change {
        PatchField::Omitted => return Ok(()),
        PatchField::Null => return Ok(feeds::set_auto_post(tx, feed_id, None, user_id).await?),
        PatchField::Value(request) => AutoPost::from(request.clone()),
    };
    check_accounts(cx, tx, &settings).await?;
    // It may have moved in this transaction.
    let feed = super::find(cx, tx).await?;
    feeds::set_auto_post(tx, feed_id, Some(&settings), user_id).await?;
    if settings.is_active && feed.active_auto_post().is_none() {
        begin(tx, &feed).await?;
    }
    Ok(())
}

/// Remembers the stored articles. If they are not up to date, the next successful fetch remembers those of the feed.
async fn begin(tx: &mut Tx, feed: &feed::Feed) -> Result<()> {
    let is_recent = feed.last_fetched_at.is_some_and(|at| tx.now - at <= MAX_FETCH_AGE);
    if feed.status != FeedStatus::Active || !is_recent {
        return Ok(feeds::set_auto_post_since(tx, feed.id, None).await?);
    }
    let stored = articles::list(tx, feed.id).await?;
    let known: Vec<_> = stored.iter().map(NewFeedPost::known).collect();
    feed_posts::remember(tx, feed.id, &known).await?;
    feed_posts::forget_oldest(tx, feed.id).await?;
    let now = tx.now;
    Ok(feeds::set_auto_post_since(tx, feed.id, Some(now)).await?)
}

/// Checks that the accounts exist, and that they accept posts without media and options.
async fn check_accounts(cx: &Context, conn: &mut Conn, settings: &AutoPost) -> Result<()> {
    let found = accounts::summaries(conn, cx.brand()?.id, &settings.accounts).await?;
    let problems = Problems::default();
    let found = in_order(found, &settings.accounts, "auto_post.accounts", &problems);
    let publishes = settings.destination != FeedDestination::Draft;
    if publishes && settings.accounts.is_empty() {
        problems.add("auto_post.accounts", "Choose at least one account, or the destination `draft`.");
    }
    for (i, id) in settings.accounts.iter().enumerate().filter(|_| publishes) {
        let account = found.iter().find(|account| account.id == *id);
        if let Some(problem) = account.and_then(|account| problem_of(account, settings)) {
            problems.add(format!("auto_post.accounts.{i}"), problem);
        }
    }
    problems.into_result()?;
    Ok(())
}

/// Returns the accounts in the order of their IDs, and reports those that do not exist. `path`: the field of the IDs.
pub fn in_order(found: Vec<AccountSummary>, ids: &[i64], path: &str, problems: &Problems) -> Vec<AccountSummary> {
    let mut found: Accounts = found.into_iter().map(|account| (account.id, account)).collect();
    let mut ordered = Vec::with_capacity(found.len());
    for (i, id) in ids.iter().enumerate() {
        match found.remove(id) {
            Some(account) => ordered.push(account),
            None => problems.add(format!("{path}.{i}"), missing_account(*id)),
        }
    }
    ordered
}

/// Returns why an account cannot publish a short text with these settings.
fn problem_of(account: &AccountSummary, settings: &AutoPost) -> Option<String> {
    let rules = descriptor(account.platform).with_limits(account.limits.as_ref());
    if let Some(option) = text::missing_options(&rules, &Map::new()).first() {
        let name = rules.name;
        return Some(format!("{name} requires the option `{option}`, which a feed cannot set. Use `draft`."));
    }
    let template = Template::parse(&settings.template).ok()?;
    let sample = ArticleText::new(Some("Title"), Some("https://example.com/article"), String::new(), None);
    let sample = article::text(&template, &sample, std::slice::from_ref(account));
    let problem = text::check(&rules, &sample, 0).problems.into_iter().next()?;
    Some(format!("Account {} ({}): {}", account.id, account.name, problem.message))
}
