//! `post_article`: creates the post of one article of a feed that publishes.
//!
//! The transaction that ends the job creates the post. So the post, the row of the article that says so, and the end of
//! the job are stored together, and an article is posted once.
//!
//! A rejected post is not a failed job: the row of the article and the feed contain the reason. The article is not
//! retried, because nobody expects its post later.

use std::sync::Arc;

use async_trait::async_trait;
use crier_base::problems::Problems;
use crier_domain::auto_post::{ArticleText, AutoPost, FeedDestination, FeedPostStatus, TURNED_OFF, Template};
use crier_domain::feed::{Article, Feed};
use crier_domain::job::{ClaimedJob, Outcome};
use crier_domain::plan::{Feature, Plans};
use crier_html::plain_text;
use crier_media::Library;
use crier_platforms::ConnectorRegistry as Platforms;
use crier_posts::{Member, PostError, article};
use crier_store::{Result, StoreError, Tx, accounts, articles, brands, feed_posts, feeds};

use super::storage::storage_problem;
use super::{Deps, TransactionJob};

pub struct PostArticle {
    platforms: Arc<Platforms>,
    library: Library,
    plans: Arc<Plans>,
}

/// Why the post of an article is not created.
enum Rejection {
    /// The reason, for the members of the brand.
    Because(String),
    Failed(StoreError),
}

impl From<StoreError> for Rejection {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

impl From<PostError> for Rejection {
    fn from(error: PostError) -> Self {
        match error {
            PostError::Store(error) => Self::Failed(error),
            PostError::Bug(what) => Self::Failed(StoreError::Decode(what)),
            // The name of the field says nothing here.
            PostError::Invalid(found) => {
                let first = found.fields().values().flatten().next();
                Self::Because(first.cloned().unwrap_or_else(|| found.to_string()))
            }
            error => Self::Because(error.to_string()),
        }
    }
}

fn reject<T>(reason: &str) -> std::result::Result<T, Rejection> {
    Err(Rejection::Because(reason.to_owned()))
}

impl PostArticle {
    pub fn new(deps: &Deps) -> Self {
        Self { platforms: deps.platforms.clone(), library: deps.library.clone(), plans: deps.plans.clone() }
    }
}

#[async_trait]
impl TransactionJob for PostArticle {
    async fn write(&self, tx: &mut Tx, job: &ClaimedJob) -> Result<Outcome> {
        let Some((feed, waiting)) = feed_posts::lock(tx, job.subject_id).await? else {
            return Ok(Outcome::Cancelled("the article or its feed no longer exists".to_owned()));
        };
        if waiting.status != FeedPostStatus::Waiting {
            return Ok(Outcome::Cancelled(format!("the article is already {}", waiting.status)));
        }
        let Some(settings) = feed.active_auto_post() else {
            // A member turned publishing off, so there is no problem to solve.
            feed_posts::skip(tx, &[waiting.id], TURNED_OFF).await?;
            return Ok(Outcome::Done);
        };
        // A post may be rejected after its first statement.
        let savepoint = tx.set_savepoint().await?;
        match self.create(tx, &feed, settings, &waiting.guid, job.trace.as_deref()).await {
            Ok(post_id) => {
                tx.release(savepoint).await?;
                feed_posts::mark_posted(tx, waiting.id, post_id).await?;
                feeds::clear_auto_post_problem(tx, feed.id, waiting.created_at).await?;
            }
            Err(Rejection::Because(reason)) => {
                tx.roll_back_to(savepoint).await?;
                feed_posts::skip(tx, &[waiting.id], &reason).await?;
                feeds::set_auto_post_problem(tx, feed.id, &reason).await?;
            }
            Err(Rejection::Failed(error)) => return Err(error),
        }
        Ok(Outcome::Done)
    }
}

impl PostArticle {
    /// Creates the post. Returns its id.
    async fn create(
        &self,
        tx: &mut Tx,
        feed: &Feed,
        settings: &AutoPost,
        guid: &str,
        trace: Option<&str>,
    ) -> std::result::Result<i64, Rejection> {
        let Some(article) = articles::find_by_guid(tx, feed.id, guid).await? else {
            return reject("The article was deleted before the post was created.");
        };
        if settings.destination == FeedDestination::Approval && !self.has_approvals(tx, feed.brand_id).await? {
            return reject("The workspace's plan no longer includes approvals. Choose another destination.");
        }
        let user_id = feed.auto_post_user_id.unwrap_or_default();
        let Some(member) = Member::find(tx, &self.plans, feed.brand_id, user_id).await? else {
            return reject(
                "The member in whose name the feed publishes has left the brand. Save the settings again to publish in \
                 your name.",
            );
        };
        let text = post_text(tx, feed, settings, &article).await?;
        let mut cx = member.context(feed.brand_id, &self.platforms, &self.library, tx.now);
        cx.trace = trace;
        let submits = settings.destination == FeedDestination::Approval;
        let change = article::change(settings, text);
        let created =
            crier_posts::create_from(&cx, tx, cx.empty_draft(), &change, submits, Problems::default()).await?;
        // Afterwards, because the text of this post counts too.
        if let Some(problem) = storage_problem(tx, &self.plans, feed.brand_id).await? {
            return reject(&format!("{problem} Delete posts or files, or ask the operator for a larger plan."));
        }
        Ok(created.0.id)
    }

    async fn has_approvals(&self, tx: &mut Tx, brand_id: i64) -> Result<bool> {
        let plan = brands::plan_of(tx, brand_id).await?;
        Ok(plan.is_some_and(|(_, plan)| self.plans.include(&plan, Feature::Approvals)))
    }
}

/// Returns the text of the post.
async fn post_text(
    tx: &mut Tx,
    feed: &Feed,
    settings: &AutoPost,
    article: &Article,
) -> std::result::Result<String, Rejection> {
    // The template was checked when it was stored.
    let template = Template::parse(&settings.template).map_err(|error| Rejection::Because(error.to_string()))?;
    let accounts = accounts::summaries(tx, feed.brand_id, &settings.accounts).await?;
    let summary = article.summary.as_deref().map(plain_text).unwrap_or_default();
    let text = ArticleText::new(article.title.as_deref(), article.url.as_deref(), summary, article.author.as_deref());
    Ok(article::text(&template, &text, &accounts))
}
