//! `GET /brands/{brand}/posts/{post}/attempts`

use crier_domain::access::Scope;
use crier_domain::post::AttemptOutcome;
use crier_store::{Conn, targets};
use schemars::JsonSchema;
use serde::Serialize;

use super::{TAG, TargetError, show};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::openapi::schema::TextEnum;
use crate::response::{Many, Reply, Timestamp};

/// The maximum number of attempts in a response. A client can retry a post any number of times.
const MAX_ATTEMPTS: i64 = 1_000;

/// An attempt to publish a target.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PostAttempt {
    pub id: i64,
    pub target_id: i64,
    /// The number of the attempt, starting at 1.
    pub number: i32,
    pub started_at: Timestamp,
    pub duration_ms: i64,
    #[schemars(with = "TextEnum<AttemptOutcome>")]
    pub outcome: AttemptOutcome,
    /// The HTTP status code from the platform.
    pub status_code: Option<i32>,
    pub error: Option<TargetError>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

pub fn endpoint() -> Endpoint<(), Many<PostAttempt>> {
    Endpoint::get("/brands/{brand}/posts/{post}/attempts", "listPostAttempts", Scope::PostsRead)
        .tag(TAG)
        .summary("List the publishing attempts of a post, newest first")
        .description("The response contains at most the latest 1,000 attempts.")
        .extension()
        .reads(list)
}

async fn list(cx: &Context, conn: &mut Conn) -> Result<Reply<Vec<PostAttempt>>> {
    let post = show::find(cx, conn).await?;
    let records = targets::attempts(conn, post.id, MAX_ATTEMPTS).await?.into_iter().map(|a| PostAttempt {
        id: a.id,
        target_id: a.target_id,
        number: a.number,
        started_at: a.started_at.into(),
        duration_ms: a.duration_ms,
        outcome: a.outcome,
        status_code: a.status_code,
        error: a.error.map(Into::into),
        created_at: a.created_at.into(),
        updated_at: a.updated_at.into(),
    });
    Ok(Reply::from(records.collect::<Vec<_>>()))
}
