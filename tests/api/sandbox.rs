//! The public pages of the sandbox, which anyone can read and comment on.

use chrono::TimeDelta;
use crier_domain::sandbox::{NewSandboxPost, SandboxMedia, SandboxReply};
use crier_store::sandbox::{self, MAX_COMMENTS};
use serde_json::json;

use crate::support::app::{Reply, Tenant, TestApp, on_one_app};
use crate::support::store::publish_to_sandbox;

on_one_app!(
    timelines_are_paginated,
    a_comment_is_shown_under_its_post,
    threads_and_first_comments_are_shown_under_their_post,
    threads_do_not_shorten_a_page,
    comments_are_rate_limited_by_address,
    comments_per_post_are_capped_and_newest_are_shown,
    page_size_is_bounded_despite_long_comments,
    videos_are_played,
);
on_one_app!("unlimited" => unstorable_path_segments_return_404, links_are_rendered_and_failed_posts_show_the_reason);

/// Publishes this number of posts on the handle `demo`, and returns their ids, oldest first.
async fn posts(app: &TestApp, count: usize) -> Vec<i64> {
    let workspace = app.workspace().await;
    app.write(async |tx| {
        sandbox::claim_handle(tx, workspace, "demo").await?;
        let mut posts = Vec::new();
        for n in 0..count {
            let (key, text) = (format!("key {n}"), format!("post number {n:03}"));
            posts.extend(publish_to_sandbox(tx, workspace, "demo", &key, &text, &[]).await?);
        }
        Ok(posts)
    })
    .await
}

async fn send(app: &TestApp, post: i64, form: &str) -> Reply {
    let path = format!("/sandbox/demo/posts/{post}/comments");
    let request = app.request_at_root("POST", &app.url, &path).raw(form);
    request.header("content-type", "application/x-www-form-urlencoded").send().await
}

async fn comment(app: &TestApp, post: i64, text: &str) -> Reply {
    send(app, post, &format!("name=Vera&body={text}")).await
}

/// Returns the HTML of a page.
async fn page(app: &TestApp, path: &str) -> String {
    let reply = app.page(path).await;
    reply.assert_status(200);
    String::from_utf8(reply.body).unwrap()
}

fn numbers(page: &str) -> Vec<&str> {
    page.split("post number ").skip(1).map(|rest| &rest[..3]).collect()
}

async fn timelines_are_paginated(app: TestApp) {
    let created = posts(&app, 45).await;
    let mut path = "/sandbox/demo".to_owned();
    let mut seen = Vec::new();
    for shown in [20, 20, 5] {
        let text = page(&app, &path).await;
        let numbers = numbers(&text);
        assert_eq!(numbers.len(), shown, "{path}");
        seen.extend(numbers.iter().map(|n| n.parse::<usize>().unwrap()));
        assert_eq!(text.contains("Newest posts"), path.contains('?'));
        match text.split("<a href=\"").find(|link| link.contains(">Older posts<")) {
            Some(link) => path = link.split('"').next().unwrap().to_owned(),
            None => assert_eq!(shown, 5),
        }
    }
    assert_eq!(seen, (0..45).rev().collect::<Vec<_>>());
    // The URL of a post shows it, however many posts are newer.
    let text = page(&app, &format!("/sandbox/demo?from={}", created[7])).await;
    assert_eq!((numbers(&text)[0], numbers(&text).len()), ("007", 8));
    assert!(text.contains(&format!("<a href=\"/sandbox/demo?from={0}#post-{0}\">", created[7])), "{text}");
    for odd in ["?from=0", "?from=-1", "?from=x", "?from=%00", "?from=99999999999999999999", "?from="] {
        assert_eq!(numbers(&page(&app, &format!("/sandbox/demo{odd}")).await)[0], "044", "{odd}");
    }
    assert!(numbers(&page(&app, "/sandbox/demo?from=1").await).len() <= 1);
}

async fn a_comment_is_shown_under_its_post(app: TestApp) {
    let post = posts(&app, 1).await[0];
    let reply = comment(&app, post, "Tasty+%3Cb%3E").await;
    reply.assert_status(303);
    let to = format!("/sandbox/demo?from={post}#post-{post}");
    assert_eq!(reply.header("location"), Some(to.as_str()));
    let text = page(&app, &format!("/sandbox/demo?from={post}")).await;
    assert!(text.contains("<strong>Vera</strong>") && text.contains("Tasty &#60;b&#62;"), "{text}");
    let long_name = format!("name={}&body=x", "n".repeat(81));
    for bad in ["", "name=Vera", "body=x", "name=+&body=x", "name=a%00&body=x", &long_name] {
        send(&app, post, bad).await.assert_status(422);
    }
    comment(&app, post, &"x".repeat(2_001)).await.assert_status(422);
    comment(&app, post, &"x".repeat(70_000)).await.assert_status(413);
    comment(&app, post + 1, "x").await.assert_status(404);
    assert_eq!(app.count_rows("sandbox_comments").await, 1);
}

