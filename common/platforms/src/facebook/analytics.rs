//! Figures of Facebook pages: counts from a post's fields, views and clicks from its insights, for which the page's
//! token needs the permission `read_insights`. Both come with one request (a batch) for up to 25 posts.
//!
//! Sources: "Page Insights" and "Batch requests" of the Graph API, June 2026.

use async_trait::async_trait;
use crier_domain::analytics::{AccountFigures, Figures};
use crier_http::HttpResponse;
use http::Method;
use serde_json::Value;

use super::Facebook;
use crate::analytics::{AnalyticsConnector, PublishedPost, SetAside, count};
use crate::call::Effect;
use crate::meta::batch::MAX_CALLS;
use crate::meta::graph::Access;
use crate::meta::insights::{Insights, Values, is_gone, is_of_a_name};
use crate::{CallError, ConnectorAccount};

/// Two calls for each post.
const MAX_POSTS: usize = MAX_CALLS / 2;
const FIELDS: &str = "id,shares,comments.limit(0).summary(true),reactions.limit(0).summary(true)";

/// The counts from a post's fields.
enum Fields {
    Known(Value),
    Gone,
    /// They could not be read.
    Unknown,
}

/// Returns the path of a post, whose id may have any characters.
fn path(post: &PublishedPost, rest: &str) -> String {
    let id: String = url::form_urlencoded::byte_serialize(post.external_id.as_bytes()).collect();
    format!("{id}{rest}")
}

fn fields_path(post: &PublishedPost) -> String {
    path(post, &format!("?fields={FIELDS}"))
}

fn insights_path(post: &PublishedPost, names: &[&str]) -> String {
    path(post, &format!("/insights?metric={}", names.join(",")))
}

fn fields(access: &Access<'_>, answer: &HttpResponse) -> Result<Fields, CallError> {
    match access.read_answer(Effect::Repeatable, answer) {
        Ok(fields) => Ok(Fields::Known(fields)),
        Err(failure) if is_gone(&failure) => Ok(Fields::Gone),
        // What ends all calls ends this one; another failure is this post's alone.
        Err(failure) => match failure.error {
            error @ (CallError::RateLimited { .. } | CallError::Reauth(_) | CallError::AuthExpired(_)) => Err(error),
            _ => Ok(Fields::Unknown),
        },
    }
}

/// The insights of posts that are asked for together.
struct InsightsBatch<'a> {
    access: &'a Access<'a>,
    posts: &'a [PublishedPost],
    names: Vec<&'a str>,
    read: Vec<Insights>,
}

impl InsightsBatch<'_> {
    /// Takes the answers for some posts; returns the posts for which a name was refused.
    fn take(&mut self, posts: &[usize], answers: &[HttpResponse]) -> Result<Vec<usize>, CallError> {
        let mut refused = Vec::new();
        for (index, answer) in posts.iter().zip(answers) {
            match self.access.read_values(answer) {
                Ok(values) => self.read[*index] = Insights::Known(values),
                Err(failure) if is_gone(&failure) => self.read[*index] = Insights::Gone,
                Err(failure) if is_of_a_name(&failure) => refused.push(*index),
                Err(failure) => return Err(failure.error),
            }
        }
        Ok(refused)
    }

    /// Asks for each name of a post alone, and sets those aside that are refused.
    async fn ask_one_by_one(&mut self, index: usize, aside: &mut SetAside) -> Result<(), CallError> {
        let paths: Vec<String> = self.names.iter().map(|name| insights_path(&self.posts[index], &[*name])).collect();
        let mut all = Values::new();
        for (name, answer) in self.names.iter().zip(self.access.batch(&paths).await?) {
            match self.access.read_values(&answer) {
                Ok(values) => all.extend(values),
                Err(failure) if is_gone(&failure) => {
                    self.read[index] = Insights::Gone;
                    return Ok(());
                }
                Err(failure) if is_of_a_name(&failure) => self.access.set_aside(name, aside),
                Err(failure) => return Err(failure.error),
            }
        }
        self.read[index] = Insights::Known(all);
        self.names.retain(|name| !aside.contains(name));
        Ok(())
    }

    /// Finds the names that were refused by one of these posts, and asks the others for what is left.
    async fn resolve(&mut self, mut refused: Vec<usize>, aside: &mut SetAside) -> Result<(), CallError> {
        while let Some((first, others)) = refused.split_first() {
            self.ask_one_by_one(*first, aside).await?;
            if self.names.is_empty() || others.is_empty() {
                return Ok(());
            }
            let paths: Vec<String> =
                others.iter().map(|index| insights_path(&self.posts[*index], &self.names)).collect();
            let answers = self.access.batch(&paths).await?;
            refused = self.take(others, &answers)?;
        }
        Ok(())
    }
}

#[async_trait]
impl AnalyticsConnector for Facebook {
    fn posts_per_call(&self) -> usize {
        MAX_POSTS
    }

    async fn post_figures(
        &self,
        account: &ConnectorAccount,
        posts: &[PublishedPost],
        aside: &mut SetAside,
    ) -> Result<Vec<Option<Figures>>, CallError> {
        let access = self.access(account)?;
        let names: Vec<&str> = self.metrics.of_posts().into_iter().filter(|name| !aside.contains(name)).collect();
        let mut paths: Vec<String> = posts.iter().map(fields_path).collect();
        if !names.is_empty() {
            paths.extend(posts.iter().map(|post| insights_path(post, &names)));
        }
        let answers = access.batch(&paths).await?;
        let (of_fields, of_insights) = answers.split_at(posts.len());
        let fields = of_fields.iter().map(|answer| fields(&access, answer)).collect::<Result<Vec<_>, _>>()?;
        let read = posts.iter().map(|_| Insights::Known(Values::new())).collect();
        let mut batch = InsightsBatch { access: &access, posts, names, read };
        let all: Vec<usize> = (0..posts.len()).collect();
        let refused = batch.take(&all, of_insights)?;
        batch.resolve(refused, aside).await?;
        let is_asked = !of_insights.is_empty();
        let of = |(fields, insights): (&Fields, &Insights)| {
            let none = Values::new();
            let (fields, values) = match (fields, insights) {
                (Fields::Known(fields), Insights::Known(values)) => (Some(fields), values),
                // The fields are proof that it is there: then only its insights are not.
                (Fields::Known(fields), Insights::Gone) => (Some(fields), &none),
                (Fields::Gone, Insights::Known(_)) if !is_asked => return None,
                (_, Insights::Known(values)) => (None, values),
                (_, Insights::Gone) => return None,
            };
            Some(self.metrics.post(|name| match name.starts_with('/') {
                true => fields.and_then(|fields| count(fields, name)),
                false => values.get(name).copied(),
            }))
        };
        Ok(fields.iter().zip(&batch.read).map(of).collect())
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
