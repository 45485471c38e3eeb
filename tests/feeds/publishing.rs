//! Feeds that publish: which articles become posts, that each does so once, and why others do not.

use chrono::TimeDelta;
use crier_domain::access::Role;
use crier_domain::auto_post::{ArticleKeys, AutoPost, FeedDestination, FeedPostStatus};
use crier_domain::feed::{Feed, FeedType};
use crier_domain::job::JobKind;
use crier_domain::post::{Post, PostStatus};
use crier_scheduler::tasks;
use crier_store::PageRequest;
use crier_store::feed_posts::{self, FeedPost, NewFeedPost};
use crier_store::feeds::{self, NewFeed};
use crier_store::posts::{self, PostFilter};

use super::server::{FeedResponse, Server};
use crate::support::jobs::{LEASE_EXPIRY_SECONDS, TestWorker, worker_on_both};

worker_on_both!(
    an_article_is_posted_once_whatever_the_feed_does,
    a_chain_of_changes_is_one_article,
    entries_of_one_page_with_one_title_are_all_posted,
    the_first_articles_of_a_url_are_not_posted,
    two_hundred_new_articles_stop_at_the_maximum,
    a_flood_of_articles_does_not_reset_the_maximum,
    filters_and_old_dates_skip_articles,
    articles_are_published_or_submitted,
    a_rejection_is_shown_and_not_repeated,
    articles_are_not_posted_into_a_full_storage,
    the_member_must_still_be_in_the_brand,
    an_article_is_skipped_without_a_problem_after_publishing_was_turned_off,
    a_waiting_article_of_the_old_url_is_not_posted,
    a_worker_that_dies_posts_once,
    a_dead_job_skips_its_article,
);

/// An article: guid, title, link, and elements.
struct Item(String, String, String, String);

fn item(guid: &str, title: &str, link: &str) -> Item {
    Item(guid.to_owned(), title.to_owned(), link.to_owned(), String::new())
}

/// Returns an article whose guid, title and link have this name.
fn article(name: &str) -> Item {
    item(name, &format!("Title {name}"), &format!("https://blog.example/posts/{name}"))
}

fn document(items: &[Item]) -> FeedResponse {
    let items: String = items
        .iter()
        .map(|Item(guid, title, link, more)| {
            let link = link.replace('&', "&amp;");
            format!(
                "<item><guid isPermaLink=\"false\">{guid}</guid><title>{title}</title><link>{link}</link>{more}</item>"
            )
        })
        .collect();
    FeedResponse::ok(format!("<rss version=\"2.0\"><channel><title>Blog</title>{items}</channel></rss>"))
}

fn settings(w: &TestWorker) -> AutoPost {
    AutoPost {
        is_active: true,
        template: "{title}\n\n{url}".to_owned(),
        accounts: vec![w.account.id],
        destination: FeedDestination::Draft,
        include: Vec::new(),
        exclude: Vec::new(),
        max_per_day: 5,
    }
}

async fn set(w: &TestWorker, feed: i64, settings: &AutoPost, user: i64) {
    w.write(async |tx| feeds::set_auto_post(tx, feed, Some(settings), user).await).await;
}

/// Creates a feed that publishes, and that has listed these articles before.
async fn publishing_feed(w: &TestWorker, server: &Server, settings: &AutoPost, items: &[Item]) -> i64 {
    server.set_response("/feed", document(items));
    let url = server.url("/feed");
    let new = NewFeed { name: "Blog", named: true, url: &url, kind: FeedType::Rss };
    let id = w.write(async |tx| feeds::create(tx, w.world.brand, &new, None).await).await.id;
    set(w, id, settings, w.world.user).await;
    w.run_jobs().await;
    assert_eq!((feed(w, id).await.auto_post_since, posted(w).await.len()), (Some(w.now()), 0));
    id
}

async fn feed(w: &TestWorker, id: i64) -> Feed {
    feeds::find_any(&mut w.conn().await, id).await.unwrap().unwrap()
}

