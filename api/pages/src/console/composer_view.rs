//! The page of the composer: what its template shows, from the input of the form and the records of the brand.
//!
//! **To add a field:** read it in `composer_input.rs`, add it to [`Composer`] or `ComposerAccount` here, and show it in
//! `composer.html`.

use askama::Template;
use crier_domain::account::{AccountStatus, SocialAccount};
use crier_domain::catalogue::descriptor;
use crier_domain::limits::Board;
use crier_domain::media::AssetType;
use crier_domain::plan::Feature;
use crier_domain::post::PostStatus;
use crier_endpoints::admission::plan;
use crier_endpoints::error::{ApiError, ErrorCode, Result};
use crier_endpoints::routes::queue::next::{self, ListFreeSlots};
use crier_endpoints::routes::snippets::{self, Snippet};
use crier_platforms::link_card;
use crier_platforms::options::{self, OptionKind};
use crier_store::{PageRequest, media};
use http::StatusCode;

use super::account_choices;
use super::avatar::avatar_url;
use super::composer_check::{Check, check};
use super::composer_images::{AccountImages, Chosen, Offered};
use super::composer_input::{ComposerInput, OmitAccounts, Stored};
use super::composer_override::AccountOverride;
use super::composer_thread::has_threads;
use super::composer_thread_fields::{CommentFields, ThreadFields};
use super::post_labels::suggested_labels;
use super::post_options::{choice_label, label_and_hint};
use super::post_rows::{chip, image};
use super::shared::{AccountChip, Choice, FieldErrors, Image, Time};
use super::shell::{Section, Shell};
use super::visit::{PageReply, Visit};

/// If the brand has more accounts than this, only the chosen ones have a section in the form.
const MAX_PARTS: usize = 40;
/// The maximum number of snippets to choose from, the newest ones.
const MAX_SNIPPETS: usize = 200;
/// The number of images and videos per page of the library.
const LIBRARY_PAGE: i64 = 12;

#[derive(Template)]
#[template(path = "console/composer.html")]
pub struct Composer {
    shell: Shell,
    errors: FieldErrors,
    /// The ID of the post that is edited. `None` for a new post.
    post: Option<i64>,
    /// The reason why parts of the post can no longer be changed.
    locked: Option<String>,
    accounts: Vec<ComposerAccount>,
    /// Whether some accounts have no section in the form.
    has_more_parts: bool,
    /// Whether the accounts can no longer be changed.
    is_fixed: bool,
    /// The field `_accounts`.
    known_accounts: String,
    /// The field `_keep`.
    omit_accounts: &'static str,
    /// The field `_time`.
    known_time: String,
    /// The field `seen`.
    seen: i64,
    content: String,
    thread: ThreadFields,
    comment: CommentFields,
    /// Separated by commas.
    labels: String,
    /// The field `_labels`.
    known_labels: String,
    suggested_labels: Vec<String>,
    /// The snippets that can be inserted, by name.
    snippets: Vec<Choice>,
    /// The chosen images and videos, in order.
    chosen: Vec<Image>,
    /// A page of the library without the chosen images and videos, newest first.
    library: Vec<Image>,
    library_page: i64,
    library_prev: Option<i64>,
    library_next: Option<i64>,
    /// The submitted description of the upload form.
    upload_alt_text: String,
    /// Whether the upload form was submitted with a video.
    is_video_upload: bool,
    /// The account for which the user is choosing images.
    picking: Option<i64>,
    /// The index of the part for which the user is choosing images.
    picking_part: Option<usize>,
    /// `YYYY-MM-DDTHH:MM`, in the brand's time zone.
    scheduled_at: String,
    earliest: String,
    buttons: Buttons,
    /// The next free slot of the queue for the chosen accounts.
    next_slot: Option<Time>,
    /// Whether the form has unsaved input.
    is_unsaved: bool,
    check: Check,
}

impl Composer {
    fn has_expired(&self) -> bool {
        self.accounts.iter().any(|account| account.problem.is_some())
    }
}

/// The buttons of the form. They depend on the status of the post. Some have a label.
#[derive(Clone, Copy, Debug, Default)]
pub struct Buttons {
    pub time: bool,
    pub schedule: Option<&'static str>,
    /// Adds the post to the queue.
    pub queue: bool,
    pub publish: bool,
    pub draft: Option<&'static str>,
    /// Saves the post and keeps its status.
    pub save: bool,
    /// Saves the post and publishes it again on the failed accounts.
    pub retry: bool,
    pub submit: bool,
}

