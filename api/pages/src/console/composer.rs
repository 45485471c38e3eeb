//! The composer: `/brands/{brand}/posts/new`, `/brands/{brand}/posts/{post}/edit`, `/brands/{brand}/posts/check`,
//! `/brands/{brand}/posts/card` and `/brands/{brand}/posts/upload`.
//!
//! The buttons of the form set one of two fields. `schedule_type` is `draft`, `scheduled`, `queue` or `now`. `_action` is `save`
//! (keep the status), `submit` (save the draft, then submit it for approval), or an action that shows the form again
//! without saving: `attach:ID` (add an image), `first:ID` (move an image to the front), `library:PAGE` (show a page of
//! the library), `images:ACCOUNT` (choose other images for an account), `same-images:ACCOUNT` (use the images of
//! the post for an account), `add-part`, `remove-part:POSITION` and `part-images:POSITION` (change the thread), `split`
//! (divide the text into parts), `insert` (append a snippet to the text; the script inserts it at the cursor instead).
//! "Preview" posts to `posts/check`. Uploads have a form of their own. After an upload, the script sends `attach:ID`, and
//! shows only the new file of the response, so that unsaved input is kept.
//!
//! After a failure, `now` also saves the changes, and publishes the post again on the failed accounts only.

use chrono::{NaiveDate, NaiveDateTime, TimeDelta, Timelike};
use crier_domain::account::AccountStatus;
use crier_domain::snippet::parts_with;
use crier_endpoints::error::{ApiError, ErrorCode, Result};
use crier_endpoints::response::Timestamp;
use crier_endpoints::routes::posts::create::CreatePostRequest;
use crier_endpoints::routes::posts::request::UpdatePostRequest;
use crier_endpoints::routes::posts::split::SplitPostRequest;
use crier_endpoints::routes::posts::{self, create, update};
use crier_endpoints::routes::{media, snippets};
use crier_endpoints::runner::call::Written;
use http::StatusCode;
use serde_json::{Map, Value, json};

use super::account_choices;
use super::calendar_period::parse_date;
use super::composer_card::show_card;
use super::composer_check::show_check;
use super::composer_input::{ComposerInput, SaveMode, Stored};
use super::composer_view::{Contents, check_editable, show};
use super::form::Form;
use super::media::{upload_errors, uploaded};
use super::route::PageRoute;
use super::shared::FieldErrors;
use super::visit::{PageReply, Visit, form_errors};

const UNKNOWN_OUTCOME: &str = "The post may already be published on some of the failed accounts. Save the changes. \
     Then choose “Retry failed accounts” on the post's page, which shows which accounts to check first.";
const CHANGED: &str = "The post was changed after you opened this form. To see the changes, open the post in another tab. \
     If you submit this form again, it replaces them.";
const DELETED: &str = "The post was deleted after you opened this form. To keep it, save this form as a new post.";

pub fn routes() -> Vec<PageRoute> {
    vec![
        PageRoute::get("/brands/{brand}/posts/new", show_new),
        PageRoute::post("/brands/{brand}/posts/new", submit_form),
        PageRoute::get("/brands/{brand}/posts/{post}/edit", show_edit),
        PageRoute::post("/brands/{brand}/posts/{post}/edit", submit_form),
        PageRoute::post("/brands/{brand}/posts/check", check),
        PageRoute::post("/brands/{brand}/posts/card", show_card),
        PageRoute::post("/brands/{brand}/posts/upload", upload),
    ]
}

/// The action of a button of the form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Button {
    Save(SaveMode),
    Submit,
    Attach(i64),
    First(i64),
    Library(i64),
    Images(i64),
    SameImages(i64),
    AddPart,
    /// The position in the thread, starting at 1.
    RemovePart(i64),
    PartImages(i64),
    Split,
    Insert,
    /// The form has no known action.
    Unknown,
}

