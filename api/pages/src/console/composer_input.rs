//! The input of the composer's form, and the request that is made from it.
//!
//! The form contains the state of the post when the page was rendered (`_accounts`, `_keep`, `_time`, `_labels`), so that
//! the request omits the accounts, the time and the labels that the user did not change. `seen` is the version of the
//! post when the form was opened, so that changes that were made meanwhile, in another tab or by another person, are not
//! lost.

use chrono_tz::Tz;
use crier_domain::account::SocialAccount;
use crier_domain::catalogue::descriptor;
use crier_domain::post::{FirstComment, Post, PostStatus, ScheduleType, Target, ThreadPart};
use crier_endpoints::error::{ApiError, Result};
use crier_endpoints::response::Timestamp;
use crier_endpoints::routes::posts::request::{MAX_ACCOUNTS, MAX_MEDIA};
use crier_store::{posts, targets};
use serde_json::{Map, Value, json};

use super::composer_override::{AccountOverride, apply_options, fields_of, overrides_of};
use super::composer_thread::{comment_of, comment_to_edit, has_threads, thread_of, thread_to_edit};
use super::form::Form;
use super::visit::Visit;

/// The stored version of the post that is edited.
pub struct Stored {
    pub post: Post,
    pub targets: Vec<Target>,
}

impl Stored {
    pub async fn load(visit: &Visit, id: i64) -> Result<Self> {
        let mut conn = visit.app.store.read().await?;
        let found = posts::find(&mut conn, visit.brand()?.0.id, id).await?;
        let post = found.ok_or_else(|| ApiError::not_found("post"))?;
        Ok(Self { targets: targets::list(&mut conn, post.id).await?, post })
    }

    pub fn version(&self) -> Timestamp {
        self.post.updated_at.into()
    }

    pub fn target(&self, account_id: i64) -> Option<&Target> {
        self.targets.iter().find(|target| target.account_id == account_id)
    }

    pub fn omit_accounts(&self) -> OmitAccounts {
        match self.post.status {
            PostStatus::Draft => OmitAccounts::Never,
            PostStatus::PendingApproval | PostStatus::Scheduled => OmitAccounts::IfUnchanged,
            _ => OmitAccounts::Always,
        }
    }

    /// Returns whether the post can be saved and published again on the failed accounts in one step. If it may already
    /// be published on one of them, a person must check that account first.
    pub fn can_save_and_retry(&self) -> bool {
        matches!(self.post.status, PostStatus::Failed | PostStatus::PartiallyPublished) && !self.may_be_published()
    }

    /// Returns whether the post may be on a platform although it has failed there.
    pub fn may_be_published(&self) -> bool {
        self.targets.iter().any(Target::may_be_published)
    }

    /// Returns the labels in the format of the form.
    pub fn labels(&self) -> String {
        self.post.labels.join(", ")
    }

    /// Returns the scheduled time in the format of the form. Empty if there is none.
    pub fn local_time(&self, zone: Tz) -> String {
        let at = self.post.scheduled_at.map(|at| at.with_timezone(&zone));
        at.map_or_else(String::new, |at| at.format("%Y-%m-%dT%H:%M").to_string())
    }
}

/// Whether a request omits the accounts of the post. After a post has left draft, some of its accounts may have been
/// disconnected, and a request with these accounts would be rejected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OmitAccounts {
    #[default]
    Never,
    /// If the user did not change them.
    IfUnchanged,
    /// Always, and also the time, because publishing has begun.
    Always,
}

impl OmitAccounts {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Never => "",
            Self::IfUnchanged => "same",
            Self::Always => "all",
        }
    }

    fn of(word: &str) -> Self {
        match word {
            "same" => Self::IfUnchanged,
            "all" => Self::Always,
            _ => Self::Never,
        }
    }
}

/// What a request does with the post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaveMode {
    Check,
    /// Saves the post and keeps its status.
    Save,
    Draft,
    Schedule,
    /// Adds the post to the queue.
    Queue,
    Now,
}

