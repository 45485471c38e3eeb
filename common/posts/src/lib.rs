//! How posts are written, whoever writes them: a client, a person in the console, an imported file, a feed or a rule for
//! recurring posts.
//!
//! Every change takes the same path. A [`PostChange`] of a stored post, or of an empty draft, gives the resulting post
//! ([`DesiredPost`]); [`check`] validates it with the rules of the platforms; [`apply`] writes it with its targets and
//! their jobs. [`create`], [`update`] and [`submit`] are these steps in a row, in the transaction of the caller.
//!
//! **To add a field of posts:** add it to [`PostChange`], [`DesiredPost`] and `Decision::apply_to`, and to the requests
//! in `api/endpoints/src/routes/posts`.

use chrono::{DateTime, Utc};
use crier_base::problems::Problems;
use crier_domain::access::Role;
use crier_domain::plan::Plans;
use crier_domain::post::{Post, Target};
use crier_media::Library;
use crier_platforms::ConnectorRegistry;
use crier_store::{Conn, Tx, brands};

pub mod apply;
pub mod article;
pub mod change;
pub mod check;
pub mod desired;
mod error;
pub mod queue;
pub mod warnings;

pub use change::{PostChange, PostOverride};
pub use desired::DesiredPost;
pub use error::{PostError, Result};

/// Who writes a post, in which brand, and with what it is checked.
#[derive(Clone, Copy)]
pub struct PostContext<'a> {
    pub brand_id: i64,
    pub workspace_id: i64,
    /// The user who is the author of new posts, with their name.
    pub author: (i64, &'a str),
    /// The user's role in the brand.
    pub role: Role,
    /// The cap of the workspace's plan.
    pub posts_per_month: Option<u64>,
    pub platforms: &'a ConnectorRegistry,
    pub library: &'a Library,
    pub now: DateTime<Utc>,
    /// The trace of jobs.
    pub trace: Option<&'a str>,
}

impl PostContext<'_> {
    /// Returns the empty draft that becomes a new post.
    pub fn empty_draft(&self) -> Post {
        let (id, name) = self.author;
        Post { author_id: Some(id), author_name: Some(name.to_owned()), ..Post::draft(self.brand_id, self.now) }
    }
}

/// A member of a brand in whose name posts are written outside of a request.
#[derive(Clone, Debug)]
pub struct Member {
    pub user_id: i64,
    pub user_name: String,
    pub role: Role,
    pub workspace_id: i64,
    pub posts_per_month: Option<u64>,
    pub timezone: String,
}

impl Member {
    /// Finds a member of a brand. `None` if the user is no longer a member, or the brand does not exist.
    pub async fn find(conn: &mut Conn, plans: &Plans, brand_id: i64, user_id: i64) -> Result<Option<Self>> {
        let Some(found) = brands::member(conn, brand_id, user_id).await? else { return Ok(None) };
        let plan = plans.get(&found.plan);
        let plan = plan.ok_or_else(|| PostError::Bug(format!("the plans file has no plan `{}`", found.plan)))?;
        Ok(Some(Self {
            user_id,
            user_name: found.name,
            role: found.role,
            workspace_id: found.workspace_id,
            posts_per_month: plan.posts_per_month,
            timezone: found.timezone,
        }))
    }

    /// Returns the context of a post that the member writes.
    pub fn context<'a>(
        &'a self,
        brand_id: i64,
        platforms: &'a ConnectorRegistry,
        library: &'a Library,
        now: DateTime<Utc>,
    ) -> PostContext<'a> {
        PostContext {
            brand_id,
            workspace_id: self.workspace_id,
            author: (self.user_id, &self.user_name),
            role: self.role,
            posts_per_month: self.posts_per_month,
            platforms,
            library,
            now,
            trace: None,
        }
    }
}

/// Creates a post: a change of an empty draft. `problems` has those that were already found. Returns the stored post and
/// its targets.
pub async fn create(
    cx: &PostContext<'_>,
    tx: &mut Tx,
    change: &PostChange,
    problems: Problems,
) -> Result<(Post, Vec<Target>)> {
    let draft = cx.empty_draft();
    create_from(cx, tx, draft, change, false, problems).await
}

/// Creates a post from a draft that is not stored. `submits`: whether it is submitted for approval.
pub async fn create_from(
    cx: &PostContext<'_>,
    tx: &mut Tx,
    draft: Post,
    change: &PostChange,
    submits: bool,
    problems: Problems,
) -> Result<(Post, Vec<Target>)> {
    let mut desired = DesiredPost { submits, ..DesiredPost::from_change(&draft, &[], change) };
    let accounts = check::validate(cx, tx, &draft, &mut desired, change, problems).await?;
    apply::create(cx, tx, draft, &desired, &accounts).await
}

/// Changes a post whose row is locked. `problems` has those that were already found. Returns the stored post.
pub async fn update(
    cx: &PostContext<'_>,
    tx: &mut Tx,
    post: Post,
    change: &PostChange,
    problems: Problems,
) -> Result<Post> {
    let current = apply::load_target_states(cx, tx, post.id).await?;
    let mut desired = DesiredPost::from_change(&post, &current, change);
    let accounts = check::validate(cx, tx, &post, &mut desired, change, problems).await?;
    apply::execute(cx, tx, post, &current, &desired, &accounts).await
}

/// Submits a draft for approval. The caller has locked its row and checked its status. Returns the stored post.
pub async fn submit(cx: &PostContext<'_>, tx: &mut Tx, post: Post) -> Result<Post> {
    let current = apply::load_target_states(cx, tx, post.id).await?;
    let change = PostChange::default();
    let mut desired = DesiredPost { submits: true, ..DesiredPost::from_change(&post, &current, &change) };
    let accounts = check::validate(cx, tx, &post, &mut desired, &change, Problems::default()).await?;
    apply::execute(cx, tx, post, &current, &desired, &accounts).await
}
