//! How much plans may hold. A plan is answered whole, and all plans of a brand are listed together without their items'
//! contents: so plans, items and texts are bounded. A plan that is over a bound from before it was set may shrink.

use crier_common::domain::content_plan::{MAX_BRAND_ITEMS, MAX_ITEMS, MAX_PLANS, MAX_TEXT, PlanSize};
use crier_common::store::{Tx, brands, content_plans};

use crate::context::Context;
use crate::error::{ApiError, Result};
use crate::fields::Problems;

/// Refuses, at this field, a plan that would grow past what one may hold. `was`: its size before.
pub fn check_size(problems: &Problems, field: &str, was: PlanSize, would_be: PlanSize) {
    if would_be.items > MAX_ITEMS && would_be.items > was.items {
        let message = format!(
            "A plan has at most {MAX_ITEMS} items; this one would have {}. Begin another plan.",
            would_be.items
        );
        problems.add(field, message);
    }
    if would_be.text > MAX_TEXT && would_be.text > was.text {
        let message = format!(
            "The titles and contents of a plan's items have at most {MAX_TEXT} bytes together; these would have {}. Begin another plan.",
            would_be.text
        );
        problems.add(field, message);
    }
}

/// 402 where the brand has as many plans as it may have. The last of the checks: it holds the brand's row.
pub async fn check_plans(cx: &Context, tx: &mut Tx) -> Result<()> {
    let brand = cx.brand()?.id;
    brands::hold(tx, brand).await?;
    let there = content_plans::count(tx, brand).await?;
    ApiError::check_cap("A brand", MAX_PLANS, "content plans", there, 1)
}

/// 402 where the plans of the brand would have too many items with so many more. The last of the checks: it holds the
/// brand's row.
pub async fn check_items(cx: &Context, tx: &mut Tx, more: usize) -> Result<()> {
    if more == 0 {
        return Ok(());
    }
    let brand = cx.brand()?.id;
    brands::hold(tx, brand).await?;
    let there = content_plans::count_items_of_brand(tx, brand).await?;
    ApiError::check_cap("A brand", MAX_BRAND_ITEMS, "items in all of its content plans", there, more)
}
