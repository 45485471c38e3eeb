//! `post_article`: creates the post of one article of a feed that publishes.

use crier_domain::auto_post::FeedPostStatus;
use crier_store::{Conn, Result, Tx, feed_posts, feeds};

use super::{JobDefinition, SubjectDescription};

pub struct PostArticle;

impl JobDefinition for PostArticle {
    async fn lock(tx: &mut Tx, id: i64) -> Result<()> {
        feed_posts::lock(tx, id).await.map(drop)
    }

    async fn describe(conn: &mut Conn, id: i64) -> Result<Option<SubjectDescription>> {
        let Some(article) = feed_posts::find(conn, id).await? else { return Ok(None) };
        Ok(Some(SubjectDescription::new(format!("article of feed {}, {}", article.feed_id, article.status))))
    }

    async fn on_dead(tx: &mut Tx, id: i64, _trace: Option<&str>) -> Result<()> {
        let reason = "Crier could not create the post: internal error. Create a draft from the article instead.";
        skip(tx, id, reason).await
    }

    async fn on_cancelled(tx: &mut Tx, id: i64) -> Result<()> {
        skip(tx, id, "The operator canceled the post of this article.").await
    }

    async fn on_retry(tx: &mut Tx, id: i64) -> Result<bool> {
        feed_posts::retry(tx, id).await
    }
}

/// Records why a waiting article is not posted, in the article and in its feed.
async fn skip(tx: &mut Tx, id: i64, reason: &str) -> Result<()> {
    let Some((feed, article)) = feed_posts::lock(tx, id).await? else { return Ok(()) };
    if article.status == FeedPostStatus::Waiting {
        feed_posts::skip(tx, &[id], reason).await?;
        feeds::set_auto_post_problem(tx, feed.id, reason).await?;
    }
    Ok(())
}
