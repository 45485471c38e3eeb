//! The list of posts.

use serde_json::json;

use crate::support::app::{MISSING_ID, Tenant, TestApp, on_one_app};
use crate::support::console::ConsoleUser;

on_one_app!(
    posts_are_listed_and_filtered,
    the_filters_are_open_if_one_is_set,
    filters_combine_and_stay_in_the_address,
    scheduled_posts_are_in_the_order_of_their_times,
    a_list_has_pages,
    an_empty_list_says_what_to_do,
    only_the_brands_posts_are_listed
);

async fn create_draft(t: &Tenant<'_>, content: &str, accounts: &[i64]) {
    t.post(&t.path("/posts"), json!({ "content": content, "accounts": accounts })).await.expect(201);
}

async fn posts_are_listed_and_filtered(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let (one, two) = (t.account("one").await, t.account("two").await);
    create_draft(&t, "<i>First</i>", &[one]).await;
    create_draft(&t, "Second", &[two]).await;
    app.end_post(app.newest_id("posts").await, "published", &["published"]).await;
    let person = ConsoleUser::sign_in(&t).await;
    let path = format!("/brands/{}/posts", t.brand);
    let page = person.get(&path).await;
    page.expect(200, "<i>First</i>").expect(200, "1–2 of 2");
    assert!(page.text.find("Second") < page.text.find("<i>First</i>"), "newest first");
    for (query, has_first, has_second) in [
        ("status=draft".to_owned(), true, false),
        (format!("account={two}"), false, true),
        (format!("status=draft&account={two}"), false, false),
        (format!("status=nonsense&account={MISSING_ID}"), true, true),
        ("account=x&page=0".to_owned(), true, true),
    ] {
        let page = person.get(&format!("{path}?{query}")).await;
        assert_eq!((page.has("<i>First</i>"), page.has(">Second<")), (has_first, has_second), "{query}: {}", page.text);
    }
    person.get(&format!("{path}?status=failed")).await.expect(200, "No matching posts");
}

async fn the_filters_are_open_if_one_is_set(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let person = ConsoleUser::sign_in(&t).await;
    let path = format!("/brands/{}/posts", t.brand);
    assert!(!person.get(&path).await.has("class=\"fold\""), "there is nothing to filter");
    create_draft(&t, "Bread", &[]).await;
    for (query, is_open) in [("", false), ("?status=draft", false), ("?search=bread", true), ("?to=2026-07-01", true)] {
        let page = person.get(&format!("{path}{query}")).await;
        page.expect(200, "<details class=\"fold\"");
        assert_eq!(page.has("<details class=\"fold\" open>"), is_open, "{query}: {}", page.text);
    }
}