#[derive(Clone, Debug, Default)]
pub struct ComposerInput {
    pub content: String,
    /// The chosen accounts, or the stored ones if they cannot be changed.
    pub accounts: Vec<i64>,
    pub media: Vec<i64>,
    /// The parts after the first one, which is the text.
    pub thread: Vec<ThreadPart>,
    pub comment: Option<FirstComment>,
    /// `YYYY-MM-DDTHH:MM`, in the brand's time zone.
    pub scheduled_at: String,
    /// Separated by commas.
    pub labels: String,
    pub overrides: Vec<AccountOverride>,
    /// The page of the library that is shown. 0 and 1 are the first page.
    pub library_page: i64,
    /// The account for which the user is choosing images.
    pub picking: Option<i64>,
    /// The index of the part for which the user is choosing images.
    pub picking_part: Option<usize>,
    /// The index of the part whose text has the focus when the page opens.
    pub focused_part: Option<usize>,
    /// The account whose text has the focus when the page opens.
    pub focused: Option<i64>,
    /// The version of the post whose changes the user knows: when the form was opened, or last reported changes.
    pub seen: Timestamp,
    /// The accounts of the post when the page was rendered.
    known_accounts: Vec<i64>,
    /// The scheduled time of the post when the page was rendered.
    known_time: String,
    /// The labels of the post when the page was rendered.
    known_labels: String,
    omit_accounts: OmitAccounts,
    /// The fields of the upload form if its file was rejected.
    pub upload: Form,
}

/// The fields of a request, and the account ID of each override in it.
pub struct PostRequest {
    pub body: Map<String, Value>,
    pub overrides: Vec<i64>,
}

impl ComposerInput {
    pub fn of_form(form: &Form) -> Self {
        let known = form.get("_accounts").split(',').filter_map(|id| id.parse().ok());
        let known_accounts: Vec<i64> = known.take(MAX_ACCOUNTS).collect();
        let omit_accounts = OmitAccounts::of(form.get("_keep"));
        let mut accounts =
            if omit_accounts == OmitAccounts::Always { known_accounts.clone() } else { form.ids("accounts") };
        // Keep one more than the maximum, so that the API rejects the request.
        accounts.truncate(MAX_ACCOUNTS + 1);
        // The stored accounts in their order, then the new ones.
        accounts.sort_by_key(|id| known_accounts.iter().position(|known| known == id).unwrap_or(usize::MAX));
        Self {
            content: form.get("content").to_owned(),
            accounts,
            media: form.ids("media").into_iter().take(MAX_MEDIA + 1).collect(),
            thread: thread_of(form),
            comment: comment_of(form),
            scheduled_at: form.get("scheduled_at").trim().to_owned(),
            labels: form.get("labels").trim().to_owned(),
            overrides: overrides_of(form),
            library_page: form.get("_library").parse().unwrap_or_default(),
            picking: form.get("_picking").parse().ok(),
            picking_part: form.get("_picking_part").parse().ok(),
            focused_part: None,
            focused: None,
            seen: form.seen(),
            known_accounts,
            known_time: form.get("_time").to_owned(),
            known_labels: form.get("_labels").to_owned(),
            omit_accounts,
            upload: Form::default(),
        }
    }

    pub fn of_post(stored: &Stored, zone: Tz) -> Self {
        let account_override = |target: &Target| AccountOverride {
            account_id: target.account_id,
            content: target.content.clone().unwrap_or_default(),
            media: target.media.clone(),
            is_first_only: has_threads(target.platform) && target.thread.as_ref().is_some_and(Vec::is_empty),
            options: target.options.iter().flat_map(|(name, value)| fields_of(target.platform, name, value)).collect(),
        };
        Self {
            content: stored.post.content.clone(),
            accounts: stored.targets.iter().map(|target| target.account_id).collect(),
            media: stored.post.media.clone(),
            thread: thread_to_edit(stored).to_vec(),
            comment: comment_to_edit(stored).cloned(),
            scheduled_at: stored.local_time(zone),
            labels: stored.labels(),
            overrides: stored.targets.iter().map(account_override).collect(),
            seen: stored.version(),
            omit_accounts: stored.omit_accounts(),
            ..Self::default()
        }
    }

    pub fn override_for(&self, account_id: i64) -> Option<&AccountOverride> {
        self.overrides.iter().find(|account_override| account_override.account_id == account_id)
    }

    /// Returns whether publishing had begun when the page was rendered.
    pub fn has_begun(&self) -> bool {
        self.omit_accounts == OmitAccounts::Always
    }

    /// Starts writing a text for an account. The initial text is that of the post.
    pub fn focus_on(&mut self, account_id: i64) {
        self.focused = Some(account_id);
        let content = self.content.clone();
        if let Some(account_override) = self.override_mut(account_id)
            && account_override.content.is_empty()
        {
            account_override.content = content;
        }
    }

