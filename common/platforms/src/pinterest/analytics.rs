//! Figures of Pinterest: one call for each pin, since the call for many is not open to all applications, and one for
//! the account. The counts of a pin are those of its whole life, which Pinterest has of pins since March 2023. What its
//! documents name of them has no count of saves.
//!
//! Sources: Pinterest's OpenAPI 5.23.0 of December 2025 (`/pins/{pin_id}` with `pin_metrics`, `/pins/analytics`,
//! `/user_account`). A missing scope is 401 with the code 3: issue 97 of Pinterest's `api-quickstart`.

use async_trait::async_trait;
use crier_domain::analytics::{AccountFigures, Figures};
use http::{Method, StatusCode};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use secrecy::ExposeSecret;
use serde_json::Value;

use super::Pinterest;
use crate::analytics::{AnalyticsConnector, PublishedPost, SetAside, count};
use crate::call::Effect;
use crate::{CallError, ConnectorAccount};

/// What the platform lets the account read.
enum Read {
    Known(Value),
    Gone,
    /// Not this one, but perhaps others.
    Refused,
    /// The account was connected without the scope.
    ScopeMissing,
}

impl Pinterest {
    async fn read(&self, account: &ConnectorAccount, path: &str, query: &[(&str, &str)]) -> Result<Read, CallError> {
        let token = account.secrets.require("access_token")?;
        let request = self.request(Method::GET, path, token.expose_secret()).query(query);
        let answer = self.client.send(Effect::Repeatable, request).await?;
        match answer.status {
            status if status.is_success() => self.client.read(Effect::Repeatable, &answer).map(Read::Known),
            StatusCode::NOT_FOUND => Ok(Read::Gone),
            StatusCode::FORBIDDEN => Ok(Read::Refused),
            _ => match self.refusal(Effect::Repeatable, &answer) {
                CallError::AuthExpired(failure) if failure.platform_code.as_deref() == Some("3") => {
                    Ok(Read::ScopeMissing)
                }
                error => Err(error),
            },
        }
    }

    async fn pin_figures(
        &self,
        account: &ConnectorAccount,
        id: &str,
        aside: &mut SetAside,
    ) -> Result<Option<Figures>, CallError> {
        let names = self.metrics.fields_of_posts();
        if names.iter().all(|name| aside.contains(name)) {
            return Ok(Some(Figures::default()));
        }
        let path = format!("/pins/{}", utf8_percent_encode(id, NON_ALPHANUMERIC));
        Ok(match self.read(account, &path, &[("pin_metrics", "true")]).await? {
            Read::Known(pin) => Some(self.metrics.post(|name| count(&pin, name))),
            Read::Gone => None,
            Read::Refused => Some(Figures::default()),
            Read::ScopeMissing => {
                set_aside(&names, aside);
                Some(Figures::default())
            }
        })
    }
}

fn set_aside(names: &[&str], aside: &mut SetAside) {
    tracing::warn!(platform = "pinterest", metrics = ?names, "the platform rejected metrics");
    for name in names {
        aside.add(name);
    }
}

#[async_trait]
impl AnalyticsConnector for Pinterest {
    fn posts_per_call(&self) -> usize {
        1
    }

    async fn post_figures(
        &self,
        account: &ConnectorAccount,
        posts: &[PublishedPost],
        aside: &mut SetAside,
    ) -> Result<Vec<Option<Figures>>, CallError> {
        let mut figures = Vec::with_capacity(posts.len());
        for post in posts {
            figures.push(self.pin_figures(account, &post.external_id, aside).await?);
        }
        Ok(figures)
    }

    async fn account_figures(
        &self,
        account: &ConnectorAccount,
        aside: &mut SetAside,
    ) -> Result<AccountFigures, CallError> {
        let names = self.metrics.fields_of_accounts();
        if names.iter().all(|name| aside.contains(name)) {
            return Ok(AccountFigures::default());
        }
        if let Read::Known(own) = self.read(account, "/user_account", &[]).await? {
            return Ok(self.metrics.account(|name| count(&own, name)));
        }
        set_aside(&names, aside);
        Ok(AccountFigures::default())
    }
}
