//! The composer's panel "Preview": the results of checking the post against the rules of the platforms, and a preview.

use askama::Template;
use crier_domain::account::SocialAccount;
use crier_domain::catalogue::descriptor;
use crier_domain::platform::TextRules;
use crier_domain::snippet::parts_with;
use crier_endpoints::error::Result;
use crier_endpoints::fields::time;
use crier_endpoints::routes::posts::validate::{self, ValidatePostRequest, ValidatedPart};
use crier_platforms::text;
use serde_json::json;

use super::account_choices;
use super::composer_card::card_request;
use super::composer_images::Chosen;
use super::composer_input::{ComposerInput, SaveMode, Stored};
use super::composer_thread::has_threads;
use super::post_preview::PostPreview;
use super::post_rows::chip;
use super::shared::AccountChip;
use super::visit::{PageReply, Visit};
use super::wording::in_quotes;

/// The maximum number of accounts that are checked.
const MAX_CHECKED: usize = 30;
/// The maximum number of problems that are shown for the post as a whole.
const MAX_PROBLEMS: usize = 10;

/// The panel. `posts/check` returns it as an HTML fragment.
#[derive(Default, Template)]
#[template(path = "console/check.html")]
pub struct Check {
    /// Problems of the post as a whole.
    problems: Vec<String>,
    rows: Vec<CheckRow>,
    /// The number of accounts that were not checked.
    more: usize,
}

/// The result for one account.
struct CheckRow {
    account: AccountChip,
    length: u32,
    limit: Option<u32>,
    problems: Vec<CheckProblem>,
    warnings: Vec<CheckProblem>,
    /// What is not published on the account.
    notes: Vec<String>,
    preview: PostPreview,
    card: Option<CardSlot>,
    /// The posts that follow: the other parts of the thread, and the first comment.
    chain: Vec<ChainedPost>,
}

/// A problem or a warning.
struct CheckProblem {
    text: String,
    /// Whether it is about the images and videos.
    is_media: bool,
}

/// A part of a thread after the first one, or the first comment.
struct ChainedPost {
    label: String,
    length: u32,
    limit: Option<u32>,
    preview: PostPreview,
}

/// The place of a link card, which the script fills.
struct CardSlot {
    /// The link of the card.
    link: String,
    /// The path that returns the card.
    path: String,
    /// Changes whenever the card may look different.
    key: String,
}

impl CheckProblem {
    fn new(field: &str, text: &str) -> Self {
        Self { text: in_quotes(text), is_media: field.split('.').any(|part| part == "media") }
    }
}

impl Check {
    /// Returns the problems of images and videos, each with its account and the class of its text. The form shows them
    /// beside its images and videos.
    pub fn media_problems(&self) -> Vec<(&AccountChip, &'static str, &str)> {
        self.rows.iter().flat_map(CheckRow::media_problems).collect()
    }

    fn count(&self) -> usize {
        self.problems.len() + self.rows.iter().map(|row| row.problems.len()).sum::<usize>()
    }
}

impl CheckRow {
    fn media_problems(&self) -> Vec<(&AccountChip, &'static str, &str)> {
        let problems = self.problems.iter().map(|problem| ("error", problem));
        let all = problems.chain(self.warnings.iter().map(|warning| ("warning", warning)));
        let of_media = all.filter(|(_, problem)| problem.is_media);
        of_media.map(|(class, problem)| (&self.account, class, problem.text.as_str())).collect()
    }

    /// Returns the maximum of the meter.
    fn top(&self) -> u32 {
        self.length.max(self.limit.unwrap_or_default()).max(1)
    }

    fn is_over(&self) -> bool {
        self.limit.is_some_and(|limit| self.length > limit)
    }
}

impl ChainedPost {
    fn is_over(&self) -> bool {
        self.limit.is_some_and(|limit| self.length > limit)
    }
}

/// Returns the panel as an HTML fragment.
pub async fn show_check(visit: &Visit, stored: Option<&Stored>, input: &ComposerInput) -> Result<PageReply> {
    let mut conn = visit.app.store.read().await?;
    let accounts = account_choices::load(visit, &mut conn, &input.accounts).await?;
    let chosen = Chosen::load(visit, &mut conn, input, stored).await?;
    drop(conn);
    visit.page(&check(visit, input, stored, &accounts, &chosen).await?)
}

