//! Lists and searches of posts: filters, words, orders, and their combinations.

use chrono::TimeDelta;
use serde_json::{Value, json};

use crate::support::app::{Tenant, TestApp, on_both_apps, on_one_app};

on_both_apps!(
    words_of_the_text_are_found,
    the_index_follows_the_text,
    filters_combine,
    times_are_those_of_the_post,
    orders_put_posts_without_a_time_last,
    a_large_page_ends_early,
    posts_of_other_brands_are_not_found,
);
on_one_app!(invalid_filters_are_reported);

async fn create(t: &Tenant<'_>, body: Value) -> i64 {
    t.post(&t.path("/posts"), body).await.data(201)["id"].as_i64().unwrap()
}

/// Returns the ids of the posts that a query finds, on one page.
async fn found(t: &Tenant<'_>, query: &str) -> Vec<i64> {
    let page = t.get(&t.path(&format!("/posts?{query}"))).await.expect(200);
    let ids: Vec<i64> = page["data"].as_array().unwrap().iter().map(|post| post["id"].as_i64().unwrap()).collect();
    assert_eq!(page["meta"]["total"], ids.len(), "{query}");
    ids
}

async fn words_of_the_text_are_found(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await;
    let bread = create(&t, json!({ "content": "Fresh Crème-Brot, from 7 o'clock" })).await;
    let body = json!({ "content": "Fresh rolls", "accounts": [account], "overrides": [
        { "account_id": account, "content": "Baguettes" }] });
    let rolls = create(&t, body).await;
    let sushi = create(&t, json!({ "content": "東京都の新しいパン" })).await;
    for (search, expected) in [
        ("fresh", vec![rolls, bread]),
        ("FRES", vec![rolls, bread]),
        ("creme", vec![bread]),
        ("brot%20fresh", vec![bread]),
        ("rolls%20brot", vec![]),
        ("resh", vec![]),
        ("baguettes", vec![]),
        ("%E6%9D%B1%E4%BA%AC", vec![sushi]),
        ("!!", vec![]),
        ("", vec![sushi, rolls, bread]),
        ("%20", vec![sushi, rolls, bread]),
    ] {
        assert_eq!(found(&t, &format!("search={search}")).await, expected, "{search}");
    }
}

async fn the_index_follows_the_text(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await;
    let plain = create(&t, json!({ "content": "one two" })).await;
    let with_targets = create(&t, json!({ "content": "one two", "accounts": [account] })).await;
    assert_eq!(found(&t, "search=two").await, [with_targets, plain]);
    for id in [plain, with_targets] {
        t.put(&t.path(&format!("/posts/{id}")), json!({ "content": "two three" })).await.expect(200);
        t.put(&t.path(&format!("/posts/{id}")), json!({ "labels": ["x"] })).await.expect(200);
    }
    assert_eq!(found(&t, "search=one").await, [0_i64; 0]);
    assert_eq!(found(&t, "search=two").await, [with_targets, plain]);
    assert_eq!(found(&t, "search=three").await, [with_targets, plain]);
    assert_eq!(app.count_rows("post_words").await, 4);
    t.delete(&t.path(&format!("/posts/{plain}"))).await.expect(204);
    assert_eq!(found(&t, "search=two").await, [with_targets]);
    assert_eq!(app.count_rows("post_words").await, 2);
    app.delete_brand(t.brand).await;
    assert_eq!(app.count_rows("post_words").await, 0);
}

async fn filters_combine(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let (one, two) = (t.account("one").await, t.account("two").await);
    let at = (app.now() + TimeDelta::hours(5)).to_rfc3339().replace('+', "%2B");
    let plain_at = (app.now() + TimeDelta::hours(5)).to_rfc3339();
    let a = create(&t, json!({ "content": "bread a", "accounts": [one], "labels": ["x"] })).await;
    let b = create(&t, json!({ "content": "bread b", "accounts": [one, two], "labels": ["x", "y"] })).await;
    let scheduled = json!({
        "content": "bread c", "accounts": [two], "labels": ["y"], "schedule_type": "scheduled", "scheduled_at": plain_at,
    });
    let c = create(&t, scheduled).await;
    let d = create(&t, json!({ "content": "rolls d" })).await;
    for (query, expected) in [
        ("label=x".to_owned(), vec![b, a]),
        ("label=%20y%20".to_owned(), vec![c, b]),
        ("label=z".to_owned(), vec![]),
        (format!("account_id={one}"), vec![b, a]),
        (format!("account_id={two}&label=x"), vec![b]),
        (format!("account_id={two}&status=scheduled"), vec![c]),
        ("status=draft&search=bread".to_owned(), vec![b, a]),
        (format!("search=bread&label=y&account_id={two}&status=draft&sort=-published_at"), vec![b]),
        (format!("from={at}"), vec![c]),
        (format!("to={at}&search=bread"), vec![b, a]),
        (format!("from={at}&status=draft"), vec![]),
        ("account_id=999999999".to_owned(), vec![]),
        ("status=draft".to_owned(), vec![d, b, a]),
    ] {
        assert_eq!(found(&t, &query).await, expected, "{query}");
    }
    let page = t.get(&t.path("/posts?search=bread&per_page=2&page=2")).await.expect(200);
    assert_eq!((&page["data"][0]["id"], &page["meta"]["total"]), (&json!(a), &json!(3)));
    assert!(page["links"]["prev"].as_str().unwrap().ends_with("/posts?search=bread&per_page=2&page=1"), "{page}");
    t.delete(&t.path(&format!("/posts/{b}"))).await.expect(204);
    assert_eq!(found(&t, &format!("account_id={two}")).await, [c]);
}