/// An account to choose.
struct ComposerAccount {
    id: i64,
    account: AccountChip,
    /// The URL of the avatar.
    avatar: Option<String>,
    checked: bool,
    /// The reason why the account should not be chosen.
    problem: Option<&'static str>,
    /// The position in the list. The names of the fields contain it: `overrides.INDEX.content`.
    index: usize,
    /// The text for this account. Empty for the text of the post.
    content: String,
    images: AccountImages,
    options: Vec<PostOption>,
    /// Whether the account has a section in the form.
    has_part: bool,
    /// Whether its platform has threads.
    has_threads: bool,
    /// Whether only the first part of the thread is published.
    is_first_only: bool,
    /// Whether the text is published, and a later part of the thread is not.
    is_text_published: bool,
    /// Whether the section is open, because it has values.
    is_open: bool,
    /// Whether the text has the focus when the page opens.
    has_focus: bool,
}

/// An option of a platform, in addition to text and images.
struct PostOption {
    name: &'static str,
    label: String,
    hint: &'static str,
    required: bool,
    value: OptionValue,
}

enum OptionValue {
    Text {
        value: String,
        max: usize,
    },
    Link(String),
    /// A board of the account, or another one by its ID.
    Board {
        choices: Vec<Choice>,
        other: String,
        max: usize,
    },
    /// The first choice is the default, with an empty value.
    OneOf(Vec<Choice>),
    Boolean(bool),
    /// A time in a video, in seconds.
    Seconds(String),
    /// The first choice is that of no image.
    Image(Vec<Choice>),
    LinkCard(LinkCardFields),
}

/// The fields of a link card. Those that are empty are read from the page.
struct LinkCardFields {
    /// Whether the post has a card.
    modes: Vec<Choice>,
    url: String,
    title: String,
    description: String,
    images: Vec<Choice>,
}

impl LinkCardFields {
    fn new(account_override: &AccountOverride, offered: &Offered) -> Self {
        let is_off = account_override.option(link_card::OPTION) == "false";
        let field = |name| account_override.link_card_field(name).to_owned();
        Self {
            modes: vec![Choice::new("", "For the first link", !is_off), Choice::new("false", "No link card", is_off)],
            url: field("url"),
            title: field("title"),
            description: field("description"),
            images: offered.image_choices(&field("media_id"), "Image of the page"),
        }
    }
}

/// Returns the choice among the boards of the account, by name. A board that is not among them keeps its ID.
fn board_value(account: &SocialAccount, value: String, max: usize) -> OptionValue {
    let choice = |board: &Board| Choice::new(&board.id, &board.name, board.id == value);
    let mut choices: Vec<Choice> = account.boards().iter().map(choice).collect();
    choices.sort_by_cached_key(|choice| choice.label.to_lowercase());
    let is_chosen = choices.iter().any(|choice| choice.selected);
    choices.insert(0, Choice::new("", "Choose a board", !is_chosen));
    OptionValue::Board { choices, other: if is_chosen { String::new() } else { value }, max }
}

impl ComposerAccount {
    fn is_picking(&self) -> bool {
        matches!(self.images, AccountImages::Picking { .. })
    }

    fn path(&self, field: impl std::fmt::Display) -> String {
        format!("overrides.{}.{field}", self.index)
    }

