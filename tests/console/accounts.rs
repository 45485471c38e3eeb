//! The accounts of a brand, and the pages that connect them.

use std::sync::atomic::Ordering;

use crate::support::app::{Tenant, on_one_app, on_sqlite_app};
use crate::support::console::ConsoleUser;

on_one_app!(console "free" => accounts_are_capped_by_the_plan);
on_one_app!(console "unlimited" =>
    accounts_and_platforms_are_listed,
    the_sandbox_is_connected_by_its_form,
    an_account_is_checked_and_disconnected,
    an_instance_is_named_and_leads_to_the_page_that_connects,
);
on_sqlite_app!(console "unlimited" => errors_are_shown_at_their_fields_without_secrets);

async fn accounts_and_platforms_are_listed(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let path = t.path("/accounts");
    person.get(&path).await.expect(200, "No accounts connected").expect(200, "Not set up on this installation");
    let id = t.account("demo").await;
    let page = person.get(&path).await;
    page.expect(200, "demo").expect(200, "Active").expect(200, "bot token");
    assert!(page.has(&format!("/accounts/connect/sandbox?account={id}")), "{}", page.text);
    let again = person.get(&t.path(&format!("/accounts/connect/sandbox?account={id}"))).await;
    again.expect(200, "Its scheduled posts do not change");
    t.app
        .sql(
            r#"
        UPDATE social_accounts
        SET status = 'expired', last_error = '{"code":"x","message":"It was revoked."}'"#,
        )
        .await;
    person.get(&path).await.expect(200, "Expired").expect(200, "It was revoked.");
    assert!(!person.get(&path).await.has("Not permitted"));
    t.app.sql("UPDATE social_accounts SET platform = 'threads', granted_scopes = '[\"threads_delete\"]'").await;
    person.get(&path).await.expect(200, "<dt>Not permitted</dt><dd>threads, first comments</dd>");
    for page in ["0", "-1", "x", "9", "99999999999999999999"] {
        assert_eq!(person.get(&format!("{path}?page={page}")).await.status, 200, "{page}");
    }
}

async fn the_sandbox_is_connected_by_its_form(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let path = t.path("/accounts/connect/sandbox");
    let page = person.get(&path).await;
    page.expect(200, "Handle");
    for _ in 0..2 {
        let done = person.submit_from(&page, &path, &[("credentials.handle", " demo ")]).await;
        done.expect(200, "Account connected.").expect(200, "demo");
    }
    assert_eq!(t.app.connector.connects.load(Ordering::SeqCst), 1, "the same form connects once");
    assert_eq!(t.app.count_rows("social_accounts").await, 1);
}

async fn errors_are_shown_at_their_fields_without_secrets(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let telegram = t.path("/accounts/connect/telegram");
    let page =
        person.submit(&telegram, &telegram, &[("credentials.bot_token", "s3cret"), ("credentials.chat_id", "")]).await;
    page.expect(422, "Enter the chat ID or @username of the channel.").expect(422, "e-credentials.chat_id");
    assert!(!page.has("s3cret"), "{}", page.text);
    let sandbox = t.path("/accounts/connect/sandbox");
    let page = person.submit(&sandbox, &sandbox, &[("credentials.handle", "wrong")]).await;
    page.expect(422, "is no handle").expect(422, "value=\"wrong\"");
    for (handle, text) in [("refused", "The platform knows no such handle."), ("away", "The platform does not answer.")]
    {
        person.submit(&sandbox, &sandbox, &[("credentials.handle", handle)]).await.expect(422, text);
    }
    let long = "x".repeat(100_000);
    person.submit(&sandbox, &sandbox, &[("credentials.handle", &long)]).await.expect(422, "at most 2048 characters");
    assert_eq!(t.app.count_rows("social_accounts").await, 0);
    person.get(&t.path("/accounts/connect/facebook")).await.expect(200, "Ask the operator to add an application");
    person.get(&t.path("/accounts/connect/nowhere")).await.expect(404, "The platform does not exist.");
}

async fn an_account_is_checked_and_disconnected(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let id = t.account("demo").await;
    let page = person.get(&t.path("/accounts")).await;
    let done = person.submit_from(&page, &t.path(&format!("/accounts/{id}/refresh")), &[]).await;
    done.expect(200, "Account access renewed.");
    for _ in 0..2 {
        let done = person.submit_from(&page, &t.path(&format!("/accounts/{id}/disconnect")), &[]).await;
        done.expect(200, "Account disconnected.").expect(200, "No accounts connected");
    }
}

async fn an_instance_is_named_and_leads_to_the_page_that_connects(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let path = t.path("/accounts/connect/mastodon");
    let page = person.get(&path).await;
    let empty = person.submit_from(&page, &path, &[("instance", "")]).await;
    empty.expect(422, "Enter your server, such as mastodon.social.");
    let private = person.submit_from(&page, &path, &[("instance", "127.0.0.1")]).await;
    private.expect(422, "e-instance").expect(422, "value=\"127.0.0.1\"");
    assert_eq!(t.app.count_rows("authorizations").await, 0);
    let mut opened = Vec::new();
    for _ in 0..2 {
        let next = person.submit_from(&page, &path, &[("instance", "8.8.8.8")]).await;
        assert!(next.path.starts_with("/connect/"), "{}", next.path);
        next.expect(200, "Bakery").expect(200, "Mastodon");
        opened.push(next.path.clone());
    }
    assert_eq!(opened[0], opened[1]);
    assert_eq!(t.app.count_rows("authorizations WHERE instance = 'https://8.8.8.8'").await, 1);
}

async fn accounts_are_capped_by_the_plan(t: Tenant<'_>, person: ConsoleUser<'_>) {
    for handle in ["a", "b", "c"] {
        t.account(handle).await;
    }
    person.get(&t.path("/accounts")).await.expect(200, "The plan allows 3 accounts for each brand.");
    let path = t.path("/accounts/connect/mastodon");
    let page = person.submit(&path, &path, &[("instance", "8.8.8.8")]).await;
    page.expect(422, "The workspace's plan allows 3 social accounts per brand. Disconnect one, or ask");
    assert_eq!(t.app.count_rows("authorizations").await, 0);
}
