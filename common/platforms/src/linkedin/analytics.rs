//! Metrics of an organization's page, with the permission `rw_organization_admin`. Users' posts have none without a
//! product that LinkedIn rarely grants. One call takes many posts of one kind (shares, UGC posts). A post that is
//! missing in the response has no metrics yet.
//!
//! Sources: learn.microsoft.com/linkedin ("Organization Share Statistics", "Organization Follower Count by member"),
//! January to August 2026.

use async_trait::async_trait;
use crier_domain::analytics::{AccountMetrics, PostMetrics};
use http::Method;
use serde::Deserialize;
use serde_json::Value;

use super::Linkedin;
use super::pages::URN;
use super::urn::encoded;
use crate::analytics::{AnalyticsConnector, MetricsSetAside, PublishedPost, count};
use crate::call::Effect;
use crate::{CallError, ConnectorAccount};

/// The URNs of the posts are in the URL of the call.
const PER_CALL: usize = 20;
/// For each kind of post, the prefix of its URNs, the parameter that takes them, and the response's field that contains
/// one.
const KINDS: [(&str, &str, &str); 2] =
    [("urn:li:share:", "shares", "share"), ("urn:li:ugcPost:", "ugcPosts", "ugcPost")];

#[derive(Deserialize)]
struct Statistics {
    #[serde(default)]
    elements: Vec<Value>,
}

impl Linkedin {
    async fn read<T: serde::de::DeserializeOwned>(
        &self,
        account: &ConnectorAccount,
        path: &str,
    ) -> Result<T, CallError> {
        let token = account.secrets.require("access_token")?;
        let response = self.send(Effect::Repeatable, self.request(Method::GET, path, &token)).await?;
        self.client.read(Effect::Repeatable, &response)
    }
}

#[async_trait]
impl AnalyticsConnector for Linkedin {
    fn posts_per_call(&self) -> usize {
        PER_CALL
    }

    async fn post_metrics(
        &self,
        account: &ConnectorAccount,
        posts: &[PublishedPost],
        _set_aside: &mut MetricsSetAside,
    ) -> Result<Vec<Option<PostMetrics>>, CallError> {
        let mut metrics = vec![Some(PostMetrics::default()); posts.len()];
        if !account.external_id.starts_with(URN) {
            return Ok(metrics);
        }
        let page = encoded(&account.external_id);
        for (prefix, parameter, field) in KINDS {
            let of_kind = posts.iter().filter(|post| post.external_id.starts_with(prefix));
            let urns: Vec<String> = of_kind.map(|post| encoded(&post.external_id)).collect();
            if urns.is_empty() {
                continue;
            }
            // The parentheses and commas belong to the protocol, so they are not encoded.
            let path = format!(
                "/rest/organizationalEntityShareStatistics?q=organizationalEntity&organizationalEntity={page}\
                 &{parameter}=List({})",
                urns.join(",")
            );
            let found: Statistics = self.read(account, &path).await?;
            for (post, known) in posts.iter().zip(&mut metrics) {
                let own = found.elements.iter().find(|one| one[field] == post.external_id.as_str());
                if let Some(own) = own {
                    *known = Some(self.metrics.post(|name| count(&own["totalShareStatistics"], name)));
                }
            }
        }
        Ok(metrics)
    }

    async fn account_metrics(
        &self,
        account: &ConnectorAccount,
        _set_aside: &mut MetricsSetAside,
    ) -> Result<AccountMetrics, CallError> {
        if !account.external_id.starts_with(URN) {
            return Ok(AccountMetrics::default());
        }
        let page = encoded(&account.external_id);
        let path = format!("/rest/networkSizes/{page}?edgeType=COMPANY_FOLLOWED_BY_MEMBER");
        let size: Value = self.read(account, &path).await?;
        Ok(self.metrics.account(|name| count(&size, name)))
    }
}