/// Checks the post against the rules of the platforms of the chosen accounts.
pub async fn check(
    visit: &Visit,
    input: &ComposerInput,
    stored: Option<&Stored>,
    accounts: &[SocialAccount],
    chosen: &Chosen,
) -> Result<Check> {
    let connected = |id: &i64| accounts.iter().any(|account| account.id == *id);
    let mut account_ids: Vec<i64> = input.accounts.iter().copied().filter(connected).collect();
    if account_ids.is_empty() || input.content.is_empty() && chosen.of(&input.media).is_empty() {
        return Ok(Check::default());
    }
    let more = account_ids.len().saturating_sub(MAX_CHECKED);
    account_ids.truncate(MAX_CHECKED);
    let mut input = input.clone();
    (input.accounts, input.media) = (account_ids, chosen.of(&input.media).iter().map(|image| image.id).collect());
    for part in &mut input.thread {
        part.media = chosen.of(&part.media).iter().map(|image| image.id).collect();
    }
    input.drop_empty_parts();
    let mut request = input.request(SaveMode::Check, accounts, stored);
    request.body.values_mut().for_each(|value| chosen.remove_deleted(value));
    request.body.insert("post_id".to_owned(), json!(stored.map(|stored| stored.post.id)));
    // Other times are reported when the post is saved.
    let planned_at = time::parse(&input.scheduled_at, visit.zone()).filter(|at| *at > visit.now);
    request.body.insert("scheduled_at".to_owned(), json!(planned_at));
    let post = visit.parse::<ValidatePostRequest>(&request.body);
    let found = match visit.call().read(validate::endpoint(), post).await {
        Ok(found) => found,
        Err(error) if error.code.status().is_client_error() => {
            let all = error.fields.values().flatten().take(MAX_PROBLEMS);
            let mut problems: Vec<String> = all.map(|problem| in_quotes(problem)).collect();
            if problems.is_empty() {
                problems.push(in_quotes(&error.message));
            }
            return Ok(Check { problems, ..Check::default() });
        }
        Err(error) => return Err(error),
    };
    let brand = visit.brand()?.0.id;
    let rows = found.targets.into_iter().filter_map(|target| {
        let account = accounts.iter().find(|account| account.id == target.account_id)?;
        let account_override = input.override_for(account.id);
        let media =
            account_override.and_then(|account_override| account_override.media.as_deref()).unwrap_or(&input.media);
        let format = account_override.map_or("", |account_override| account_override.option("format"));
        let text = parts_with(target.signature.as_deref(), input.text_on(account.id)).concat();
        Some(CheckRow {
            account: chip(account),
            length: target.length,
            limit: target.limit,
            problems: target
                .problems
                .into_iter()
                .map(|problem| CheckProblem::new(&problem.field, &without_account(account, &problem.message)))
                .collect(),
            warnings: target
                .warnings
                .into_iter()
                .map(|warning| CheckProblem::new(&warning.field, &warning.message))
                .collect(),
            notes: notes(&input, account, stored),
            preview: PostPreview::new(brand, account, &text, chosen.of(media)).in_format(format),
            chain: chain(brand, &input, account, stored, chosen, &target.parts),
            card: card_request(&input, account, target.signature.as_deref()).map(|card| CardSlot {
                path: format!("/brands/{brand}/posts/card?account={}", account.id),
                key: format!("{card:?}"),
                link: card.url,
            }),
        })
    });
    Ok(Check { problems: Vec::new(), rows: rows.collect(), more })
}

/// Returns what an account does not publish of the post.
fn notes(input: &ComposerInput, account: &SocialAccount, stored: Option<&Stored>) -> Vec<String> {
    let descriptor = descriptor(account.platform);
    let mut notes = Vec::new();
    if !input.thread.is_empty() && !has_threads(account.platform) {
        notes.push(format!("{} publishes only the first part.", descriptor.name));
    }
    let comment = input.comment_on(account.id, stored);
    if comment.is_some() && descriptor.capabilities.first_comment.is_none() {
        notes.push(format!("Crier cannot comment on {}.", descriptor.name));
    }
    notes
}

/// Returns the posts that follow the first part on an account. `checked`: the lengths of its parts.
fn chain(
    brand: i64,
    input: &ComposerInput,
    account: &SocialAccount,
    stored: Option<&Stored>,
    chosen: &Chosen,
    checked: &[ValidatedPart],
) -> Vec<ChainedPost> {
    let descriptor = descriptor(account.platform).with_limits(account.limits.as_ref());
    let thread = input.thread_on(account, stored);
    let mut chain = Vec::new();
    for (position, part) in (2..).zip(&thread) {
        let checked = checked.iter().find(|checked| checked.position == position);
        chain.push(ChainedPost {
            label: format!("Part {position} of {}", thread.len() + 1),
            length: checked.map_or(0, |checked| checked.length),
            limit: checked.and_then(|checked| checked.limit),
            preview: PostPreview::new(brand, account, &part.content, chosen.of(&part.media)),
        });
    }
    let comment = input.comment_on(account.id, stored);
    if let (Some(comment), Some(rules)) = (comment, descriptor.capabilities.first_comment) {
        let text_rules = TextRules { max: rules.max, unit: rules.unit, ..descriptor.capabilities.text };
        chain.push(ChainedPost {
            label: "First comment".to_owned(),
            length: text::length(account.platform, &text_rules, &comment.content),
            limit: rules.max,
            preview: PostPreview::new(brand, account, &comment.content, Vec::new()),
        });
    }
    chain
}

/// Removes the name of the account from the start of a problem, because the panel shows it beside the problem.
fn without_account(account: &SocialAccount, message: &str) -> String {
    let prefix = format!("Account {} ({}): ", account.id, account.name);
    let rest = message.strip_prefix(&prefix).unwrap_or(message);
    let mut letters = rest.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