async fn filters_combine_and_stay_in_the_address(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await;
    for (content, label, at) in [
        ("Rye bread", "spring & <sale>", "2026-07-01T00:00"),
        ("Wheat bread", "spring & <sale>", "2026-07-02T23:59"),
        ("Rye rolls", "other", "2026-07-03T00:00"),
    ] {
        let body = json!({ "content": content, "labels": [label], "scheduled_at": at, "accounts": [account] });
        t.post(&t.path("/posts"), body).await.expect(201);
    }
    let person = ConsoleUser::sign_in(&t).await;
    let path = format!("/brands/{}/posts", t.brand);
    let label = "label=spring+%26+%3Csale%3E";
    let of_account = format!("search=rye&account={account}");
    for (query, shown) in [
        ("search=RYE", vec!["Rye bread", "Rye rolls"]),
        (label, vec!["Rye bread", "Wheat bread"]),
        ("from=2026-07-02", vec!["Wheat bread", "Rye rolls"]),
        ("from=2026-07-02&to=2026-07-01", vec!["Wheat bread", "Rye rolls"]),
        ("from=2026-07-01&to=2026-07-02", vec!["Rye bread", "Wheat bread"]),
        ("from=x&to=2026-02-30&search=%20", vec!["Rye bread", "Wheat bread", "Rye rolls"]),
        (of_account.as_str(), vec!["Rye bread", "Rye rolls"]),
        ("search=rye&label=other&status=draft&from=2026-07-03&to=2026-07-03", vec!["Rye rolls"]),
        ("search=rye&label=other&status=scheduled", vec![]),
        ("search=%21", vec![]),
    ] {
        let page = person.get(&format!("{path}?{query}")).await;
        for content in ["Rye bread", "Wheat bread", "Rye rolls"] {
            assert_eq!(page.has(&format!(">{content}<")), shown.contains(&content), "{query}: {}", page.text);
        }
    }
    let page = person.get(&format!("{path}?{label}&search=rye&to=2026-07-09&status=draft")).await;
    page.expect(200, &format!("href=\"{path}?status=failed&search=rye&{label}&to=2026-07-09\""));
    page.expect(200, &format!("href=\"{path}?search=rye&{label}&to=2026-07-09\""));
    page.expect(200, "<option value=\"spring & <sale>\" selected>").expect(200, "name=\"to\" value=\"2026-07-09\"");
    page.expect(200, &format!("href=\"{path}?{label}\" dir=\"auto\" aria-label=\"Label spring & <sale>\""));
    // A label that no post has.
    person.get(&format!("{path}?label=gone")).await.expect(200, "<option value=\"gone\" selected>");
}

async fn scheduled_posts_are_in_the_order_of_their_times(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await;
    for day in ["03", "01", "02"] {
        let body = json!({ "content": format!("Day {day}"), "schedule_type": "scheduled",
            "scheduled_at": format!("2026-07-{day}T09:30"), "accounts": [account] });
        t.post(&t.path("/posts"), body).await.expect(201);
    }
    let person = ConsoleUser::sign_in(&t).await;
    for query in ["status=scheduled".to_owned(), format!("status=scheduled&account={account}")] {
        let page = person.get(&format!("/brands/{}/posts?{query}", t.brand)).await;
        let places = ["Day 01", "Day 02", "Day 03"].map(|text| page.text.find(text));
        assert!(places[0].is_some() && places.is_sorted(), "{query}: {}", page.text);
    }
}

async fn a_list_has_pages(app: TestApp) {
    let t = app.tenant("unlimited").await;
    for n in 0..21 {
        create_draft(&t, &format!("Post number {n}."), &[]).await;
    }
    let person = ConsoleUser::sign_in(&t).await;
    let path = format!("/brands/{}/posts?status=draft", t.brand);
    let first = person.get(&path).await;
    first.expect(200, "1–20 of 21");
    assert!(!first.has("Post number 0.") && first.has("status=draft&page=2"), "{}", first.text);
    person.get(&format!("{path}&page=2")).await.expect(200, "Post number 0.").expect(200, "21–21 of 21");
    for (page, shown) in
        [("3", "21–21 of 21"), ("9223372036854775807", "21–21 of 21"), ("99999999999999999999", "1–20 of 21")]
    {
        let page = person.get(&format!("{path}&page={page}")).await;
        page.expect(200, shown);
    }
}

async fn an_empty_list_says_what_to_do(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let person = ConsoleUser::sign_in(&t).await;
    let path = format!("/brands/{}/posts", t.brand);
    person.get(&path).await.expect(200, "Connect an account first");
    t.account("demo").await;
    person.get(&path).await.expect(200, "Write a post");
}

async fn only_the_brands_posts_are_listed(app: TestApp) {
    let (t, other) = (app.tenant("unlimited").await, app.tenant("unlimited").await);
    let theirs = other.account("theirs").await;
    create_draft(&other, "A secret plan", &[theirs]).await;
    let person = ConsoleUser::sign_in(&t).await;
    let page = person.get(&format!("/brands/{}/posts?account={theirs}", t.brand)).await;
    assert!(page.status == 200 && !page.has("A secret plan") && !page.has("theirs"), "{}", page.text);
    person.get(&format!("/brands/{}/posts", other.brand)).await.expect(404, "Page not found");
}
