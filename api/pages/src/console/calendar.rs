//! `/brands/{brand}/calendar?view=month|week|list&date=YYYY-MM-DD&status=&account=`, and the action that moves a post
//! to another day.
//!
//! A day is a day in the brand's time zone, from midnight to midnight. A post is on the day of its scheduled time, or
//! of its creation if it has none.

use std::collections::BTreeMap;

use askama::Template;
use chrono::{DateTime, Datelike, Days, NaiveDate, NaiveDateTime, NaiveTime, Utc};
use crier_domain::post::{Post, PostStatus};
use crier_endpoints::error::{ApiError, ErrorCode, Result};
use crier_endpoints::fields::PatchField;
use crier_endpoints::fields::time::in_zone;
use crier_endpoints::routes::posts::request::UpdatePostRequest;
use crier_endpoints::routes::posts::update;
use crier_store::calendar::{self, CalendarQuery};
use crier_store::{Conn, posts};
use http::StatusCode;

use super::calendar_period::{Period, View, parse_date};
use super::error::message;
use super::paging;
use super::post_filters::PostFilters;
use super::post_rows::{Related, beginning};
use super::route::PageRoute;
use super::shared::{Badge, Choice, Pages, Platform, Time};
use super::shell::{Section, Shell};
use super::visit::{PageReply, Visit};

/// The maximum number of posts in a view.
const MAX_POSTS: usize = 1_000;
/// The number of posts per page of the list.
const LIST_PAGE: i64 = 100;
/// The maximum length of an entry's text, in characters.
const MAX_TEXT: usize = 100;

#[derive(Template)]
#[template(path = "console/calendar.html")]
struct Calendar {
    shell: Shell,
    view: View,
    /// The date in the URL, `YYYY-MM-DD`.
    date: String,
    /// "November 2026", "23–29 November 2026".
    period: String,
    prev: String,
    next: String,
    today: String,
    /// Month, week, list. `value` is the URL.
    views: Vec<Choice>,
    statuses: Vec<Choice>,
    accounts: Vec<Choice>,
    is_filtered: bool,
    /// The reason why a post was not moved.
    problem: Option<String>,
    /// Whether the period has more posts than [`MAX_POSTS`].
    is_truncated: bool,
    /// Weeks from Monday to Sunday. The list has a single week, with all days that have entries.
    weeks: Vec<Vec<Day>>,
    /// The pages of the list view.
    pages: Pages,
}

/// Returns the maximum number of posts that a day shows.
const fn max_entries(view: View) -> usize {
    match view {
        View::Month => 3,
        View::Week => 20,
        View::List => MAX_POSTS,
    }
}

struct Day {
    /// `YYYY-MM-DD`.
    date: String,
    number: u32,
    /// "Monday 23 November".
    label: String,
    /// Whether the day is in the month that is shown. Always true in the other views.
    is_in_period: bool,
    is_today: bool,
    /// Whether the day has passed, so that no post can be planned for it.
    is_past: bool,
    entries: Vec<Entry>,
    /// The number of posts that are not shown.
    more: usize,
    /// The URL of the view that shows them.
    more_href: String,
}

struct Entry {
    post: i64,
    /// "09:30", in the brand's time zone.
    time: Time,
    platforms: Vec<Platform>,
    status: Badge,
    text: String,
    is_recurring: bool,
    /// Whether the user may move the post to another day.
    draggable: bool,
}

impl Calendar {
    fn is_empty(&self) -> bool {
        self.weeks.iter().flatten().all(|day| day.entries.is_empty())
    }
}

pub fn routes() -> Vec<PageRoute> {
    vec![
        PageRoute::get("/brands/{brand}/calendar", show),
        PageRoute::post("/brands/{brand}/posts/{post}/move", submit_move),
    ]
}

async fn show(visit: &Visit) -> Result<PageReply> {
    let date = visit.query.get("date").and_then(parse_date);
    render(visit, date, StatusCode::OK, None).await
}

