//! `POST /brands`

use std::sync::Arc;

use crier_domain::access::Scope;
use crier_domain::brand::MAX_BRANDS;
use crier_domain::event::EventName;
use crier_store::{Tx, brands, events};
use serde_json::json;

use super::{Brand, TAG};
use crate::context::Context;
use crate::endpoint::{Endpoint, Growth};
use crate::error::{ApiError, ErrorCode, Result};
use crate::request::{Parsed, Request};
use crate::response::{One, Reply};

const DEFAULT_TIMEZONE: &str = "UTC";

/// The brand to create.
#[derive(Clone, Debug, Request)]
pub struct NewBrand {
    #[field(text(1..=120), example = "Acme Bakery")]
    pub name: String,
    #[field(text(0..=2000), example = "Bread since 1920")]
    pub description: Option<String>,
    /// An http or https URL.
    #[field(url(), example = "https://acme.example")]
    pub website: Option<String>,
    // The console's settings use the same fields, and keep the time zone of the brand if it is omitted.
    /// The IANA name of a time zone.
    #[field(timezone(), default = DEFAULT_TIMEZONE, example = "Europe/Berlin")]
    pub timezone: Option<String>,
}

pub fn endpoint() -> Endpoint<NewBrand, One<Brand>> {
    Endpoint::post("/brands", "createBrand", Scope::BrandsWrite)
        .tag(TAG)
        .adds(Growth::Records)
        .summary("Create a brand")
        .description("The key's user becomes the owner of the brand. Emits `brand.created`.")
        .status(201)
        .error_codes(&[ErrorCode::LimitReached])
        .checks_then_writes(create)
}

async fn create(cx: &Context, tx: &mut Tx, parsed: Arc<Parsed<NewBrand>>) -> Result<Reply<Brand>> {
    let new = parsed.valid()?;
    let brand = brands::NewBrand {
        name: &new.name,
        description: new.description.as_deref(),
        website: new.website.as_deref(),
        timezone: new.timezone.as_deref().unwrap_or(DEFAULT_TIMEZONE),
    };
    let created = brands::create(tx, cx.caller.workspace_id, cx.caller.user_id, cx.plan.brands, brand).await?;
    let created = created.ok_or_else(|| full(cx.plan.brands))?;
    let data = json!({ "brand_id": created.id, "name": created.name });
    events::emit(tx, created.id, EventName::BrandCreated, &data, cx.trace()).await?;
    Ok(Reply::at(&format!("/brands/{}", created.id), Brand::from(created)))
}

/// Returns the error for a workspace that has the maximum number of brands. `cap`: that of its plan.
fn full(cap: Option<u64>) -> ApiError {
    if let Some(cap) = cap.filter(|cap| *cap < MAX_BRANDS) {
        return ApiError::limit_reached(cap, ["brand", "brands"], "Ask the operator for a larger plan.");
    }
    let message =
        format!("A workspace can have at most {MAX_BRANDS} brands on any plan. Rename one that you no longer need.");
    ApiError::new(ErrorCode::LimitReached, message)
}