/// Lets the feed list these articles, and runs its next fetch and the posts.
async fn fetch(w: &TestWorker, server: &Server, id: i64, items: &[Item]) {
    server.set_response("/feed", document(items));
    let at = feed(w, id).await.next_fetch_at;
    w.clock.advance((at - w.clock.now()).max(TimeDelta::zero()));
    tasks::feeds::run(&w.scheduler).await.unwrap();
    w.run_jobs().await;
}

/// Returns all posts, newest first.
async fn posted(w: &TestWorker) -> Vec<Post> {
    let page = PageRequest { page: 1, per_page: 100 };
    posts::list(&mut w.conn().await, w.world.brand, &PostFilter::default(), page).await.unwrap().rows
}

async fn texts(w: &TestWorker) -> Vec<String> {
    posted(w).await.into_iter().map(|post| post.content).collect()
}

/// Returns the outcomes of the new articles, newest first.
async fn listed(w: &TestWorker, id: i64) -> Vec<FeedPost> {
    feed_posts::list(&mut w.conn().await, id, 1_000).await.unwrap()
}

async fn an_article_is_posted_once_whatever_the_feed_does(w: TestWorker) {
    let server = Server::start().await;
    let id = publishing_feed(&w, &server, &settings(&w), &[article("b"), article("a")]).await;
    fetch(&w, &server, id, &[article("c"), article("b"), article("a")]).await;
    assert_eq!(texts(&w).await, ["Title c\n\nhttps://blog.example/posts/c"]);
    let article_of = listed(&w, id).await.remove(0);
    assert_eq!((article_of.status, article_of.post_id), (FeedPostStatus::Posted, Some(posted(&w).await[0].id)));
    let renamed = |guid: &str, name: &str| item(guid, &format!("Title {name}"), &article(name).2);
    let at = |name: &str, link: &str| item(name, &format!("Title {name}"), link);
    for (change, items) in [
        ("order", vec![article("a"), article("c"), article("b")]),
        ("guids", vec![renamed("new-c", "c"), renamed("new-b", "b"), renamed("new-a", "a")]),
        ("guids and scheme", vec![item("x-c", "Title c", "http://www.blog.example:80/posts/c/?utm_source=rss")]),
        ("link", vec![at("c", "https://blog.example/c-2")]),
        (
            "site",
            vec![
                item("y-c", "Title c", "https://new.example/posts/c"),
                item("y-a", "Title a", "https://new.example/posts/a"),
            ],
        ),
        ("title", vec![item("c", "Another title", "https://blog.example/posts/c")]),
    ] {
        fetch(&w, &server, id, &items).await;
        assert_eq!(posted(&w).await.len(), 1, "{change}");
    }
    fetch(&w, &server, id, &[article("d"), article("c")]).await;
    assert_eq!(posted(&w).await.len(), 2);
    fetch(&w, &server, id, &[article("d"), article("c"), article("b"), article("a")]).await;
    assert_eq!((posted(&w).await.len(), listed(&w, id).await.len()), (2, 2));
}

async fn a_chain_of_changes_is_one_article(w: TestWorker) {
    let server = Server::start().await;
    let id = publishing_feed(&w, &server, &settings(&w), &[]).await;
    for items in [
        [item("g1", "One", "https://blog.example/1")],
        [item("g1", "Two", "https://blog.example/2")],
        [item("g2", "Three", "https://blog.example/2")],
        [item("g2", "Four", "https://blog.example/4")],
        [item("g4", "Five", "https://blog.example/4")],
    ] {
        fetch(&w, &server, id, &items).await;
        assert_eq!(texts(&w).await, ["One\n\nhttps://blog.example/1"]);
    }
}

async fn entries_of_one_page_with_one_title_are_all_posted(w: TestWorker) {
    let server = Server::start().await;
    let entry = |n: i64| item(&format!("entry-{n}"), "Release", &format!("https://blog.example/changes#entry-{n}"));
    let id = publishing_feed(&w, &server, &settings(&w), &[entry(1)]).await;
    fetch(&w, &server, id, &[entry(3), entry(2), entry(1)]).await;
    let text = |n: i64| format!("Release\n\nhttps://blog.example/changes#entry-{n}");
    assert_eq!(texts(&w).await, [text(3), text(2)]);
}

