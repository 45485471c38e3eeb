//! Feeds: the list, a feed with its articles, and drafts created from articles. No job runs here.

use crier_domain::feed::FoundArticle;
use crier_store::articles::{self, ArticleRow, Changes};
use crier_store::feeds;
use serde_json::json;

use crate::support::app::{Tenant, on_one_app, on_sqlite_app};
use crate::support::console::ConsoleUser;

on_one_app!(console "unlimited" =>
    a_feed_is_added_changed_and_deleted,
    an_article_becomes_a_draft_once,
    articles_are_paged,
    publishing_is_previewed_and_set_up,
    an_account_of_a_feed_is_kept_among_many,
);
on_sqlite_app!(console "unlimited" => errors_in_a_feed_are_shown, a_failing_feed_says_why, articles_are_shown_as_text);

const URL: &str = "https://8.8.8.8/feed.xml";

/// Creates a feed; returns its id.
async fn create_feed(t: &Tenant<'_>) -> i64 {
    t.post(&t.path("/feeds"), json!({ "url": URL })).await.data(201)["id"].as_i64().expect("an id")
}

/// Adds articles to a feed.
async fn add_articles(t: &Tenant<'_>, feed: i64, all: Vec<FoundArticle>) {
    let row = |found| ArticleRow { found, published_at: t.app.now(), digest: "d".to_owned() };
    let changes = Changes { insert: all.into_iter().map(row).collect(), ..Changes::default() };
    t.app.write(async |tx| articles::write(tx, feed, &changes).await).await;
}

fn article(guid: &str, title: &str) -> FoundArticle {
    FoundArticle {
        guid: guid.to_owned(),
        title: Some(title.to_owned()),
        url: Some(format!("https://8.8.8.8/{guid}")),
        summary: Some("<p>Rye &amp; <b>wheat</b>.</p>".to_owned()),
        author: Some("Ann".to_owned()),
        ..FoundArticle::default()
    }
}

async fn a_feed_is_added_changed_and_deleted(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let list = t.path("/feeds");
    let page = person.get(&list).await;
    page.expect(200, "No feeds yet").expect(200, "WordPress");
    for _ in 0..2 {
        let shown = person.submit_from(&page, &list, &[("url", URL), ("name", ""), ("type", "atom")]).await;
        shown.expect(200, "Feed added.").expect(200, "Waiting for first fetch").expect(200, "Atom");
    }
    assert_eq!(t.app.count_rows("feeds WHERE name = '8.8.8.8' AND NOT named").await, 1);
    let path = t.path(&format!("/feeds/{}", t.app.newest_id("feeds").await));
    // A name that the user has not changed follows the feed.
    let form = [("name", "8.8.8.8"), ("url", "https://8.8.4.4/new.xml")];
    let page = person.get(&path).await;
    for _ in 0..2 {
        person.submit_from(&page, &path, &form).await.expect(200, "Feed saved.");
    }
    assert_eq!(t.app.count_rows("feeds WHERE name = '8.8.4.4' AND NOT named").await, 1);
    let form = [("name", "News"), ("url", "https://8.8.4.4/new.xml")];
    person.submit(&path, &path, &form).await.expect(200, "value=\"News\"");
    person.get(&list).await.expect(200, "News").expect(200, "https://8.8.4.4/new.xml");
    person.submit(&path, &format!("{path}/delete"), &[]).await.expect(200, "No feeds yet");
    person.get(&path).await.expect(404, "Page not found");
}

async fn errors_in_a_feed_are_shown(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let path = t.path(&format!("/feeds/{}", create_feed(&t).await));
    let list = t.path("/feeds");
    let long = "x".repeat(121);
    for at in [&list, &path] {
        for url in ["http://127.0.0.1/f", "javascript:alert(1)", ""] {
            let page = person.submit(at, at, &[("url", url), ("name", "Typed")]).await;
            page.expect(422, "e-url").expect(422, "value=\"Typed\"");
        }
        person.submit(at, at, &[("url", URL), ("name", &long)]).await.expect(422, "e-name");
    }
    person.submit(&list, &list, &[("url", URL), ("type", "gopher")]).await.expect(422, "e-type");
    assert_eq!(t.app.count_rows("feeds WHERE name = '8.8.8.8'").await, 1);
    assert_eq!(t.app.count_rows("feeds").await, 1);
}

async fn a_failing_feed_says_why(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let id = create_feed(&t).await;
    let (error, next) = ("The URL returned 404 Not Found.", t.app.later(900));
    t.app.write(async |tx| feeds::record_failure(tx, id, error, false, next).await).await;
    for path in [t.path("/feeds"), t.path(&format!("/feeds/{id}"))] {
        person.get(&path).await.expect(200, "Failing").expect(200, "The URL returned 404 Not Found.");
    }
}

async fn articles_are_shown_as_text(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let id = create_feed(&t).await;
    let without_title =
        FoundArticle { guid: "b".to_owned(), url: Some("ftp://8.8.8.8/b".to_owned()), ..FoundArticle::default() };
    add_articles(&t, id, vec![article("a", "<i>Fresh</i>"), without_title]).await;
    let page = person.get(&t.path(&format!("/feeds/{id}"))).await;
    page.expect(200, "Rye & wheat.").expect(200, "href=\"https://8.8.8.8/a\"").expect(200, "Ann");
    page.expect(200, "Untitled");
    assert!(!page.has("ftp://"), "only links of the web");
    assert!(!String::from_utf8_lossy(&page.reply.body).contains("<i>Fresh"), "titles are escaped");
}