/// Returns the calendar at a date, or at today. `problem` is the reason why a post was not moved.
async fn render(
    visit: &Visit,
    date: Option<NaiveDate>,
    status: StatusCode,
    problem: Option<String>,
) -> Result<PageReply> {
    let shell = visit.shell(Section::Calendar, "Calendar");
    let today = today(visit);
    let view = visit.query.get("view").and_then(|word| View::ALL.into_iter().find(|view| view.slug() == word));
    let view = view.unwrap_or(View::Month);
    let date = date.unwrap_or(today);
    let period = Period::of(view, date);
    let mut conn = visit.app.store.read().await?;
    let filters = PostFilters::load(visit, &mut conn).await?;
    let (is_truncated, found) = load(visit, &mut conn, &filters, &period).await?;
    let total = i64::try_from(found.len()).unwrap_or_default();
    let page = paging::number(visit);
    let found = if view == View::List { list_page(found, page) } else { found };
    let shown = found.len();
    let days = DayEntries::group(visit, &mut conn, found, max_entries(view)).await?;
    let base = shell.at("calendar");
    let href = |view: View, date: NaiveDate| filters.href(&base, &[("view", view.slug()), ("date", &date.to_string())]);
    let list_href = |page: i64| {
        let (date, page) = (date.to_string(), page.to_string());
        filters.href(&base, &[("view", "list"), ("date", &date), ("page", &page)])
    };
    let page = Calendar {
        view,
        date: date.to_string(),
        period: period.title.clone(),
        prev: href(view, period.prev),
        next: href(view, period.next),
        today: href(view, today),
        views: View::ALL.map(|of| Choice::new(&href(of, date), of.label(), of == view)).into(),
        is_filtered: filters.is_filtered(),
        problem,
        is_truncated,
        weeks: days.weeks(&period, today, |date| href(View::List, date)),
        pages: match view {
            View::List if total > LIST_PAGE => paging::links(page, LIST_PAGE, shown, total, list_href),
            _ => Pages::default(),
        },
        statuses: filters.statuses.clone(),
        accounts: filters.accounts.clone(),
        shell,
    };
    visit.page_with(status, &page)
}

fn today(visit: &Visit) -> NaiveDate {
    visit.now.with_timezone(&visit.zone()).date_naive()
}

/// Returns the posts of a period in order, and whether there are more than [`MAX_POSTS`].
async fn load(visit: &Visit, conn: &mut Conn, filters: &PostFilters, period: &Period) -> Result<(bool, Vec<Post>)> {
    let midnight = |date: NaiveDate| {
        let found = in_zone(date.and_time(NaiveTime::MIN), visit.zone());
        found.ok_or_else(|| ApiError::bug(format!("{date} has no midnight in {}", visit.zone())))
    };
    let query = CalendarQuery {
        brand_id: visit.brand()?.0.id,
        from: midnight(period.first)?,
        to: midnight(period.last + Days::new(1))?,
        status: filters.status,
        account_id: filters.account_id,
    };
    let limit = i64::try_from(MAX_POSTS + 1).unwrap_or_default();
    let mut found = calendar::between(conn, &query, limit).await?;
    let is_truncated = found.len() > MAX_POSTS;
    found.truncate(MAX_POSTS);
    Ok((is_truncated, found))
}

fn list_page(found: Vec<Post>, page: i64) -> Vec<Post> {
    let number = |n: i64| usize::try_from(n).unwrap_or(usize::MAX);
    let before = number((page - 1).saturating_mul(LIST_PAGE));
    found.into_iter().skip(before).take(number(LIST_PAGE)).collect()
}

/// The number of posts of each day, and the entries that it shows.
struct DayEntries(BTreeMap<NaiveDate, (usize, Vec<Entry>)>);

impl DayEntries {
    async fn group(visit: &Visit, conn: &mut Conn, found: Vec<Post>, max: usize) -> Result<Self> {
        let mut days: BTreeMap<NaiveDate, (usize, Vec<Entry>)> = BTreeMap::new();
        let mut shown = found;
        shown.retain(|post| {
            let (total, _) = days.entry(local_date(visit, post)).or_default();
            *total += 1;
            *total <= max
        });
        let ids: Vec<i64> = shown.iter().map(|post| post.id).collect();
        let related = Related::load(visit, conn, &ids, &[]).await?;
        for post in shown {
            let (_, entries) = days.entry(local_date(visit, &post)).or_default();
            entries.push(Entry::new(visit, &related, &post));
        }
        Ok(Self(days))
    }