async fn the_first_articles_of_a_url_are_not_posted(w: TestWorker) {
    let server = Server::start().await;
    let id = publishing_feed(&w, &server, &settings(&w), &[article("a")]).await;
    let url = server.url("/moved");
    server.set_response("/moved", document(&[article("x"), article("y")]));
    w.write(async |tx| feeds::move_to(tx, id, &url, "Blog", None).await).await;
    assert_eq!(feed(&w, id).await.auto_post_since, None);
    w.run_jobs().await;
    assert_eq!((feed(&w, id).await.articles_count, posted(&w).await.len()), (2, 0));
    server.set_response("/moved", document(&[article("z"), article("x"), article("a")]));
    fetch(&w, &server, id, &[]).await;
    assert_eq!(texts(&w).await, ["Title z\n\nhttps://blog.example/posts/z"], "the article of the old URL is known");
    // While it is turned off, articles are neither posted nor kept for later.
    let off = AutoPost { is_active: false, ..settings(&w) };
    set(&w, id, &off, w.world.user).await;
    server.set_response("/moved", document(&[article("w")]));
    fetch(&w, &server, id, &[]).await;
    assert_eq!((posted(&w).await.len(), listed(&w, id).await.len()), (1, 1));
}

async fn two_hundred_new_articles_stop_at_the_maximum(w: TestWorker) {
    let server = Server::start().await;
    let id = publishing_feed(&w, &server, &settings(&w), &[article("old")]).await;
    let many: Vec<Item> = (0..200).map(|n| article(&format!("n{n:03}"))).collect();
    fetch(&w, &server, id, &many).await;
    let titles: Vec<String> = texts(&w).await.iter().map(|text| text.lines().next().unwrap().to_owned()).collect();
    assert_eq!(titles, ["Title n000", "Title n001", "Title n002", "Title n003", "Title n004"], "the newest");
    let all = listed(&w, id).await;
    let skipped = all.iter().filter(|article| article.status == FeedPostStatus::Skipped);
    assert_eq!((all.len(), skipped.count()), (200, 195));
    let reason = "The feed reached its maximum of 5 posts per day.";
    assert!(all.iter().all(|one| one.post_id.is_some() || one.reason.as_deref() == Some(reason)));
    let problem = feed(&w, id).await.auto_post_problem;
    assert_eq!(
        problem.as_deref(),
        Some("The feed reached its maximum of 5 posts per day. 195 articles were not posted.")
    );
    let notices = async || w.count_rows("notices WHERE kind = 'feed_not_posted'").await;
    assert_eq!(notices().await, 1);
    w.sql("DELETE FROM notices").await;
    // Another one on the same day, for which no second email is sent.
    let with = |name: &str| std::iter::once(article(name)).chain((0..50).map(|n| article(&format!("n{n:03}"))));
    fetch(&w, &server, id, &with("late").collect::<Vec<_>>()).await;
    assert_eq!((posted(&w).await.len(), notices().await), (5, 0));
    let problem = feed(&w, id).await.auto_post_problem;
    assert_eq!(problem.as_deref(), Some("The feed reached its maximum of 5 posts per day. 1 article was not posted."));
    w.clock.advance(TimeDelta::days(1));
    fetch(&w, &server, id, &with("next").collect::<Vec<_>>()).await;
    assert_eq!(texts(&w).await[0], "Title next\n\nhttps://blog.example/posts/next");
    assert_eq!((posted(&w).await.len(), feed(&w, id).await.auto_post_problem), (6, None));
    let more: Vec<Item> = (0..6).map(|n| article(&format!("more{n}"))).collect();
    fetch(&w, &server, id, &more).await;
    assert_eq!((posted(&w).await.len(), notices().await), (10, 1), "the maximum of the next day");
}