impl Button {
    fn of(form: &Form) -> Self {
        let (word, id) = form.get("_action").split_once(':').unwrap_or((form.get("_action"), ""));
        match (word, id.parse().ok().filter(|id| *id > 0)) {
            ("save", None) => Self::Save(SaveMode::Save),
            ("submit", None) => Self::Submit,
            ("insert", None) => Self::Insert,
            ("add-part", None) => Self::AddPart,
            ("split", None) => Self::Split,
            ("remove-part", Some(position)) => Self::RemovePart(position),
            ("part-images", Some(position)) => Self::PartImages(position),
            ("attach", Some(id)) => Self::Attach(id),
            ("first", Some(id)) => Self::First(id),
            ("library", Some(page)) => Self::Library(page),
            ("images", Some(account)) => Self::Images(account),
            ("same-images", Some(account)) => Self::SameImages(account),
            ("", None) => match form.get("schedule_type") {
                "draft" => Self::Save(SaveMode::Draft),
                "scheduled" => Self::Save(SaveMode::Schedule),
                "queue" => Self::Save(SaveMode::Queue),
                "now" => Self::Save(SaveMode::Now),
                _ => Self::Unknown,
            },
            _ => Self::Unknown,
        }
    }

    /// Applies an action that shows the form again.
    fn change(self, input: &mut ComposerInput) {
        let index = |position: i64| usize::try_from(position - 1).unwrap_or(usize::MAX);
        match self {
            Self::Attach(id) => input.attach(id),
            Self::First(id) => input.put_first(id),
            Self::Library(page) => input.library_page = page,
            Self::Images(account) => input.choose_images(account),
            Self::SameImages(account) => input.use_post_images(account),
            Self::AddPart => input.add_part(),
            Self::RemovePart(position) => input.remove_part(index(position)),
            Self::PartImages(position) => input.picking_part = Some(index(position)),
            Self::Save(_) | Self::Submit | Self::Insert | Self::Split | Self::Unknown => {}
        }
    }

    /// Returns the key of the message that is shown after the action ([`super::flash`]).
    const fn flash_key(self) -> &'static str {
        match self {
            Self::Save(SaveMode::Draft) => "draft-saved",
            Self::Save(SaveMode::Schedule) => "post-scheduled",
            Self::Save(SaveMode::Queue) => "post-queued",
            Self::Save(SaveMode::Now) => "post-publishing",
            Self::Submit => "post-submitted",
            _ => "post-saved",
        }
    }
}

/// Shows a new post, with the image and a time on the date in the query if there are any.
async fn show_new(visit: &Visit) -> Result<PageReply> {
    let mut input = new_input(visit).await?;
    let now = visit.now.with_timezone(&visit.zone()).naive_local();
    if let Some(at) = visit.query.get("date").and_then(parse_date).and_then(|date| suggested_time(date, now)) {
        input.scheduled_at = at.format("%Y-%m-%dT%H:%M").to_string();
    }
    attach_uploaded(visit, &mut input);
    show(visit, None, input, FieldErrors::default(), Contents::Stored).await
}

/// Returns the form of a new post. If only one account can publish, it is chosen.
async fn new_input(visit: &Visit) -> Result<ComposerInput> {
    let mut conn = visit.app.store.read().await?;
    let mut accounts = account_choices::load(visit, &mut conn, &[]).await?;
    accounts.retain(|account| account.status == AccountStatus::Active);
    let mut input = ComposerInput::default();
    if let [only] = accounts.as_slice() {
        input.accounts.push(only.id);
    }
    Ok(input)
}

/// Shows a post, with the focus in the text for the account in the query if there is one.
async fn show_edit(visit: &Visit) -> Result<PageReply> {
    let stored = Stored::load(visit, visit.id("post").unwrap_or_default()).await?;
    check_editable(&stored)?;
    let mut input = ComposerInput::of_post(&stored, visit.zone());
    if let Some(account_id) = visit.query.get("account").and_then(|id| id.parse().ok()) {
        input.focus_on(account_id);
    }
    attach_uploaded(visit, &mut input);
    show(visit, Some(&stored), input, FieldErrors::default(), Contents::Stored).await
}

/// Returns the time that the composer suggests for a post on a date: 9:00 or, if that has passed, the next full hour of
/// the day. `None` if the day has no later full hour.
fn suggested_time(date: NaiveDate, now: NaiveDateTime) -> Option<NaiveDateTime> {
    let nine = date.and_hms_opt(9, 0, 0)?;
    let next_hour = now.date().and_hms_opt(now.hour(), 0, 0)? + TimeDelta::hours(1);
    [nine, next_hour].into_iter().find(|at| *at > now && at.date() == date)
}