    /// Starts choosing images for an account. The initial choice is the images of the post.
    pub fn choose_images(&mut self, account_id: i64) {
        self.picking = Some(account_id);
        let media = self.media.clone();
        if let Some(account_override) = self.override_mut(account_id) {
            account_override.media.get_or_insert(media);
        }
    }

    /// Uses the images of the post for an account.
    pub fn use_post_images(&mut self, account_id: i64) {
        self.picking = None;
        if let Some(account_override) = self.override_mut(account_id) {
            account_override.media = None;
        }
    }

    fn override_mut(&mut self, account_id: i64) -> Option<&mut AccountOverride> {
        self.overrides.iter_mut().find(|account_override| account_override.account_id == account_id)
    }

    /// Adds an image at the end.
    pub fn attach(&mut self, id: i64) {
        if !self.media.contains(&id) {
            self.media.push(id);
        }
    }

    /// Moves an image to the front.
    pub fn put_first(&mut self, id: i64) {
        self.media.retain(|other| *other != id);
        self.media.insert(0, id);
    }

    /// Returns the request. `accounts` are those that the page shows.
    pub fn request(&self, mode: SaveMode, accounts: &[SocialAccount], stored: Option<&Stored>) -> PostRequest {
        let omits_accounts = mode != SaveMode::Check && self.omits_accounts();
        let account_ids = match stored {
            Some(stored) if omits_accounts => stored.targets.iter().map(|target| target.account_id).collect(),
            _ => self.accounts.clone(),
        };
        let mut overrides = Vec::new();
        let mut overridden = Vec::new();
        for id in &account_ids {
            let account = accounts.iter().find(|account| account.id == *id);
            if let Some(entry) = self.request_override(*id, account, stored) {
                overrides.push(entry);
                overridden.push(*id);
            }
        }
        let mut body = Map::new();
        let mut set = |name: &str, value: Value| body.insert(name.to_owned(), value);
        set("content", json!(self.content));
        set("media", json!(self.media));
        // After publishing has begun, the post keeps its parts, and changed ones are overrides of the failed accounts.
        let kept = stored.filter(|_| self.has_begun()).map(|stored| &stored.post.thread);
        if kept.is_none() || mode == SaveMode::Check {
            set("thread", json!(kept.unwrap_or(&self.thread)));
        }
        set("first_comment", json!(self.post_comment(stored)));
        set("overrides", json!(overrides));
        if !omits_accounts {
            set("accounts", json!(account_ids));
        }
        let changes_time = self.scheduled_at != self.known_time && self.omit_accounts != OmitAccounts::Always;
        if changes_time && matches!(mode, SaveMode::Save | SaveMode::Draft | SaveMode::Schedule) {
            set("scheduled_at", json!(Some(&self.scheduled_at).filter(|text| !text.is_empty())));
        }
        // A label of the API may contain a comma, and remains if the labels are not changed.
        if mode != SaveMode::Check && self.labels != self.known_labels.trim() {
            let labels = self.labels.split(',').map(str::trim).filter(|label| !label.is_empty());
            set("labels", labels.collect());
        }
        let schedule_type = match mode {
            SaveMode::Draft => Some(ScheduleType::Draft),
            // A queued post leaves the queue only if the user chooses another time.
            SaveMode::Schedule if !changes_time && stored.is_some_and(|stored| stored.post.queued) => None,
            SaveMode::Queue => Some(ScheduleType::Queue),
            SaveMode::Schedule => Some(ScheduleType::Scheduled),
            SaveMode::Now => Some(ScheduleType::Now),
            SaveMode::Check | SaveMode::Save => None,
        };
        if let Some(schedule_type) = schedule_type {
            set("schedule_type", json!(schedule_type));
        }
        PostRequest { body, overrides: overridden }
    }

    fn omits_accounts(&self) -> bool {
        let sorted = |ids: &[i64]| {
            let mut ids = ids.to_vec();
            ids.sort_unstable();
            ids
        };
        match self.omit_accounts {
            OmitAccounts::Never => false,
            OmitAccounts::IfUnchanged => sorted(&self.accounts) == sorted(&self.known_accounts),
            OmitAccounts::Always => true,
        }
    }