    fn new(
        index: usize,
        brand: i64,
        account: &SocialAccount,
        input: &ComposerInput,
        stored: Option<&Stored>,
        offered: &Offered,
    ) -> Self {
        let target = stored.and_then(|stored| stored.target(account.id));
        let none = AccountOverride::default();
        let account_override = input.override_for(account.id).unwrap_or(&none);
        let required = descriptor(account.platform).capabilities.required_options;
        let option = |option: &options::PostOption| {
            let (label, hint) = label_and_hint(option.name);
            let value = account_override.option(option.name).to_owned();
            let value = match option.kind {
                OptionKind::Text(max) if option.name == options::BOARD && !account.boards().is_empty() => {
                    board_value(account, value, max)
                }
                OptionKind::Text(max)
                | OptionKind::Utf16Text(max)
                | OptionKind::PlainText(max)
                | OptionKind::Tag(max) => OptionValue::Text { value, max },
                OptionKind::Language => OptionValue::Text { value, max: options::MAX_LANGUAGE },
                OptionKind::Subreddit => OptionValue::Text { value, max: 50 },
                OptionKind::Link => OptionValue::Link(value),
                // With a checkbox, nobody would have to decide.
                OptionKind::Boolean if required.contains(&option.name) => {
                    let choices = [("", "Choose yes or no"), ("true", "Yes"), ("false", "No")];
                    OptionValue::OneOf(choices.map(|(word, label)| Choice::new(word, label, word == value)).into())
                }
                OptionKind::Boolean => OptionValue::Boolean(value == "true"),
                OptionKind::Milliseconds => OptionValue::Seconds(value),
                OptionKind::Image => OptionValue::Image(offered.image_choices(&value, "Chosen by the platform")),
                OptionKind::LinkCard => OptionValue::LinkCard(LinkCardFields::new(account_override, offered)),
                OptionKind::OneOf(words) => {
                    let choice = |word: &&str| Choice::new(word, &choice_label(word), *word == value);
                    let is_required = required.contains(&option.name);
                    let none = if is_required { "Choose an option" } else { "Platform or account default" };
                    let none = Choice::new("", none, value.is_empty());
                    OptionValue::OneOf([none].into_iter().chain(words.iter().map(choice)).collect())
                }
            };
            PostOption { name: option.name, label, hint, required: required.contains(&option.name), value }
        };
        let is_expired = account.status == AccountStatus::Expired;
        let checked = input.accounts.contains(&account.id);
        Self {
            id: account.id,
            account: chip(account),
            avatar: avatar_url(brand, account),
            checked,
            has_part: offered.accounts <= MAX_PARTS || checked || !account_override.is_empty(),
            has_threads: has_threads(account.platform),
            is_first_only: account_override.is_first_only,
            is_text_published: target.is_some_and(|target| target.is_retried() && !target.published_parts.is_empty()),
            problem: is_expired.then_some("Expired. Reconnect it to publish."),
            index,
            content: account_override.content.clone(),
            images: offered.for_account(account_override, input),
            options: options::of(account.platform).iter().map(option).collect(),
            is_open: !account_override.is_empty(),
            has_focus: input.focused == Some(account.id),
        }
    }
}

impl Buttons {
    fn of(stored: Option<&Stored>, has_approvals: bool, can_publish: bool) -> Self {
        let base = Self { time: true, ..Self::default() };
        match stored.map(|stored| stored.post.status) {
            None | Some(PostStatus::Draft) if !can_publish => {
                Self { draft: Some("Save draft"), submit: has_approvals, ..base }
            }
            None | Some(PostStatus::Draft) => Self {
                schedule: Some("Schedule"),
                queue: true,
                publish: true,
                draft: Some("Save draft"),
                submit: has_approvals,
                ..base
            },
            Some(PostStatus::Scheduled) => Self {
                schedule: Some("Save changes"),
                queue: stored.is_some_and(|stored| !stored.post.queued),
                publish: true,
                draft: Some("Return to draft"),
                ..base
            },
            Some(PostStatus::PendingApproval) => Self { save: true, ..base },
            // It was published while its form was open.
            Some(PostStatus::Publishing | PostStatus::Published) => Self::default(),
            Some(_) => {
                let retry = can_publish && stored.is_some_and(Stored::can_save_and_retry);
                Self { save: true, retry, time: false, ..base }
            }
        }
    }
}

/// The source of the values in the form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// The stored post, or a new one.
    Stored,
    /// Unsaved input.
    Input,
}