async fn a_flood_of_articles_does_not_reset_the_maximum(w: TestWorker) {
    let server = Server::start().await;
    let id = publishing_feed(&w, &server, &settings(&w), &[]).await;
    let first: Vec<Item> = ["e", "d", "c", "b", "a"].map(article).into();
    fetch(&w, &server, id, &first).await;
    assert_eq!(posted(&w).await.len(), 5);
    let names: Vec<String> = (0..2_000).map(|n| format!("flood{n}")).collect();
    let skipped = |name| NewFeedPost {
        status: Some(FeedPostStatus::Skipped),
        guid: name,
        keys: ArticleKeys::default(),
        title: None,
        url: None,
        reason: None,
    };
    let flood: Vec<NewFeedPost<'_>> = names.iter().map(String::as_str).map(skipped).collect();
    w.write(async |tx| feed_posts::remember(tx, id, &flood).await).await;
    for name in ["late", "later"] {
        fetch(&w, &server, id, &[article(name)]).await;
        assert_eq!((posted(&w).await.len(), w.count_rows("feed_posts").await), (5, 2_005), "{name}");
    }
}

async fn filters_and_old_dates_skip_articles(w: TestWorker) {
    let server = Server::start().await;
    let filtered =
        AutoPost { include: vec!["bread".to_owned()], exclude: vec!["rye bread".to_owned()], ..settings(&w) };
    let id = publishing_feed(&w, &server, &filtered, &[]).await;
    let link = |n: i64| format!("https://blog.example/{n}");
    let dated = |days: i64| {
        let at = (w.now() - TimeDelta::days(days)).to_rfc2822();
        Item(format!("old{days}"), format!("Bread {days}"), link(100 + days), format!("<pubDate>{at}</pubDate>"))
    };
    let in_summary = Item(
        "5".to_owned(),
        "News".to_owned(),
        link(5),
        "<description>&lt;b&gt;Bread&lt;/b&gt;</description>".to_owned(),
    );
    let items = [
        item("1", "Fresh BREAD", &link(1)),
        item("2", "Rye bread", &link(2)),
        item("3", "Cake", &link(3)),
        item("4", "Breads", &link(4)),
        in_summary,
        dated(6),
        dated(30),
    ];
    fetch(&w, &server, id, &items).await;
    let mut titles: Vec<String> = texts(&w).await.iter().map(|text| text.lines().next().unwrap().to_owned()).collect();
    titles.sort();
    assert_eq!(titles, ["Bread 6", "Fresh BREAD", "News"]);
    let reason = async |title: &str| {
        let found = listed(&w, id).await.into_iter().find(|one| one.title.as_deref() == Some(title)).unwrap();
        found.reason.unwrap()
    };
    assert_eq!(reason("Rye bread").await, "The article contains the excluded word “rye bread”.");
    assert_eq!(reason("Cake").await, "The article contains none of the required words.");
    assert_eq!(reason("Breads").await, "The article contains none of the required words.");
    assert!(reason("Bread 30").await.contains("more than 7 days"));
    assert_eq!(feed(&w, id).await.auto_post_problem, None, "a filter is no problem");
}

async fn articles_are_published_or_submitted(w: TestWorker) {
    let server = Server::start().await;
    let now = AutoPost { destination: FeedDestination::Now, ..settings(&w) };
    let id = publishing_feed(&w, &server, &now, &[]).await;
    fetch(&w, &server, id, &[article("a")]).await;
    let post = posted(&w).await.remove(0);
    assert_eq!((post.status, post.author_id), (PostStatus::Published, Some(w.world.user)));
    assert_eq!(w.fake.posts()[0].text, "Title a\n\nhttps://blog.example/posts/a");
    let approval = AutoPost { destination: FeedDestination::Approval, ..settings(&w) };
    set(&w, id, &approval, w.world.user).await;
    fetch(&w, &server, id, &[article("b"), article("a")]).await;
    let reason = listed(&w, id).await.remove(0).reason.unwrap();
    assert!(reason.contains("no longer includes approvals"), "the plan of the test has none: {reason}");
    w.set_plan(w.world.workspace, "business").await;
    fetch(&w, &server, id, &[article("c"), article("b"), article("a")]).await;
    assert_eq!(posted(&w).await[0].status, PostStatus::PendingApproval);
    assert_eq!(w.fake.posts().len(), 1);
}