    /// Returns the override for an account: the input, and the stored values of fields that the form does not have.
    fn request_override(&self, id: i64, account: Option<&SocialAccount>, stored: Option<&Stored>) -> Option<Value> {
        let target = stored.and_then(|stored| stored.target(id));
        let account_override = self.override_for(id);
        let content = match account_override {
            Some(account_override) => Some(account_override.content.clone()).filter(|text| !text.trim().is_empty()),
            None => target.and_then(|target| target.content.clone()),
        };
        let mut options = target.map(|target| target.options.clone()).unwrap_or_default();
        if let (Some(account_override), Some(account)) = (account_override, account) {
            apply_options(account_override, account, &mut options);
        }
        let media = match account_override {
            Some(account_override) => account_override.media.clone(),
            None => target.and_then(|target| target.media.clone()),
        };
        let platform = account.map(|account| account.platform).or(target.map(|target| target.platform));
        let (thread, comment) = (self.own_thread(id, platform, stored), self.own_comment(id, stored));
        // The API reports a missing option at its field only if there is an override.
        let needs_options =
            account.is_some_and(|account| !descriptor(account.platform).capabilities.required_options.is_empty());
        let own = [
            ("content", content.map(Value::from)),
            ("media", media.map(Value::from)),
            ("thread", thread.map(|parts| json!(parts))),
            ("first_comment", comment.map(|comment| json!(comment))),
        ];
        if options.is_empty() && own.iter().all(|(_, value)| value.is_none()) && !needs_options {
            return None;
        }
        let own = own.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        let fixed = [("account_id".to_owned(), json!(id)), ("options".to_owned(), Value::Object(options))];
        Some(Value::Object(fixed.into_iter().chain(own).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(form: &str, mode: SaveMode) -> Value {
        ComposerInput::of_form(&Form::parse(form.as_bytes())).request(mode, &[], None).body.into()
    }

    #[test]
    fn a_new_post_names_its_accounts_and_images_in_order() {
        let form = "content=Hi&accounts=3&accounts=1&media=9&media=8&scheduled_at=2026-05-01T09:30\
            &overrides.0.account_id=3&overrides.0.content=Own&overrides.1.account_id=1&overrides.1.content=+";
        let wanted = json!({
            "content": "Hi", "accounts": [3, 1], "media": [9, 8], "thread": [], "first_comment": null,
            "scheduled_at": "2026-05-01T09:30", "schedule_type": "scheduled",
            "overrides": [{ "account_id": 3, "content": "Own", "options": {} }],
        });
        assert_eq!(body(form, SaveMode::Schedule), wanted);
        let now = body(form, SaveMode::Now);
        assert_eq!((&now["schedule_type"], now.get("scheduled_at")), (&json!("now"), None));
    }

    #[test]
    fn what_an_edit_did_not_change_is_left_out() {
        let same = "content=x&_keep=same&_accounts=2,1&accounts=1&accounts=2&_time=T&scheduled_at=T";
        let sent = body(same, SaveMode::Schedule);
        assert_eq!((sent.get("accounts"), sent.get("scheduled_at")), (None, None));
        let other = body("_keep=same&_accounts=2,1&accounts=1&accounts=3&_time=T&scheduled_at=", SaveMode::Draft);
        assert_eq!((&other["accounts"], &other["scheduled_at"]), (&json!([1, 3]), &Value::Null));
        assert!(other.as_object().is_some_and(|fields| fields.contains_key("scheduled_at")));
        let begun = body("_keep=all&_accounts=2&_time=T&scheduled_at=U", SaveMode::Save);
        assert_eq!((begun.get("accounts"), begun.get("scheduled_at")), (None, None));
        let draft = body("_accounts=2,1&accounts=1&accounts=2", SaveMode::Draft);
        assert_eq!(draft["accounts"], json!([2, 1]), "a draft always names its accounts, in their order");
    }

    #[test]
    fn labels_are_separated_by_commas() {
        let sent = |form: &str| body(form, SaveMode::Draft).get("labels").cloned();
        assert_eq!(sent("labels=+spring,,+big+sale,+"), Some(json!(["spring", "big sale"])));
        assert_eq!(sent("_labels=a%2Cb,+c&labels=a%2Cb,+c+"), None);
        assert_eq!(sent("_labels=a,+b&labels="), Some(json!([])));
        assert_eq!(body("labels=a", SaveMode::Check).get("labels"), None);
    }

    #[test]
    fn images_are_attached_once_and_moved_to_the_front() {
        let mut input = ComposerInput { media: vec![1, 2], ..ComposerInput::default() };
        input.attach(3);
        input.attach(1);
        input.put_first(3);
        assert_eq!(input.media, [3, 1, 2]);
    }
}
