//! The checks between authentication and the `Idempotency-Key`: scope, test key, brand and role, plan feature.

use std::collections::HashMap;
use std::sync::Arc;

use crier_domain::access::KeyMode;
use crier_store::idempotency::KeyRecord;
use crier_store::keys::{Authenticated, Caller};
use crier_store::leftovers;

use crate::admission;
use crate::app::App;
use crate::context::{Context, OtherParts, Query};
use crate::endpoint::spec::EndpointSpec;
use crate::error::{ApiError, Result};
use crate::request::unknown::UnknownNames;

/// A request to an endpoint, from a client or from this process.
pub struct Access<'a> {
    pub app: &'a Arc<App>,
    pub spec: &'a Arc<EndpointSpec>,
    /// The ids in the path, by name.
    pub ids: Vec<(&'static str, i64)>,
    pub authenticated: Authenticated,
    pub record: &'a KeyRecord,
    pub request_id: String,
}

impl Access<'_> {
    /// Makes the checks in the contract's order, and returns the context of the request.
    pub async fn check(self) -> Result<Context> {
        let Self { app, spec, ids, authenticated: Authenticated { caller, membership }, record, request_id } = self;
        let brand_id = ids.iter().find(|(name, _)| *name == "brand").map(|(_, id)| *id);
        let plan = admission::plan(app, &caller)?.clone();
        check_key(spec, &caller)?;
        if brand_id.is_some() && membership.is_none() {
            return Err(ApiError::brand_forbidden());
        }
        if spec.needs_all_brands() && !caller.all_brands {
            return Err(ApiError::limited_brands());
        }
        if spec.for_publishers && membership.as_ref().is_some_and(|(_, role)| !role.can_publish()) {
            return Err(ApiError::for_publishers());
        }
        let features = spec.features;
        let has_feature = features.is_empty() || features.iter().any(|feature| plan.has(*feature));
        if !has_feature && !has_leftovers(app, spec, &caller, brand_id, record).await? {
            return Err(ApiError::feature(features));
        }
        Ok(Context {
            app: app.clone(),
            spec: spec.clone(),
            caller,
            plan,
            membership,
            ids,
            query: Query::default(),
            file: None,
            other_parts: OtherParts::default(),
            body_size: 0,
            unknown: UnknownNames::default(),
            version: None,
            versions: HashMap::new(),
            request_id,
            now: app.store.now(),
        })
    }
}

fn check_key(spec: &EndpointSpec, caller: &Caller) -> Result<()> {
    if !caller.scopes.has(spec.scope) {
        return Err(ApiError::insufficient_scope(spec.scope));
    }
    if spec.needs_live_key() && caller.mode == KeyMode::Test {
        return Err(ApiError::test_mode());
    }
    Ok(())
}

/// Returns whether the endpoint serves records from an earlier plan with its features, and there are any.
async fn has_leftovers(
    app: &App,
    spec: &EndpointSpec,
    caller: &Caller,
    brand_id: Option<i64>,
    record: &KeyRecord,
) -> Result<bool> {
    if !spec.serves_leftovers {
        return Ok(false);
    }
    if record.exists() {
        // A repeated deletion gets its stored response, even if it deleted the last record.
        return Ok(true);
    }
    let mut conn = app.store.read().await?;
    for feature in spec.features {
        if leftovers::exist(&mut conn, caller.user_id, brand_id, *feature).await? {
            return Ok(true);
        }
    }
    Ok(false)
}