async fn articles_are_paged(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let id = create_feed(&t).await;
    add_articles(&t, id, (0..21).map(|n| article(&format!("a{n}"), &format!("Article {n:02}"))).collect()).await;
    let path = t.path(&format!("/feeds/{id}"));
    person.get(&path).await.expect(200, "1–20 of 21");
    person.get(&format!("{path}?page=2")).await.expect(200, "21–21 of 21");
    person.get(&format!("{path}?page=9223372036854775807")).await.expect(200, "No articles here");
}

async fn an_article_becomes_a_draft_once(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let id = create_feed(&t).await;
    add_articles(&t, id, vec![article("a", "Fresh")]).await;
    let article = t.app.newest_id("articles").await;
    let path = t.path(&format!("/feeds/{id}"));
    let action = format!("{path}/articles/{article}/draft");
    let hidden = person.get(&path).await.hidden_fields(&action);
    let fields: Vec<(&str, &str)> = hidden.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    for _ in 0..2 {
        let response = person.post(&action, &fields).await;
        let post = t.app.newest_id("posts").await;
        let post_path = t.path(&format!("/posts/{post}?note=draft-made"));
        assert_eq!((response.status, response.reply.header("location")), (303, Some(post_path.as_str())));
    }
    assert_eq!(t.app.count_rows("posts WHERE status = 'draft'").await, 1);
}

async fn publishing_is_previewed_and_set_up(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let (id, account) = (create_feed(&t).await, t.account("bakery").await.to_string());
    add_articles(&t, id, vec![article("a", "Fresh & <b>warm</b>"), article("b", "Stale")]).await;
    let path = t.path(&format!("/feeds/{id}/publishing"));
    let page = person.get(&path).await;
    page.expect(200, "{title}").expect(200, "No new articles yet").expect(200, "Submit for approval");
    let form = [
        ("auto_post.is_active", "on"),
        ("auto_post.template", "New: {title} {url}"),
        ("auto_post.accounts", account.as_str()),
        ("auto_post.destination", "now"),
        ("auto_post.include", ""),
        ("auto_post.exclude", "stale\n\n rye bread "),
        ("auto_post.max_per_day", "3"),
    ];
    let preview = person.submit(&path, &format!("{path}/preview"), &form).await;
    preview.expect(200, "New: Fresh & <b>warm</b> https://8.8.8.8/a").expect(200, "excluded word “stale”");
    preview.expect(200, "Nothing was saved.").expect(200, "New: {title} {url}");
    assert_eq!(t.app.count_rows("feeds WHERE auto_post IS NOT NULL").await, 0);
    // The script shows the same while the form is filled in.
    let hidden = page.hidden_fields(&path);
    let csrf = &hidden.iter().find(|(name, _)| name == "_csrf").expect("a token").1;
    let fragment = async |template: &str| {
        let mut fields = form;
        fields[1].1 = template;
        let fields = [("_csrf", csrf.as_str())].into_iter().chain(fields);
        let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        let request = t.app.visit("POST", &format!("{}{path}/preview", t.app.url)).header("cookie", &person.cookie);
        let request = request.raw(body).header("content-type", "application/x-www-form-urlencoded");
        let reply = request.header("x-requested-with", "fetch").send().await;
        assert_eq!(reply.status, 200);
        String::from_utf8_lossy(&reply.body).into_owned()
    };
    let shown = fragment("Fresh: {title}").await;
    assert!(shown.starts_with("<p class=\"hint\">") && shown.contains("Fresh: Fresh"), "{shown}");
    assert!(fragment("{headline}").await.contains("The variable {headline} does not exist."));
    assert_eq!(t.app.count_rows("feeds WHERE auto_post IS NOT NULL").await, 0);
    let mut wrong = form;
    wrong[1].1 = "New: {headline}";
    for action in [path.clone(), format!("{path}/preview")] {
        let page = person.submit(&path, &action, &wrong).await;
        page.expect(422, "e-auto_post.template").expect(422, "The variable {headline} does not exist.");
        page.expect(422, "New: {headline}");
    }
    person.submit(&path, &path, &form).await.expect(200, "Feed saved.").expect(200, "rye bread");
    let stored = t.get(&t.path(&format!("/feeds/{id}"))).await.data(200)["auto_post"].clone();
    assert_eq!((&stored["exclude"], &stored["max_per_day"]), (&json!(["stale", "rye bread"]), &json!(3)));
    let problem = "The feed reached its maximum of 3 posts per day. 2 articles were not posted.";
    t.app.write(async |tx| feeds::set_auto_post_problem(tx, id, problem).await).await;
    for page in [path, t.path(&format!("/feeds/{id}")), t.path("")] {
        person.get(&page).await.expect(200, problem);
    }
}

async fn an_account_of_a_feed_is_kept_among_many(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let (id, oldest) = (create_feed(&t).await, t.account("oldest").await);
    let settings = json!({ "template": "{title}", "accounts": [oldest], "destination": "draft", "max_per_day": 10 });
    t.put(&t.path(&format!("/feeds/{id}")), json!({ "auto_post": settings })).await.expect(200);
    // The form lists the newest 100 accounts.
    t.app.copy_accounts(t.brand, 100).await;
    let page = person.get(&t.path(&format!("/feeds/{id}/publishing"))).await;
    page.expect(200, &format!("name=\"auto_post.accounts\" value=\"{oldest}\" checked"));
}