fn attach_uploaded(visit: &Visit, input: &mut ComposerInput) {
    if let Some(id) = visit.query.get("media").and_then(|id| id.parse().ok()) {
        input.attach(id);
    }
}

/// Checks the submitted values. Responds to the script with the panel, and to a form with the whole page.
async fn check(visit: &Visit) -> Result<PageReply> {
    let stored = match visit.form.text("_post").and_then(|id| id.parse().ok()) {
        Some(id) => Some(Stored::load(visit, id).await?),
        None => None,
    };
    let input = ComposerInput::of_form(&visit.form);
    if visit.is_fetch {
        return show_check(visit, stored.as_ref(), &input).await;
    }
    visit.keep_key();
    show(visit, stored.as_ref(), input, FieldErrors::default(), Contents::Input).await
}

/// Executes the action of the button.
async fn submit_form(visit: &Visit) -> Result<PageReply> {
    let stored = match visit.id("post") {
        Some(id) => match Stored::load(visit, id).await {
            Ok(stored) => Some(stored),
            Err(error) if error.code == ErrorCode::NotFound => return show_deleted(visit).await,
            Err(error) => return Err(error),
        },
        None => None,
    };
    let mut input = ComposerInput::of_form(&visit.form);
    let button = Button::of(&visit.form);
    let mode = match button {
        Button::Save(mode) => mode,
        Button::Submit => SaveMode::Draft,
        other => {
            other.change(&mut input);
            let errors = match other {
                Button::Insert => insert_snippet(visit, &mut input).await.map(|()| FieldErrors::default())?,
                Button::Split => split(visit, &mut input).await?,
                _ => FieldErrors::default(),
            };
            visit.keep_key();
            return show(visit, stored.as_ref(), input, errors, Contents::Input).await;
        }
    };
    input.drop_empty_parts();
    match save(visit, stored.as_ref(), &input, mode).await {
        Ok(saved) if button == Button::Submit => submit(visit, saved, input).await,
        Ok((id, _)) if mode == SaveMode::Now && input.has_begun() => visit.to(&format!("posts/{id}"), "post-retried"),
        Ok((id, _)) => visit.to(&format!("posts/{id}"), button.flash_key()),
        Err(error) if error.code == ErrorCode::NotFound && stored.is_some() => show_deleted(visit).await,
        Err(error) => show_rejected(visit, input, error).await,
    }
}

/// Shows the input as that of a new post: otherwise, a text would be lost if its post was deleted meanwhile.
async fn show_deleted(visit: &Visit) -> Result<PageReply> {
    let input = ComposerInput::of_form(&visit.form);
    Ok(match show(visit, None, input, FieldErrors::general(DELETED), Contents::Input).await? {
        PageReply::Html(_, page) => PageReply::Html(StatusCode::NOT_FOUND, page),
        other => other,
    })
}

/// Shows the form with the reason why nothing was saved. If the post was changed meanwhile, the user learns that, so the
/// form can be submitted again.
async fn show_rejected(visit: &Visit, mut input: ComposerInput, error: ApiError) -> Result<PageReply> {
    let code = error.code;
    let mut errors = form_errors(error)?;
    // Loaded after the write, which may have waited for the change.
    let stored = match visit.id("post") {
        Some(id) => Some(Stored::load(visit, id).await?),
        None => None,
    };
    if let Some(stored) = stored.as_ref().filter(|stored| stored.version() != input.seen) {
        match code {
            ErrorCode::PostNotEditable => {
                input.seen = stored.version();
                errors = match check_editable(stored) {
                    Ok(()) => FieldErrors::general(CHANGED),
                    Err(error) => form_errors(error)?,
                };
            }
            // The error is about this change: the form itself made it, with other content.
            ErrorCode::IdempotencyKeyReused => input.seen = stored.version(),
            _ => {}
        }
    }
    show(visit, stored.as_ref(), input, errors, Contents::Input).await
}