/// Replies to a post, and returns the id of the reply.
async fn reply(app: &TestApp, parent: i64, is_comment: bool, text: &str) -> i64 {
    let workspace_id = sandbox::owner(&mut app.store.conn().await, "demo").await.unwrap().unwrap();
    let post = NewSandboxPost {
        workspace_id,
        handle: "demo".to_owned(),
        key: format!("{parent} {text}"),
        content: text.to_owned(),
        media: vec![SandboxMedia::image("/media/door.png", "A door")],
        reply_to: Some(SandboxReply { parent_id: parent, is_comment }),
    };
    app.write(async |tx| sandbox::publish(tx, &post).await).await.unwrap()
}

async fn threads_and_first_comments_are_shown_under_their_post(app: TestApp) {
    let post = posts(&app, 1).await[0];
    let second = reply(&app, post, false, "part two").await;
    let third = reply(&app, second, false, "part <three>").await;
    let first_comment = reply(&app, post, true, "Order at https://bakery.example").await;
    comment(&app, post, "Tasty").await.assert_status(303);
    posts_after(&app).await;
    let text = page(&app, "/sandbox/demo").await;
    let place = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part} is not in {text}"));
    let places = [
        place("the newest"),
        place(&format!("<article id=\"post-{post}\">")),
        place("post number 000"),
        place(&format!("<section id=\"post-{second}\">")),
        place("part two"),
        place(&format!("<a href=\"/sandbox/demo?from={post}#post-{second}\">#{second}</a>")),
        place(&format!("<section id=\"post-{third}\">")),
        place("part &#60;three&#62;"),
        place(&format!("<li id=\"post-{first_comment}\"><strong>@demo</strong>")),
        place("<a href=\"https://bakery.example\""),
        place("Tasty"),
    ];
    assert!(places.is_sorted(), "{places:?}: {text}");
    assert_eq!(text.matches("<article").count(), 2);
    // The images of the parts. Comments have none.
    assert_eq!(text.matches("<img src=\"/media/door.png\" alt=\"A door\"").count(), 2);
    // Visitors comment on posts.
    comment(&app, second, "x").await.assert_status(404);
    comment(&app, first_comment, "x").await.assert_status(404);

    let workspace = sandbox::owner(&mut app.store.conn().await, "demo").await.unwrap().unwrap();
    for id in [first_comment, third] {
        assert!(app.write(async |tx| sandbox::delete(tx, workspace, "demo", id).await).await);
    }
    let text = page(&app, "/sandbox/demo").await;
    assert!(text.contains("part two") && text.contains("Tasty"), "{text}");
    assert!(!text.contains("three") && !text.contains("bakery.example"), "{text}");
}

/// Publishes another post on the handle `demo`.
async fn posts_after(app: &TestApp) {
    let workspace = sandbox::owner(&mut app.store.conn().await, "demo").await.unwrap().unwrap();
    app.write(async |tx| publish_to_sandbox(tx, workspace, "demo", "newest", "the newest", &[]).await).await.unwrap();
}

async fn threads_do_not_shorten_a_page(app: TestApp) {
    let created = posts(&app, 22).await;
    for post in [created[0], created[21]] {
        let mut parent = post;
        for n in 2..=25 {
            parent = reply(&app, parent, false, &format!("part {n:02} of {post}")).await;
        }
        reply(&app, post, true, "first comment").await;
    }
    let text = page(&app, "/sandbox/demo").await;
    assert_eq!((numbers(&text).len(), text.matches("<section id=").count()), (20, 24));
    let text = page(&app, &format!("/sandbox/demo?from={}", created[1])).await;
    assert_eq!((numbers(&text).len(), text.matches("<section id=").count()), (2, 24));
    assert!(text.contains("first comment") && !text.contains("Older posts"), "{text}");
}

async fn comments_are_rate_limited_by_address(app: TestApp) {
    let post = posts(&app, 1).await[0];
    for _ in 0..60 {
        comment(&app, post, "again").await.assert_status(303);
    }
    let rejected = comment(&app, post, "again").await;
    rejected.assert_status(429);
    assert_eq!((rejected.header("retry-after"), rejected.header("x-ratelimit-remaining")), (Some("1"), Some("0")));
    assert!(rejected.header("content-type").is_some_and(|kind| kind.starts_with("text/html")), "{rejected:?}");
    assert_eq!(app.count_rows("sandbox_comments").await, 60);
    // Comments use the allowance of clients without a valid key. The page remains available.
    app.request("GET", "/brands").send().await.expect_error(429, "rate_limited");
    page(&app, "/sandbox/demo").await;
    app.clock.advance(TimeDelta::seconds(1));
    comment(&app, post, "again").await.assert_status(303);
    comment(&app, post, "again").await.assert_status(429);
}

async fn comments_per_post_are_capped_and_newest_are_shown(app: TestApp) {
    let post = posts(&app, 1).await[0];
    app.write(async |tx| {
        for n in 1..MAX_COMMENTS {
            sandbox::comment(tx, "demo", post, "Vera", &format!("comment {n}.")).await?;
        }
        Ok(())
    })
    .await;
    let text = page(&app, "/sandbox/demo").await;
    assert_eq!(text.matches("<li id=\"comment-").count(), 10);
    assert!(text.contains("189 earlier comments are not shown.") && text.contains("Write a comment"), "{text}");
    assert!(text.contains("comment 199.") && !text.contains("comment 189."), "{text}");
    comment(&app, post, "the+last").await.assert_status(303);
    comment(&app, post, "one+more").await.assert_status(409);
    let text = page(&app, "/sandbox/demo").await;
    assert!(text.contains("the last") && !text.contains("one more"), "{text}");
    assert!(text.contains("This post has 200 comments, the maximum.") && !text.contains("<form"), "{text}");
}