async fn a_rejection_is_shown_and_not_repeated(w: TestWorker) {
    let server = Server::start().await;
    let now = AutoPost { destination: FeedDestination::Now, ..settings(&w) };
    let id = publishing_feed(&w, &server, &now, &[]).await;
    w.set_used_posts(w.world.workspace, 1_000).await;
    fetch(&w, &server, id, &[article("a")]).await;
    let reason = Some("The workspace's plan allows only 1000 posts per month.".to_owned());
    let rejected = listed(&w, id).await.remove(0);
    assert_eq!((rejected.status, rejected.reason, rejected.post_id), (FeedPostStatus::Skipped, reason.clone(), None));
    assert_eq!(feed(&w, id).await.auto_post_problem, reason);
    assert_eq!((w.count_rows("posts").await, w.count_rows("post_targets").await), (0, 0), "nothing remains of it");
    assert_eq!(w.count_rows("jobs WHERE kind = 'post_article' AND state = 'done'").await, 1, "the job has not failed");
    w.set_used_posts(w.world.workspace, 0).await;
    fetch(&w, &server, id, &[article("a")]).await;
    assert_eq!(posted(&w).await.len(), 0);
    fetch(&w, &server, id, &[article("b"), article("a")]).await;
    assert_eq!((posted(&w).await.len(), feed(&w, id).await.auto_post_problem), (1, None));
    // An account that is no longer in the brand.
    let other = AutoPost { accounts: vec![w.account.id + 1_000], ..now };
    set(&w, id, &other, w.world.user).await;
    fetch(&w, &server, id, &[article("c"), article("b")]).await;
    let problem = feed(&w, id).await.auto_post_problem.unwrap();
    assert_eq!(problem, format!("Account {} does not exist in this brand.", w.account.id + 1_000));
}

async fn articles_are_not_posted_into_a_full_storage(w: TestWorker) {
    let server = Server::start().await;
    let now = AutoPost { destination: FeedDestination::Now, ..settings(&w) };
    let id = publishing_feed(&w, &server, &now, &[]).await;
    let plan = 20_480_i64 << 20;
    w.set_storage_usage(w.world.workspace, plan / 2, plan / 2).await;
    fetch(&w, &server, id, &[article("a")]).await;
    let skipped = listed(&w, id).await.remove(0);
    assert_eq!((skipped.status, skipped.post_id), (FeedPostStatus::Skipped, None));
    let reason = skipped.reason.unwrap();
    assert!(reason.contains("20480 MiB"), "{reason}");
    assert_eq!(feed(&w, id).await.auto_post_problem, Some(reason));
    assert_eq!((w.count_rows("posts").await, w.fake.posts().len()), (0, 0));
    w.set_storage_usage(w.world.workspace, 0, 0).await;
    fetch(&w, &server, id, &[article("b"), article("a")]).await;
    assert_eq!((posted(&w).await.len(), feed(&w, id).await.auto_post_problem), (1, None));
}

async fn the_member_must_still_be_in_the_brand(w: TestWorker) {
    let server = Server::start().await;
    let now = AutoPost { destination: FeedDestination::Now, ..settings(&w) };
    let id = publishing_feed(&w, &server, &now, &[]).await;
    let colleague = w.user(w.world.workspace, "bob@example.com").await;
    set(&w, id, &now, colleague).await;
    fetch(&w, &server, id, &[article("a")]).await;
    assert!(feed(&w, id).await.auto_post_problem.unwrap().contains("has left the brand"));
    w.member(w.world.brand, colleague, Role::Contributor).await;
    fetch(&w, &server, id, &[article("b")]).await;
    assert!(feed(&w, id).await.auto_post_problem.unwrap().starts_with("Contributors cannot publish."));
    assert_eq!(posted(&w).await.len(), 0);
    w.member(w.world.brand, colleague, Role::Editor).await;
    fetch(&w, &server, id, &[article("c")]).await;
    assert_eq!(posted(&w).await[0].author_id, Some(colleague));
}