/// Shows the composer.
pub async fn show(
    visit: &Visit,
    stored: Option<&Stored>,
    input: ComposerInput,
    errors: FieldErrors,
    contents: Contents,
) -> Result<PageReply> {
    let brand = visit.brand()?.0.id;
    let mut conn = visit.app.store.read().await?;
    let accounts = account_choices::load(visit, &mut conn, &input.accounts).await?;
    let chosen = Chosen::load(visit, &mut conn, &input, stored).await?;
    let page = input.library_page.max(1);
    let library = media::list_for_posts(&mut conn, brand, PageRequest { page, per_page: LIBRARY_PAGE }).await?;
    drop(conn);
    let targets = stored.map_or(&[][..], |stored| &stored.targets);
    let check = check(visit, &input, stored, &accounts, &chosen).await?;
    let shown = targets.iter().map(|target| target.account_id);
    let shown = shown.filter(|id| accounts.iter().any(|account| account.id == *id));
    let is_last = page.saturating_mul(LIBRARY_PAGE) >= library.total;
    let library = library.rows.into_iter().map(|asset| image(visit, asset)).collect();
    let offered = Offered { accounts: accounts.len(), chosen, library };
    let has_approvals = plan(&visit.app, &visit.authenticated.caller)?.has(Feature::Approvals);
    let page = Composer {
        shell: visit.shell(Section::Posts, if stored.is_some() { "Edit post" } else { "New post" }),
        post: stored.map(|stored| stored.post.id),
        locked: stored.and_then(lock_notice),
        accounts: accounts
            .iter()
            .enumerate()
            .map(|(index, account)| ComposerAccount::new(index, brand, account, &input, stored, &offered))
            .collect(),
        has_more_parts: accounts.len() > MAX_PARTS,
        is_fixed: stored.is_some_and(|stored| stored.omit_accounts() == OmitAccounts::Always),
        known_accounts: shown.map(|id| id.to_string()).collect::<Vec<_>>().join(","),
        omit_accounts: stored.map_or("", |stored| stored.omit_accounts().as_str()),
        known_time: stored.map_or_else(String::new, |stored| stored.local_time(visit.zone())),
        seen: input.seen.0.timestamp_micros(),
        content: input.content.clone(),
        thread: ThreadFields::new(&input, stored, &accounts, &offered),
        comment: CommentFields::new(&input, &accounts),
        labels: input.labels.clone(),
        known_labels: stored.map_or_else(String::new, Stored::labels),
        suggested_labels: suggested_labels(visit).await?,
        snippets: snippets(visit).await?,
        chosen: offered.chosen.in_field(&input.media),
        library_prev: (page > 1).then(|| page - 1),
        library_next: (!is_last).then(|| page + 1),
        library_page: page,
        library: offered.library_without(&input.media),
        upload_alt_text: input.upload.get("alt_text").to_owned(),
        is_video_upload: input.upload.get("asset_type") == AssetType::Video.as_str(),
        picking: input.picking,
        picking_part: input.picking_part,
        scheduled_at: input.scheduled_at.clone(),
        earliest: visit.now.with_timezone(&visit.zone()).format("%Y-%m-%dT%H:%M").to_string(),
        buttons: Buttons::of(stored, has_approvals, visit.can_publish()),
        next_slot: next_slot(visit, &input).await?,
        is_unsaved: contents == Contents::Input,
        check,
        errors,
    };
    let status = if page.errors.is_empty() { StatusCode::OK } else { StatusCode::UNPROCESSABLE_ENTITY };
    visit.page_with(status, &page)
}

/// Returns the next free slot of the queue for the chosen accounts. `None` if there is none.
async fn next_slot(visit: &Visit, input: &ComposerInput) -> Result<Option<Time>> {
    let accounts = Some(input.accounts.clone()).filter(|accounts| !accounts.is_empty());
    let found = visit.call().read(next::endpoint(), ListFreeSlots { accounts, count: Some(1) }).await?;
    Ok(found.first().map(|slot| visit.time(slot.scheduled_at.0)))
}

/// Returns the snippets that can be inserted.
async fn snippets(visit: &Visit) -> Result<Vec<Choice>> {
    let all = visit.call().read(snippets::list::endpoint(), ()).await?;
    let choice = |snippet: &Snippet| Choice::new(&snippet.id.to_string(), &snippet.name, false);
    let mut choices: Vec<Choice> = all.iter().take(MAX_SNIPPETS).map(choice).collect();
    choices.sort_by_cached_key(|choice| choice.label.to_lowercase());
    Ok(choices)
}

/// Returns a notice about what cannot be changed if publishing has begun, and what to do.
fn lock_notice(stored: &Stored) -> Option<String> {
    let published = stored.targets.iter().any(|target| target.status.was_published());
    let what = match stored.post.status {
        PostStatus::Draft | PostStatus::PendingApproval | PostStatus::Scheduled => return None,
        PostStatus::Publishing | PostStatus::Published => {
            return Some("This form can no longer be saved. Copy what you still need.".to_owned());
        }
        _ if stored.targets.iter().any(|target| target.is_retried() && !target.published_parts.is_empty()) => {
            "The first parts of this thread are published and cannot be changed. Change the other parts below."
        }
        _ if published => {
            "This post is already published on some accounts and cannot be changed there. Change the text for the \
             other accounts below."
        }
        _ => "The accounts and time of this post can no longer be changed.",
    };
    let then = if stored.can_save_and_retry() {
        "“Save and retry” publishes the post again on the failed accounts only."
    } else {
        "Save, and retry from the post's page."
    };
    Some(format!("{what} {then}"))
}

/// Returns an error if the post can no longer be edited.
pub fn check_editable(stored: &Stored) -> Result<()> {
    let why = match stored.post.status {
        PostStatus::Publishing => "The post is being published. It can be edited only if publishing fails.",
        PostStatus::Published => "The post is published. It can only be changed on the platforms.",
        _ => return Ok(()),
    };
    Err(ApiError::new(ErrorCode::PostNotEditable, why))
}