/// Appends the chosen snippet to the text.
async fn insert_snippet(visit: &Visit, input: &mut ComposerInput) -> Result<()> {
    let id: Option<i64> = visit.form.get("_snippet").parse().ok();
    let all = visit.call().read(snippets::list::endpoint(), ()).await?;
    if let Some(snippet) = all.iter().find(|snippet| Some(snippet.id) == id) {
        input.content = parts_with(Some(&snippet.content), &input.content).concat();
    }
    Ok(())
}

/// Divides the text into parts that fit the chosen accounts. Returns the errors of the text and the accounts.
async fn split(visit: &Visit, input: &mut ComposerInput) -> Result<FieldErrors> {
    let fields = [("content", json!(input.content)), ("accounts", json!(input.accounts))];
    let fields: Map<String, Value> = fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    match visit.call().read(posts::split::endpoint(), visit.parse::<SplitPostRequest>(&fields)).await {
        Ok(proposal) => {
            input.fill_parts(proposal.parts);
            Ok(FieldErrors::default())
        }
        Err(error) => form_errors(error),
    }
}

/// Creates or updates the post, and returns its ID and its version. Changes that were made since the form was opened are
/// not overwritten.
async fn save(
    visit: &Visit,
    stored: Option<&Stored>,
    input: &ComposerInput,
    mode: SaveMode,
) -> Result<(i64, Timestamp)> {
    if mode == SaveMode::Now && stored.is_some_and(Stored::may_be_published) {
        return Err(ApiError::new(ErrorCode::PostNotEditable, UNKNOWN_OUTCOME));
    }
    let mut conn = visit.app.store.read().await?;
    let accounts = account_choices::load(visit, &mut conn, &input.accounts).await?;
    drop(conn);
    let request = input.request(mode, &accounts, stored);
    let saved = match stored {
        Some(_) => {
            let change = visit.parse::<UpdatePostRequest>(&request.body);
            visit.call().version(input.seen).write(update::endpoint(), change).await
        }
        None => visit.call().write(create::endpoint(), visit.parse::<CreatePostRequest>(&request.body)).await,
    };
    let shown: Vec<i64> = accounts.iter().map(|account| account.id).collect();
    let saved = saved.and_then(Written::into_value);
    saved.map(|post| (post.id, post.updated_at)).map_err(|error| at_fields(error, &request.overrides, &shown))
}

/// Submits the saved draft for approval. If this fails, shows the form for the saved draft.
async fn submit(visit: &Visit, (id, version): (i64, Timestamp), mut input: ComposerInput) -> Result<PageReply> {
    let call = visit.call().id("post", id).part("-submit").version(version);
    match call.write(posts::submit::endpoint(), ()).await {
        Ok(_) => visit.to(&format!("posts/{id}"), Button::Submit.flash_key()),
        Err(error) => {
            let stored = Stored::load(visit, id).await?;
            let errors = form_errors(error)?;
            input.seen = version;
            // With the key of the form that created the draft, the form that changes it would be rejected.
            visit.renew_key();
            show(visit, Some(&stored), input, errors, Contents::Input).await
        }
    }
}

/// Changes the paths of errors in overrides to those of the form's fields: the form has fields for all accounts
/// (`shown`), and the request only has overrides for some (`sent`). The form has no fields for an account's own parts
/// and comment.
fn at_fields(mut error: ApiError, sent: &[i64], shown: &[i64]) -> ApiError {
    let rename = |path: String| {
        let place = path.strip_prefix("overrides.").and_then(|rest| rest.split_once('.'));
        let place = place.and_then(|(index, field)| Some((index.parse::<usize>().ok()?, field)));
        let Some((index, field)) = place else { return path };
        let whole = ["thread", "first_comment"].into_iter().find(|whole| field.split('.').next() == Some(*whole));
        let field = whole.unwrap_or(field);
        let index = sent.get(index).and_then(|id| shown.iter().position(|other| other == id));
        index.map_or_else(|| "overrides".to_owned(), |index| format!("overrides.{index}.{field}"))
    };
    for (path, messages) in std::mem::take(&mut error.fields) {
        error.fields.entry(rename(path)).or_default().extend(messages);
    }
    error
}