/// Creates a feed that publishes, and fetches a new article from it. The job that posts the article waits.
async fn fetched_feed(w: &TestWorker, article: Item) -> (Server, i64) {
    let server = Server::start().await;
    let id = publishing_feed(w, &server, &settings(w), &[]).await;
    server.set_response("/feed", document(&[article]));
    w.clock.advance(feed(w, id).await.next_fetch_at - w.clock.now());
    tasks::feeds::run(&w.scheduler).await.unwrap();
    assert!(w.engine.run(w.notified_job()).await);
    (server, id)
}

async fn an_article_is_skipped_without_a_problem_after_publishing_was_turned_off(w: TestWorker) {
    let (_server, id) = fetched_feed(&w, article("a")).await;
    w.write(async |tx| feeds::set_auto_post(tx, id, None, w.world.user).await).await;
    // It appeared before publishing is turned on again.
    set(&w, id, &settings(&w), w.world.user).await;
    w.run_jobs().await;
    let skipped = listed(&w, id).await.remove(0);
    assert_eq!((skipped.status, posted(&w).await.len()), (FeedPostStatus::Skipped, 0));
    assert!(skipped.reason.unwrap().contains("turned off"));
    assert_eq!((feed(&w, id).await.auto_post_problem, w.count_rows("notices").await), (None, 0));
}

async fn a_waiting_article_of_the_old_url_is_not_posted(w: TestWorker) {
    let (server, id) = fetched_feed(&w, item("1", "Old", "https://blog.example/old")).await;
    server.set_response("/moved", document(&[item("1", "New", "https://other.example/new")]));
    let post_job = w.notified_job();
    let url = server.url("/moved");
    w.write(async |tx| feeds::move_to(tx, id, &url, "Blog", None).await).await;
    // The fetch of the new URL ends first.
    assert!(w.engine.run(w.notified_job()).await);
    assert_eq!(feed(&w, id).await.articles_count, 1);
    assert!(w.engine.run(post_job).await);
    let skipped = listed(&w, id).await.remove(0);
    assert_eq!((skipped.status, posted(&w).await.len()), (FeedPostStatus::Skipped, 0));
    assert!(skipped.reason.unwrap().contains("URL of the feed was changed"));
}

async fn a_worker_that_dies_posts_once(w: TestWorker) {
    let (_server, _) = fetched_feed(&w, article("a")).await;
    let claimed = w.claim(&[w.notified_job()], "w").await.remove(0);
    assert_eq!(claimed.kind, JobKind::PostArticle);
    let report = w.run_claimed(&claimed).await;
    // It dies before the commit.
    let (tx, _) = w.write_result(&claimed, &report).await;
    tx.rollback().await.unwrap();
    assert_eq!(posted(&w).await.len(), 0);
    w.advance(LEASE_EXPIRY_SECONDS);
    w.run_until_idle().await;
    assert_eq!(posted(&w).await.len(), 1);
    // It was not dead, and writes its result now.
    assert!(!w.settle_result(&claimed, &report).await);
    assert_eq!(posted(&w).await.len(), 1);
}

async fn a_dead_job_skips_its_article(w: TestWorker) {
    w.leaves_jobs();
    let (_server, id) = fetched_feed(&w, article("a")).await;
    let waiting = listed(&w, id).await.remove(0);
    assert_eq!(waiting.status, FeedPostStatus::Waiting);
    w.write(async |tx| crier_jobs::on_dead(tx, JobKind::PostArticle, waiting.id, None).await).await;
    let skipped = listed(&w, id).await.remove(0);
    assert!(skipped.reason.unwrap().contains("internal error"));
    assert!(w.write(async |tx| crier_jobs::on_retry(tx, JobKind::PostArticle, waiting.id).await).await);
    w.run_jobs().await;
    assert_eq!(posted(&w).await.len(), 1);
    w.write(async |tx| crier_jobs::on_cancelled(tx, JobKind::PostArticle, waiting.id).await).await;
    assert_eq!(listed(&w, id).await[0].status, FeedPostStatus::Posted, "the post remains");
}
