//! `GET /brands/{brand}/labels`

use crier_domain::access::Scope;
use crier_store::{Conn, posts};
use schemars::JsonSchema;
use serde::Serialize;

use super::TAG;
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::response::{Many, Reply};

/// A label of posts.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Label {
    #[schemars(extend("examples" = ["spring"]))]
    pub label: String,
    /// The number of posts with this label.
    pub posts: i64,
}

pub fn endpoint() -> Endpoint<(), Many<Label>> {
    Endpoint::get("/brands/{brand}/labels", "listLabels", Scope::PostsRead)
        .tag(TAG)
        .summary("List the labels of a brand's posts")
        .description("Returns at most 1,000 labels, in alphabetical order.")
        .extension()
        .reads(list)
}

async fn list(cx: &Context, conn: &mut Conn) -> Result<Reply<Vec<Label>>> {
    let labels = posts::labels(conn, cx.brand()?.id).await?;
    Ok(Reply::from(labels.into_iter().map(|(label, posts)| Label { label, posts }).collect::<Vec<_>>()))
}
