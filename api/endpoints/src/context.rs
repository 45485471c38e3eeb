//! The context of a request, which the endpoint's handler receives: caller, plan, brand and path.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use crier_domain::access::{Role, Scope};
use crier_domain::brand::Brand;
use crier_domain::plan::{Feature, Plan};
use crier_media::Spooled;
use crier_posts::PostContext;
use crier_store::keys::Caller;
use http::Method;
use serde_json::{Map, Value};

use crate::app::App;
use crate::endpoint::spec::EndpointSpec;
use crate::error::{ApiError, Result};
use crate::request::unknown::UnknownNames;

/// A request that has passed the checks common to all endpoints.
pub struct Context {
    pub app: Arc<App>,
    pub spec: Arc<EndpointSpec>,
    pub caller: Caller,
    pub plan: Plan,
    /// The brand in the path and the caller's role in it; set for every path that contains a brand.
    pub membership: Option<(Brand, Role)>,
    /// The ids in the path, by name.
    pub ids: Vec<(&'static str, i64)>,
    /// Empty for a call in this process.
    pub query: Query,
    /// The file of a form.
    pub file: Option<UploadedFile>,
    /// The names of the other parts of a form.
    pub other_parts: OtherParts,
    /// The size of the body, in bytes.
    pub body_size: usize,
    /// The names in the request that the endpoint does not know.
    pub unknown: UnknownNames,
    /// The `updated_at` of the post, the conversation or the queue in the path, as the caller saw it. If it differs, a
    /// write fails. `None`: it is not checked.
    pub version: Option<DateTime<Utc>>,
    /// The same for a request that changes several posts, by post ID. A post without an entry is not checked.
    pub versions: HashMap<i64, DateTime<Utc>>,
    pub request_id: String,
    pub now: DateTime<Utc>,
}

impl Context {
    /// Returns the brand in the path.
    pub fn brand(&self) -> Result<&Brand> {
        self.membership.as_ref().map(|(brand, _)| brand).ok_or_else(|| ApiError::bug("the path has no brand"))
    }

    /// Returns the caller's role in that brand.
    pub fn role(&self) -> Result<Role> {
        self.membership.as_ref().map(|(_, role)| *role).ok_or_else(|| ApiError::bug("the path has no brand"))
    }

    /// Fails if the caller's key lacks a scope that a request needs in addition to that of its endpoint.
    pub fn check_scope(&self, scope: Scope) -> Result<()> {
        if self.caller.scopes.has(scope) { Ok(()) } else { Err(ApiError::insufficient_scope(scope)) }
    }

    /// Fails if the role of the caller's key is limited. Work after the response has the role of the user, so such a key
    /// could do more by starting it.
    pub fn check_has_no_role_limit(&self) -> Result<()> {
        if self.caller.role_limit.is_some() { Err(ApiError::limited_key()) } else { Ok(()) }
    }

    /// Checks that the plan includes approvals if the request needs them. Call it before records are looked up, as the
    /// runner checks the features of an endpoint.
    pub fn check_approvals(&self, are_needed: bool) -> Result<()> {
        if are_needed && !self.plan.has(Feature::Approvals) {
            return Err(ApiError::feature(&[Feature::Approvals]));
        }
        Ok(())
    }

    /// Returns what a change of a post in that brand needs. `now`: the time of the transaction.
    pub fn post_context(&self, now: DateTime<Utc>) -> Result<PostContext<'_>> {
        Ok(PostContext {
            brand_id: self.brand()?.id,
            workspace_id: self.caller.workspace_id,
            author: (self.caller.user_id, &self.caller.user_name),
            role: self.role()?,
            posts_per_month: self.plan.posts_per_month,
            platforms: &self.app.platforms,
            library: &self.app.library,
            now,
            trace: self.trace(),
        })
    }

    /// Returns an id in the path.
    pub fn id(&self, name: &str) -> Result<i64> {
        let found = self.ids.iter().find(|(n, _)| *n == name).map(|(_, id)| *id);
        found.ok_or_else(|| ApiError::bug(format!("the path has no {{{name}}}")))
    }

    /// Returns the request's path, starting at the root of the host.
    pub fn path(&self) -> String {
        let filled = self.ids.iter().fold(Cow::Borrowed(self.spec.path), |path, (name, id)| {
            Cow::Owned(path.replace(&format!("{{{name}}}"), &id.to_string()))
        });
        format!("{}{filled}", crate::PREFIX)
    }

    /// Returns the time zone of times without an offset.
    pub fn zone(&self) -> &str {
        self.membership.as_ref().map_or("UTC", |(brand, _)| &brand.timezone)
    }

    /// Returns whether the request creates a record.
    pub fn creates(&self) -> bool {
        self.spec.method == Method::POST
    }

    /// Returns the trace id for jobs and events that this request causes.
    pub fn trace(&self) -> Option<&str> {
        Some(&self.request_id)
    }
}

/// A file uploaded with a form.
#[derive(Clone, Debug)]
pub struct UploadedFile {
    /// The file name from the request.
    pub name: Option<String>,
    pub bytes: Spooled,
    /// Whether its first bytes are those of a video.
    pub is_video: bool,
}

/// The names of the parts of a form that are not the expected file.
#[derive(Clone, Debug, Default)]
pub struct OtherParts {
    pub texts: Vec<String>,
    pub files: Vec<String>,
}

/// The query string, in the client's order and spelling.
#[derive(Clone, Debug, Default)]
pub struct Query {
    raw: Vec<String>,
    pairs: Vec<(String, String)>,
}

impl Query {
    pub fn parse(text: &str) -> Self {
        let raw: Vec<String> = text.split('&').filter(|p| !p.is_empty()).map(str::to_owned).collect();
        let decode = |part: &String| {
            url::form_urlencoded::parse(part.as_bytes()).next().map(|(k, v)| (k.into_owned(), v.into_owned()))
        };
        let pairs = raw.iter().map(|part| decode(part).unwrap_or_default()).collect();
        Self { raw, pairs }
    }

    /// Returns a parameter's value; the last one if it occurs several times.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.pairs.iter().rev().find(|(k, _)| k == name).map(|(_, v)| v.as_str())
    }

    /// Returns the parameters as fields, whose values are texts.
    pub fn fields(&self) -> Map<String, Value> {
        self.pairs.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))).collect()
    }

    /// Returns the parameters' names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.pairs.iter().map(|(name, _)| name.as_str())
    }

    /// Returns all parameters but these, each as the client sent it and followed by `&`.
    pub fn without(&self, names: &[&str]) -> String {
        let kept = self.raw.iter().zip(&self.pairs).filter(|(_, (k, _))| !names.contains(&k.as_str()));
        kept.map(|(raw, _)| format!("{raw}&")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_order_and_encoding_are_preserved() {
        let query = Query::parse("b=%20x&a=1&&page=2&b=y+z&flag");
        assert_eq!((query.get("b"), query.get("a"), query.get("flag")), (Some("y z"), Some("1"), Some("")));
        assert_eq!(query.get("nope"), None);
        assert_eq!(query.without(&["page"]), "b=%20x&a=1&b=y+z&flag&");
        assert_eq!(Query::parse("").without(&["page"]), "");
    }
}
