//! The storage of a plan, for the jobs that create posts.

use crier_domain::plan::Plans;
use crier_store::{Conn, Result, brands, files};

/// Returns why a brand can have no more posts: the storage of the workspace's plan is used up, also by texts, as in the
/// API. The text is a sentence.
pub async fn storage_problem(conn: &mut Conn, plans: &Plans, brand_id: i64) -> Result<Option<String>> {
    let Some((workspace_id, plan)) = brands::plan_of(conn, brand_id).await? else { return Ok(None) };
    let Some((plan, max)) = plans.get(&plan).and_then(|plan| Some((plan, plan.storage_mib?))) else {
        return Ok(None);
    };
    let used = files::usage(conn, workspace_id).await?;
    let problem = || format!("The workspace's plan includes {max} MiB of storage, and all of it is used.");
    Ok((!plan.has_room_for_texts(used)).then(problem))
}