async fn page_size_is_bounded_despite_long_comments(app: TestApp) {
    let created = posts(&app, 25).await;
    let (name, body) = ("<".repeat(80), "<".repeat(2_000));
    app.write(async |tx| {
        for post in &created {
            for _ in 0..15 {
                sandbox::comment(tx, "demo", *post, &name, &body).await?;
            }
        }
        Ok(())
    })
    .await;
    let text = page(&app, "/sandbox/demo").await;
    assert_eq!(text.matches("<li id=\"comment-").count(), 20 * 10);
    // Each `<` is escaped to five characters.
    assert!(text.len() < 2_500_000, "{}", text.len());
}

async fn unstorable_path_segments_return_404(t: Tenant<'_>) {
    let long = "a".repeat(256);
    let parts = ["%00", "a%00", "%ff", "%C3", "%0a", "%7f", "%C2%85", &long];
    for part in parts {
        for path in ["/sandbox/{}", "/@{}", "/@demo/l/{}", "/media/{}", "/{}"] {
            t.app.page(&path.replace("{}", part)).await.assert_status(404);
        }
        t.app
            .request_at_root("POST", &t.app.url, &format!("/sandbox/{part}/posts/1/comments"))
            .send()
            .await
            .assert_status(404);
        t.app
            .request_at_root("POST", &t.app.url, &format!("/sandbox/demo/posts/{part}/comments"))
            .send()
            .await
            .assert_status(404);
        t.get(&t.path(&format!("/posts/{part}"))).await.expect_error(404, "not_found");
        t.get(&format!("/{part}")).await.expect_error(404, "not_found");
    }
    // A valid path that is not a valid handle is not looked up either.
    for part in ["Demo", "a%2Fb", "%27", "%C3%A4", "%20", &"a".repeat(33)] {
        t.app.page(&format!("/sandbox/{part}")).await.not_found();
    }
    for filter in ["%00", "%ff", "draft%00", &long] {
        assert_eq!(t.get(&t.path(&format!("/posts?status={filter}"))).await.invalid_fields(), ["status"]);
        t.get(&t.path(&format!("/posts?other={filter}&{filter}=1"))).await.expect(200);
    }
}

async fn links_are_rendered_and_failed_posts_show_the_reason(t: Tenant<'_>) {
    let account = t.account("demo").await;
    t.app
        .write(async |tx| {
            sandbox::claim_handle(tx, t.workspace, "demo").await?;
            publish_to_sandbox(tx, t.workspace, "demo", "key", "See https://bakery.example/?a=1&b=2, <b>now</b>", &[])
                .await
        })
        .await;
    let body = json!({ "content": "Cold bread", "schedule_type": "now", "accounts": [account] });
    let failed = t.post(&t.path("/posts"), body).await.data(201)["id"].as_i64().unwrap();
    t.app.fail_post(failed, "platform_rejected", "The oven is <cold>.").await;
    let page = page(t.app, "/sandbox/demo").await;
    for part in [
        "<a href=\"https://bakery.example/?a=1&#38;b=2\" rel=\"nofollow noopener ugc\">",
        "&#60;b&#62;now",
        "The oven is &#60;cold&#62;.",
        "Cold bread",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
}

async fn videos_are_played(app: TestApp) {
    let media = [
        SandboxMedia::video("/media/a.mp4", "A \"loaf\"", Some("/media/cover.jpg".to_owned())),
        SandboxMedia::image("/media/b.png", "A door"),
        SandboxMedia::video("/media/c.webm", "", None),
    ];
    let workspace = app.workspace().await;
    app.write(async |tx| {
        sandbox::claim_handle(tx, workspace, "demo").await?;
        publish_to_sandbox(tx, workspace, "demo", "key", "Look", &media).await
    })
    .await;
    let reply = app.page("/sandbox/demo").await;
    let policy = reply.header("content-security-policy").unwrap().to_owned();
    assert!(policy.contains("media-src 'self';") && policy.contains("default-src 'none';"), "{policy}");
    let text = String::from_utf8(reply.body).unwrap();
    let place = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part} is not in {text}"));
    let places = [
        place("<div class=\"images of-3\">"),
        place(
            "<video src=\"/media/a.mp4\" poster=\"/media/cover.jpg\" controls preload=\"metadata\" aria-label=\"A \
             &#34;loaf&#34;\"></video>",
        ),
        place("<img src=\"/media/b.png\" alt=\"A door\""),
        place("<video src=\"/media/c.webm\" controls preload=\"metadata\" aria-label=\"Video 3\"></video>"),
    ];
    assert!(places.is_sorted(), "{places:?}: {text}");
}
