//! Figures of Facebook pages: counts from a post's fields, views and clicks from its insights, for which the page's token
//! needs the permission `read_insights`. The fields of up to ten posts come with one call (a batch).
//!
//! Sources: "Page Insights" and "Batch requests" of the Graph API, June 2026.

use async_trait::async_trait;
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Facebook;
use crate::domain::analytics::{AccountFigures, Figures};
use crate::platforms::analytics::{AnalyticsConnector, PublishedPost, SetAside, count};
use crate::platforms::call::Effect;
use crate::platforms::meta::graph::Access;
use crate::platforms::meta::insights::{Insights, Values};
use crate::platforms::{CallError, ConnectorAccount};

/// Their insights are asked for one after the other, within the time of one call.
const MAX_BATCH: usize = 10;
const FIELDS: &str = "id,shares,comments.limit(0).summary(true),reactions.limit(0).summary(true)";

/// One answer of a batch.
#[derive(Deserialize)]
struct Part {
    code: u16,
    body: String,
}

/// Reads the fields of posts with one call. `None`: that one failed.
async fn fields(access: &Access<'_>, posts: &[PublishedPost]) -> Result<Vec<Option<Value>>, CallError> {
    let ask = |post: &PublishedPost| {
        let id: String = url::form_urlencoded::byte_serialize(post.external_id.as_bytes()).collect();
        json!({ "method": "GET", "relative_url": format!("{id}?fields={FIELDS}") })
    };
    let batch: Vec<Value> = posts.iter().map(ask).collect();
    let request = access.request(Method::POST, "").json(&json!({ "batch": batch, "include_headers": false }));
    // An answer may be null where Facebook ran out of time.
    let parts: Vec<Option<Part>> = access.call(Effect::Repeatable, request).await?;
    let read = |part: Option<Part>| serde_json::from_str(&part.filter(|part| part.code == 200)?.body).ok();
    let mut fields: Vec<Option<Value>> = parts.into_iter().take(posts.len()).map(read).collect();
    fields.resize(posts.len(), None);
    Ok(fields)
}

#[async_trait]
impl AnalyticsConnector for Facebook {
    fn posts_per_call(&self) -> usize {
        MAX_BATCH
    }

    async fn post_figures(
        &self,
        account: &ConnectorAccount,
        posts: &[PublishedPost],
        aside: &mut SetAside,
    ) -> Result<Vec<Option<Figures>>, CallError> {
        let access = self.access(account)?;
        let names = self.metrics.of_posts();
        let mut figures = Vec::with_capacity(posts.len());
        for (post, fields) in posts.iter().zip(fields(&access, posts).await?) {
            let path = format!("{}/insights", post.external_id);
            let values = match access.insights(&path, &names, aside).await? {
                Insights::Known(values) => values,
                // The fields are proof that it is there: then only its insights are not.
                Insights::Gone if fields.is_some() => Values::new(),
                Insights::Gone => {
                    figures.push(None);
                    continue;
                }
            };
            figures.push(Some(self.metrics.post(|name| match name.starts_with('/') {
                true => fields.as_ref().and_then(|fields| count(fields, name)),
                false => values.get(name).copied(),
            })));
        }
        Ok(figures)
    }

    async fn account_figures(
        &self,
        account: &ConnectorAccount,
        _aside: &mut SetAside,
    ) -> Result<AccountFigures, CallError> {
        let access = self.access(account)?;
        let request = access.request(Method::GET, &account.external_id).query(&[("fields", "id,followers_count")]);
        let page: Value = access.call(Effect::Repeatable, request).await?;
        Ok(self.metrics.account(|name| count(&page, name)))
    }
}