/// Uploads an image or a video. Responds to the script with the ID, and to a form with a redirect to the composer. `post` in the
/// query is the ID of the post that is edited.
async fn upload(visit: &Visit) -> Result<PageReply> {
    let stored = match visit.form.text("post").and_then(|id| id.parse().ok()) {
        Some(id) => Some(Stored::load(visit, id).await?),
        None => None,
    };
    let mut sent = Form::default();
    let written = visit.call().upload(media::upload::endpoint(), &mut sent).await;
    let (id, note) = match written.and_then(Written::into_value) {
        Ok(asset) => (asset.id, uploaded(asset.mime_type)),
        Err(error) if visit.is_fetch => return Err(error),
        Err(error) => {
            let errors = upload_errors(error)?;
            let mut input = match &stored {
                Some(stored) => ComposerInput::of_post(stored, visit.zone()),
                None => new_input(visit).await?,
            };
            input.upload = sent;
            return show(visit, stored.as_ref(), input, errors, Contents::Stored).await;
        }
    };
    if visit.is_fetch {
        return Ok(PageReply::Text(StatusCode::CREATED, id.to_string()));
    }
    match stored {
        Some(stored) => visit.to(&format!("posts/{}/edit?media={id}", stored.post.id), note),
        None => visit.to(&format!("posts/new?media={id}"), note),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn button(form: &str) -> Button {
        Button::of(&Form::parse(form.as_bytes()))
    }

    #[test]
    fn a_form_does_what_its_button_says() {
        for (form, wanted) in [
            ("schedule_type=draft", Button::Save(SaveMode::Draft)),
            ("schedule_type=now", Button::Save(SaveMode::Now)),
            ("_action=submit", Button::Submit),
            ("_action=attach:7", Button::Attach(7)),
            ("_action=library:2&schedule_type=now", Button::Library(2)),
            ("_action=insert&_snippet=3", Button::Insert),
            ("_action=same-images:3", Button::SameImages(3)),
            ("_action=add-part", Button::AddPart),
            ("_action=remove-part:2", Button::RemovePart(2)),
            ("_action=remove-part", Button::Unknown),
            ("_action=split", Button::Split),
            ("_action=check&schedule_type=now", Button::Unknown),
            ("_action=attach:0", Button::Unknown),
            ("_action=first:x", Button::Unknown),
            ("schedule_type=later", Button::Unknown),
            ("", Button::Unknown),
        ] {
            assert_eq!(button(form), wanted, "{form}");
        }
    }

    #[test]
    fn a_post_for_a_day_is_planned_in_the_morning_or_soon() {
        let now: NaiveDateTime = "2026-06-09T12:13:20".parse().unwrap();
        let suggested = |date: &str, now| suggested_time(date.parse().unwrap(), now).map(|at| at.to_string());
        assert_eq!(suggested("2026-07-01", now).as_deref(), Some("2026-07-01 09:00:00"));
        assert_eq!(suggested("2026-06-09", now).as_deref(), Some("2026-06-09 13:00:00"));
        assert_eq!(suggested("2026-06-09", now - TimeDelta::hours(4)).as_deref(), Some("2026-06-09 09:00:00"));
        assert_eq!(suggested("2026-06-08", now), None, "the day has passed");
        assert_eq!(suggested("2026-06-09", now + TimeDelta::hours(11)), None, "no full hour is left");
    }

    #[test]
    fn problems_of_overrides_are_shown_at_their_accounts() {
        let problems = [
            ("overrides.0.content", "a"),
            ("overrides.5.content", "b"),
            ("content", "c"),
            ("overrides", "d"),
            ("overrides.0.thread.1.content", "e"),
            ("overrides.0.thread.2.content", "f"),
            ("thread.1.content", "g"),
        ];
        let problems = problems.map(|(path, text)| (path.to_owned(), vec![text.to_owned()]));
        let error = at_fields(ApiError::validation(problems.into()), &[88], &[91, 90, 88]);
        let paths: Vec<&str> = error.fields.keys().map(String::as_str).collect();
        let thread = "overrides.2.thread";
        assert_eq!(paths, ["content", "overrides", "overrides.2.content", thread, "thread.1.content"]);
        assert_eq!(error.fields[thread], ["e", "f"]);
    }
}
