//! Limits of plans. A plan is returned whole, and all plans of a brand are listed together without their items'
//! contents, so the numbers of plans and items and the size of the texts are bounded. A plan that exceeds a limit may
//! change if it does not grow.

use crier_domain::content_plan::{MAX_BRAND_ITEMS, MAX_ITEMS, MAX_PLANS, MAX_TEXT, PlanSize};
use crier_store::{Tx, brands, content_plans};

use crate::context::Context;
use crate::error::{ApiError, Result};
use crate::fields::Problems;

/// Reports a problem at `field` if the plan would grow past a limit. `before` is its size before the change.
pub fn check_size(problems: &Problems, field: &str, before: PlanSize, would_be: PlanSize) {
    if would_be.items > MAX_ITEMS && would_be.items > before.items {
        let message = format!(
            "A plan can have at most {MAX_ITEMS} items; this one would have {}. Create another plan.",
            would_be.items
        );
        problems.add(field, message);
    }
    if would_be.text > MAX_TEXT && would_be.text > before.text {
        let message = format!(
            "The titles and contents of a plan's items can have at most {MAX_TEXT} bytes in total; these would have {}. \
             Create another plan.",
            would_be.text
        );
        problems.add(field, message);
    }
}

/// Fails with 402 if the brand has the maximum number of plans. Call it after all other checks: it locks the brand's
/// row.
pub async fn check_plans(cx: &Context, tx: &mut Tx) -> Result<()> {
    let brand = cx.brand()?.id;
    brands::lock(tx, brand).await?;
    let count = content_plans::count(tx, brand).await?;
    ApiError::check_cap("A brand", MAX_PLANS, "content plans", count, 1)
}

/// Fails with 402 if `more` items would exceed the brand's limit. Call it after all other checks: it locks the brand's
/// row.
pub async fn check_items(cx: &Context, tx: &mut Tx, more: usize) -> Result<()> {
    if more == 0 {
        return Ok(());
    }
    let brand = cx.brand()?.id;
    brands::lock(tx, brand).await?;
    let count = content_plans::count_items_of_brand(tx, brand).await?;
    ApiError::check_cap("A brand", MAX_BRAND_ITEMS, "items in all of its content plans", count, more)
}