    /// Returns the days with their entries, in weeks. `more` returns the URL of a view that shows all posts of a day.
    fn weeks(mut self, period: &Period, today: NaiveDate, more: impl Fn(NaiveDate) -> String) -> Vec<Vec<Day>> {
        let dates = period.first.iter_days().take_while(|date| *date <= period.last);
        let day = |date: NaiveDate| {
            let (total, entries) = self.0.remove(&date).unwrap_or_default();
            Day {
                date: date.to_string(),
                number: date.day(),
                label: date.format("%A %-d %B").to_string(),
                is_in_period: period.month.is_none_or(|month| month == date.month()),
                is_today: date == today,
                is_past: date < today,
                more: total.saturating_sub(entries.len()),
                more_href: more(date),
                entries,
            }
        };
        let mut days: Vec<Day> = dates.map(day).collect();
        if period.view == View::List {
            days.retain(|day| !day.entries.is_empty());
            return vec![days];
        }
        let mut weeks = Vec::new();
        while !days.is_empty() {
            let rest = days.split_off(days.len().min(7));
            weeks.push(std::mem::replace(&mut days, rest));
        }
        weeks
    }
}

/// Returns the time at which a post is shown.
fn time_of(post: &Post) -> DateTime<Utc> {
    post.scheduled_at.or(post.published_at).unwrap_or(post.created_at)
}

fn local_date(visit: &Visit, post: &Post) -> NaiveDate {
    time_of(post).with_timezone(&visit.zone()).date_naive()
}

impl Entry {
    fn new(visit: &Visit, related: &Related, post: &Post) -> Self {
        let at = time_of(post);
        let text = beginning(&post.content, MAX_TEXT);
        let waits = matches!(post.status, PostStatus::Scheduled | PostStatus::Draft | PostStatus::PendingApproval);
        Self {
            post: post.id,
            time: Time { text: at.with_timezone(&visit.zone()).format("%H:%M").to_string(), ..visit.time(at) },
            platforms: related.chips(post.id).into_iter().map(|chip| chip.platform).collect(),
            status: Badge::whole_post(post.status, post.queued),
            text: if text.is_empty() { "No text".to_owned() } else { text },
            is_recurring: post.recurring_id.is_some(),
            draggable: waits
                && post.scheduled_at.is_some()
                && (visit.can_publish() || post.status == PostStatus::Draft),
        }
    }
}

/// Moves a post. If this fails, the script gets the reason as text, and a form the calendar with the reason.
async fn submit_move(visit: &Visit) -> Result<PageReply> {
    let date = parse_date(visit.form.get("date").trim());
    match move_post(visit, date).await {
        Err(error) if !visit.is_fetch && error.code.status().is_client_error() && error.code != ErrorCode::NotFound => {
            render(visit, date, error.code.status(), Some(message(&error))).await
        }
        reply => reply,
    }
}

/// Moves a post to another day, and keeps its local time of day.
async fn move_post(visit: &Visit, date: Option<NaiveDate>) -> Result<PageReply> {
    let no_date = || ApiError::field("date", "Choose a date, such as 2026-05-01.");
    let date = date.ok_or_else(no_date)?;
    let post_id = visit.id("post").unwrap_or_default();
    let mut conn = visit.app.store.read().await?;
    let found = posts::find(&mut conn, visit.brand()?.0.id, post_id).await?;
    drop(conn);
    let post = found.ok_or_else(|| ApiError::not_found("post"))?;
    let at = post
        .scheduled_at
        .ok_or_else(|| ApiError::field("date", "This post has no time yet. Open the post and choose one."))?;
    let local = date.and_time(at.with_timezone(&visit.zone()).time());
    let at = in_zone(local, visit.zone()).ok_or_else(no_date)?;
    if at <= visit.now {
        return Err(ApiError::field("date", past_problem(local, today(visit))));
    }
    let change = UpdatePostRequest { scheduled_at: PatchField::Value(at), ..UpdatePostRequest::default() };
    visit.call().write(update::endpoint(), change).await?;
    if !visit.is_fetch {
        return visit.to(&format!("calendar?date={date}"), "post-moved");
    }
    let text = format!("Post moved to {}.", at.with_timezone(&visit.zone()).format("%A %-d %B, %H:%M"));
    Ok(PageReply::Text(StatusCode::OK, text))
}

/// Returns why a post cannot be moved to a time that has passed.
fn past_problem(local: NaiveDateTime, today: NaiveDate) -> String {
    if local.date() < today {
        let day = local.format("%A %-d %B");
        return format!("The post was not moved. {day} is in the past. Choose today or a later day.");
    }
    let time = local.format("%H:%M");
    format!(
        "The post was not moved. It is planned for {time}, which has passed today. Choose a later day, or open the \
         post and choose another time."
    )
}