async fn times_are_those_of_the_post(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let ids = [create(&t, json!({ "content": "a" })).await, create(&t, json!({ "content": "b" })).await];
    let (created, published, scheduled) = ("2026-01-01", "2026-01-05", "2026-01-09");
    app.sql(format!("UPDATE posts SET created_at = '{created}T12:00:00+00:00'")).await;
    let set = async |column: &str, day: &str| {
        app.sql(format!("UPDATE posts SET {column} = '{day}T12:00:00+00:00' WHERE id = {}", ids[1])).await;
    };
    let day = |day: &str| format!("from={day}T00:00:00Z&to={day}T23:00:00Z");
    assert_eq!(found(&t, &day(created)).await, [ids[1], ids[0]]);
    set("published_at", published).await;
    assert_eq!((found(&t, &day(created)).await, found(&t, &day(published)).await), (vec![ids[0]], vec![ids[1]]));
    set("scheduled_at", scheduled).await;
    assert_eq!(found(&t, &day(published)).await, [0_i64; 0]);
    assert_eq!(found(&t, &day(scheduled)).await, [ids[1]]);
    // Without an offset, times are in the brand's zone, which is an hour ahead. The end is exclusive.
    assert_eq!(found(&t, &format!("from={scheduled}T13:00:00")).await, [ids[1]]);
    assert_eq!(found(&t, &format!("from={scheduled}T13:00:01")).await, [0_i64; 0]);
    assert_eq!(found(&t, &format!("to={scheduled}T13:00:00")).await, [ids[0]]);
}

async fn orders_put_posts_without_a_time_last(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let mut ids = Vec::new();
    for n in 0..6 {
        ids.push(create(&t, json!({ "content": format!("bread {n}") })).await);
    }
    for (n, hour) in [(1, "12"), (2, "10"), (4, "11"), (5, "10")] {
        let time = format!("'2026-01-09T{hour}:00:00+00:00'");
        app.sql(format!("UPDATE posts SET scheduled_at = {time}, published_at = {time} WHERE id = {}", ids[n])).await;
    }
    let listed = |order: [usize; 6]| order.map(|n| ids[n]).to_vec();
    let (scheduled, published) = (listed([2, 5, 4, 1, 0, 3]), listed([1, 4, 5, 2, 3, 0]));
    for filter in ["", "&search=bread", "&status=draft", "&status=draft&search=br"] {
        assert_eq!(found(&t, &format!("sort=scheduled_at{filter}")).await, scheduled, "{filter}");
        assert_eq!(found(&t, &format!("sort=-published_at{filter}")).await, published, "{filter}");
        assert_eq!(found(&t, &format!("sort=-id{filter}")).await, listed([5, 4, 3, 2, 1, 0]), "{filter}");
        for (sort, expected) in [("scheduled_at", &scheduled), ("-published_at", &published)] {
            let mut paged = Vec::new();
            for page in 1..=3 {
                let query = format!("/posts?sort={sort}&per_page=2&page={page}{filter}");
                let rows = t.get(&t.path(&query)).await.data(200);
                paged.extend(rows.as_array().unwrap().iter().map(|post| post["id"].as_i64().unwrap()));
            }
            assert_eq!(&paged, expected, "{sort} {filter}");
        }
    }
}

async fn a_large_page_ends_early(app: TestApp) {
    let t = app.tenant("unlimited").await;
    for _ in 0..50 {
        create(&t, json!({ "content": "x", "labels": ["long"] })).await;
    }
    app.sql(format!("UPDATE posts SET content = '{}'", "€".repeat(65_535))).await;
    let page = t.get(&t.path("/posts?label=long&per_page=100")).await.expect(200);
    let rows = page["data"].as_array().unwrap().len();
    assert!(page["meta"]["per_page"] == rows && (5..50).contains(&rows), "{rows}");
    assert_eq!(page["meta"]["total"], 50);
    let next = page["links"]["next"].as_str().unwrap();
    assert!(next.contains("label=long&") && next.ends_with(&format!("per_page={rows}&page=2")), "{next}");
}

async fn posts_of_other_brands_are_not_found(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await;
    create(&t, json!({ "content": "bread", "accounts": [account], "labels": ["x"] })).await;
    let second = t.post("/brands", json!({ "name": "Second" })).await.data(201)["id"].as_i64().unwrap();
    let other = Tenant { brand: second, key: t.key.clone(), ..t };
    // The same account in both brands.
    assert_eq!(other.account("demo").await, account);
    let own = create(&other, json!({ "content": "bread", "accounts": [account], "labels": ["x"] })).await;
    for query in ["search=bread".to_owned(), "label=x".to_owned(), format!("account_id={account}"), String::new()] {
        assert_eq!(found(&other, &query).await, [own], "{query}");
    }
}

async fn invalid_filters_are_reported(app: TestApp) {
    let t = app.tenant("unlimited").await;
    for (query, field) in [
        ("sort=id", "sort"),
        ("sort=", "sort"),
        ("account_id=0", "account_id"),
        ("account_id=x", "account_id"),
        ("from=yesterday", "from"),
        ("to=2026-01-01T00:00:00Z&from=2026-01-02T00:00:00Z", "to"),
        ("labels=x", "labels"),
        ("q=x", "q"),
        ("order=-id", "order"),
    ] {
        assert_eq!(t.get(&t.path(&format!("/posts?{query}"))).await.invalid_fields(), [field], "{query}");
    }
    for name in ["search", "label"] {
        let query = format!("{name}={}", "x".repeat(201));
        assert_eq!(t.get(&t.path(&format!("/posts?{query}"))).await.invalid_fields(), [name]);
    }
}
