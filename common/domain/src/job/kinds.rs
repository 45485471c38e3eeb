//! The kinds of jobs: the registry, with their names and limits.
//!
//! They are here and not in a kind's own file in [`crier_jobs`], because the store needs them (it applies the limits,
//! and selects only jobs of known kinds), and those files need the store. `CONTRIBUTING.md` has the recipe for a new
//! kind.

/// The registry: passes one line per kind to a macro, `Kind = name { limits }`. It is the only list of kinds; whatever
/// needs all of them is generated from it, iterates over [`JobKind::ALL`], or is a `match` that the compiler checks.
///
/// The name is the module of the kind in `crier_jobs` and in the worker. It is also stored in `jobs`: never change it.
#[macro_export]
macro_rules! for_each_job_kind {
    ($macro:ident) => {
        $macro! {
            PublishTarget = publish_target { max_attempts: 8, lane_cap: Some(4), workspace_cap: Some(512) },
            // The lane is the account, as for its posts.
            PublishComment = publish_comment { max_attempts: 8, lane_cap: Some(4), workspace_cap: Some(64) },
            UnpublishTarget = unpublish_target { max_attempts: 8, lane_cap: Some(4), workspace_cap: Some(64) },
            // The delivery's own `max_attempts` decides; a manual retry raises it. An open circuit lowers the lane's
            // cap.
            DeliverWebhook = deliver_webhook { max_attempts: 1_000, lane_cap: Some(128), workspace_cap: Some(512) },
            SendMail = send_mail { max_attempts: 8, lane_cap: Some(8), workspace_cap: None },
            // The subject is a user. It only writes the email, which `send_mail` sends.
            SendDigest = send_digest { max_attempts: 5, lane_cap: None, workspace_cap: None },
            // A failed fetch is not a failed job: these attempts are for crashes and database outages. The lane is the
            // host: it limits the concurrent requests to the host, and a slow host does not delay others.
            FetchFeed = fetch_feed { max_attempts: 5, lane_cap: Some(4), workspace_cap: Some(128) },
            // The lane is the feed, so that its posts are created in their order. A rejected post is not a failed job:
            // these attempts are for crashes and database outages.
            PostArticle = post_article { max_attempts: 5, lane_cap: Some(1), workspace_cap: Some(16) },
            // The lane is the brand: a brand that imports a whole catalog does not delay the others. A download keeps
            // its slot because its data uses memory and disk space.
            ImportMedia = import_media { max_attempts: 5, lane_cap: Some(4), workspace_cap: Some(16) },
            // A rejected or failed renewal is not a failed job: these attempts are for crashes and database outages.
            RefreshToken = refresh_token { max_attempts: 5, lane_cap: Some(1), workspace_cap: Some(64) },
            // The lane is the account, as for its posts: a rate limit of the platform pauses all of them. A failed sync
            // is not a failed job: these attempts are for crashes and database outages.
            SyncInbox = sync_inbox { max_attempts: 5, lane_cap: Some(4), workspace_cap: Some(64) },
            SendReply = send_reply { max_attempts: 8, lane_cap: Some(4), workspace_cap: Some(64) },
            // A rejection by the platform is not a failed job: these attempts are for crashes and database outages. The
            // lane is the account. All kinds in this lane have the same cap: a lower one would hold back posts behind
            // it.
            CollectAnalytics = collect_analytics { max_attempts: 5, lane_cap: Some(4), workspace_cap: Some(16) },
            // The lane is the brand, apart from its imports: thousands of images do not delay a report. Rendering uses
            // memory and a core for seconds, so it keeps its slot, and the cap of a workspace leaves slots for the
            // others.
            ExportReport = export_report { max_attempts: 5, lane_cap: Some(2), workspace_cap: Some(2) },
            // The lane is the brand, apart from its imports: a catalog that is imported does not delay posts. A rejection
            // is not a failed job: these attempts are for crashes and database outages.
            MakeOccurrences = make_occurrences { max_attempts: 5, lane_cap: Some(2), workspace_cap: Some(8) },
            // The lane is the brand, as for imports of images. A brand imports only one file of posts at a time.
            ImportPosts = import_posts { max_attempts: 5, lane_cap: Some(4), workspace_cap: Some(2) },
            Noop = noop { max_attempts: 5, lane_cap: None, workspace_cap: None },
        }
    };
}

/// The fixed limits of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindLimits {
    /// Maximum number of runs; a crash counts as one.
    pub max_attempts: i32,
    /// Maximum number of concurrent jobs of one lane; `None`: no cap.
    pub lane_cap: Option<i64>,
    /// Maximum number of concurrent jobs of one workspace across all lanes; `None`: no cap. It only serves fairness:
    /// workers that claim concurrently may exceed it by the size of their claims.
    pub workspace_cap: Option<i64>,
}

/// Generates [`JobKind`]. Exported for a test that adds a kind to its own registry.
#[doc(hidden)]
#[macro_export]
macro_rules! declare_job_kind {
    ($($kind:ident = $name:ident $limits:tt),+ $(,)?) => {
        crier_base::text_enum! {
            pub enum JobKind { $($kind = stringify!($name)),+ }
        }

        impl JobKind {
            pub const fn limits(self) -> $crate::job::KindLimits {
                match self { $(Self::$kind => $crate::job::KindLimits $limits),+ }
            }
        }
    };
}

for_each_job_kind!(declare_job_kind);
