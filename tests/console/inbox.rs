//! The inbox: conversations, replies, and the settings of a conversation.

use chrono::TimeDelta;
use crier_domain::access::Role;
use crier_domain::conversation::FetchedMessage;
use crier_runtime::sandbox;
use crier_store::accounts;
use crier_store::conversations::receive;

use crate::support::app::{Tenant, TestApp, on_one_app, on_sqlite_app};
use crate::support::console::ConsoleUser;
use crate::support::fake_inbox::{COMMENTS, message};

on_one_app!("pro" => a_conversation_is_assigned_and_tagged);
on_one_app!(console "pro" =>
    a_reply_is_sent_once,
    a_conversation_is_snoozed_until_a_local_time,
    changes_by_others_are_kept,
    opening_a_conversation_marks_it_as_read,
    a_reply_can_resolve_the_conversation,
    the_inbox_can_be_synced,
    conversations_are_filtered_and_searched,
);
on_sqlite_app!(console "pro" =>
    errors_are_shown_at_their_fields,
    long_conversations_are_shown_in_parts,
    an_expired_account_cannot_reply,
);
on_sqlite_app!(only_the_brands_conversations_are_shown);

/// Connects a handle of the real sandbox, and stores comments on it: each in a thread of its own, or all in one.
pub async fn inbox(app: &TestApp, t: &Tenant<'_>, comments: &[&str], one_thread: bool) -> i64 {
    let real = sandbox::connector(&app.store.store, app.url.clone());
    let _ = app.connector.real.set(real);
    let account = t.account(&format!("demo{}", t.brand)).await;
    let found = accounts::find(&mut app.conn().await, t.brand, account).await.unwrap().unwrap();
    let now = app.now();
    let comment = |(n, body): (i64, &&str)| {
        let thread = if one_thread { "0".to_owned() } else { n.to_string() };
        message(COMMENTS, &n.to_string(), &thread, body, now + TimeDelta::milliseconds(n))
    };
    let messages: Vec<FetchedMessage> = (0_i64..).zip(comments).map(comment).collect();
    app.write(async |tx| receive::receive(tx, &found, &messages).await).await;
    account
}

async fn conversations_are_filtered_and_searched(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let path = t.path("/inbox");
    person.get(&path).await.expect(200, "No messages yet");
    let account = inbox(t.app, &t, &["Where is my <b>refund</b>?", "Thank you"], false).await;
    let page = person.get(&path).await;
    page.expect(200, "Where is my <b>refund</b>?").expect(200, "Thank you").expect(200, "Vera Vogel");
    page.expect(200, "1 new").expect(200, "Comment");
    assert!(!String::from_utf8_lossy(&page.reply.body).contains("<b>refund"), "texts are escaped");
    let found = person.get(&format!("{path}?search=refund&status=open&type=&tag=")).await;
    found.expect(200, "Where is my").expect(200, "status=resolved&search=refund");
    assert!(!found.has("Thank you"), "{}", found.text);
    let all = format!("{path}?account_id={account}&type=comment&platform=sandbox&unread=true");
    person.get(&all).await.expect(200, "Thank you").expect(200, "checked");
    for query in ["status=snoozed&search=x", "type=dm", "tag=vip", "assignee_id=5", "search=%21"] {
        person.get(&format!("{path}?{query}")).await.expect(200, "No matching conversations");
    }
    for query in ["status=flown", "type=x", "account_id=x", "unread=maybe", "page=0", "search=%00"] {
        person.get(&format!("{path}?{query}")).await.expect(200, "Thank you");
    }
    person.get(&format!("{path}?page=99")).await.expect(200, "No conversations");
}

async fn a_reply_is_sent_once(t: Tenant<'_>, person: ConsoleUser<'_>) {
    inbox(t.app, &t, &["When do you open?"], false).await;
    let path = t.path(&format!("/inbox/{}", t.app.newest_id("conversations").await));
    let page = person.get(&path).await;
    for _ in 0..2 {
        let response = person.submit_from(&page, &format!("{path}/reply"), &[("body", "At <i>seven</i>.")]).await;
        response.expect(200, "Sending the reply.").expect(200, "At <i>seven</i>.").expect(200, ">Sending<");
        response.expect(200, "<span data-moving>");
    }
    assert_eq!(t.app.count_rows("jobs WHERE kind = 'send_reply'").await, 1);
    t.app
        .sql(
            r#"
        UPDATE messages
        SET status = 'failed', error = '{"code":"x","message":"Rejected.","category":"platform_rejected"}'
        WHERE direction = 'outbound'"#,
        )
        .await;
    person.get(&path).await.expect(200, "Failed").expect(200, "Rejected. To retry, send the reply again.");
}

async fn a_conversation_is_snoozed_until_a_local_time(t: Tenant<'_>, person: ConsoleUser<'_>) {
    inbox(t.app, &t, &["Hello"], false).await;
    let path = t.path(&format!("/inbox/{}", t.app.newest_id("conversations").await));
    let set = format!("{path}/edit");
    let form = [("status", "snoozed"), ("snoozed_until", "2999-01-01T08:00")];
    person.submit(&path, &set, &form).await.expect(200, "Snoozed").expect(200, "1 Jan 2999, 08:00");
    let until = "conversations WHERE snoozed_until IS NOT NULL";
    assert_eq!(t.app.count_rows(until).await, 1);
    let page = person.get(&path).await;
    page.expect(200, "name=\"snoozed_until\" value=\"2999-01-01T08:00\"");
    let later = [("status", "snoozed"), ("snoozed_until", "2999-02-01T08:00")];
    person.submit_from(&page, &set, &later).await.expect(200, "1 Feb 2999, 08:00");
    // The form sends a time with every status.
    person.submit(&path, &set, &[("status", "resolved"), ("snoozed_until", "x")]).await.expect(200, "Resolved");
    assert_eq!(t.app.count_rows(until).await, 0);
}

/// The fields of the form for an unchanged conversation, with these changes.
fn edit_fields<'a>(changes: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let untouched = [("status", "open"), ("user_id", ""), ("tags", "")];
    untouched.iter().filter(|(name, _)| changes.iter().all(|(n, _)| n != name)).chain(changes).copied().collect()
}

async fn a_conversation_is_assigned_and_tagged(t: Tenant<'_>) {
    inbox(t.app, &t, &["Hello"], false).await;
    let bob = t.colleague(Role::Editor).await;
    let person = ConsoleUser::sign_in(&bob).await;
    let (list, path) = (t.path("/inbox"), t.path(&format!("/inbox/{}", t.app.newest_id("conversations").await)));
    let (edit, user) = (format!("{path}/edit"), bob.user.to_string());
    let both = edit_fields(&[("user_id", &user), ("tags", " vip, refund ,,vip")]);
    let page = person.submit(&path, &edit, &both).await;
    page.expect(200, &format!("value=\"{user}\" selected")).expect(200, "value=\"refund, vip\"");
    page.expect(200, "Conversation updated.");
    person.get(&format!("{list}?tag=vip")).await.expect(200, "value=\"refund\"").expect(200, "Vera Vogel");
    person.submit(&path, &edit, &edit_fields(&[])).await.expect(200, "value=\"\" selected");
    assert_eq!(t.app.count_rows("conversation_tags").await, 0);
}

/// The form sends all fields, but only those that the user changed are written.
async fn changes_by_others_are_kept(t: Tenant<'_>, person: ConsoleUser<'_>) {
    inbox(t.app, &t, &["Hello"], false).await;
    let path = t.path(&format!("/inbox/{}", t.app.newest_id("conversations").await));
    let (edit, user) = (format!("{path}/edit"), t.user.to_string());
    let (first, second) = (person.get(&path).await, person.get(&path).await);
    person.submit_from(&first, &edit, &edit_fields(&[("user_id", &user), ("tags", "vip")])).await;
    let page = person.submit_from(&second, &edit, &edit_fields(&[("status", "resolved")])).await;
    page.expect(200, "Resolved").expect(200, "value=\"vip\"").expect(200, &format!("value=\"{user}\" selected"));
}

async fn opening_a_conversation_marks_it_as_read(t: Tenant<'_>, person: ConsoleUser<'_>) {
    inbox(t.app, &t, &["Hello", "Hi"], false).await;
    let path = t.path(&format!("/inbox/{}", t.app.newest_id("conversations").await));
    let count = |number: &str| format!("<span class=\"count\">{number}<span class=\"sr\"> unread</span>");
    for page in [t.path("/inbox"), t.path("/posts"), "/".to_owned(), t.path("/nowhere")] {
        let page = person.get(&page).await;
        assert!(page.status == 303 || page.status == 404 || page.has(&count("2")), "{}", page.text);
    }
    let head = t.app.visit("HEAD", &format!("{}{path}", t.app.url)).header("cookie", &person.cookie).send().await;
    assert_eq!((head.status, t.app.sum("unread_count", "conversations").await), (200, 2), "nobody saw the page");
    let keys = t.app.count_rows("idempotency_keys").await;
    person.get(&path).await.expect(200, &count("1"));
    assert_eq!(t.app.sum("unread_count", "conversations").await, 1);
    assert_eq!(t.app.count_rows("idempotency_keys").await, keys);
    person.get(&path).await.expect(200, &count("1"));
    t.app.sql("UPDATE conversations SET status = 'spam' WHERE unread_count > 0").await;
    assert!(!person.get(&path).await.has("class=\"count\""), "spam does not count");
    t.app.sql("UPDATE conversations SET status = 'open'").await;
    let changed = [("thread_id", "thread_id || '-' || n"), ("unread_count", "1")];
    t.app.copy_newest_row("conversations", 99, &changed).await;
    person.get(&path).await.expect(200, &count("99+"));
}

async fn a_reply_can_resolve_the_conversation(t: Tenant<'_>, person: ConsoleUser<'_>) {
    inbox(t.app, &t, &["When do you open?"], false).await;
    let (list, path) = (t.path("/inbox"), t.path(&format!("/inbox/{}", t.app.newest_id("conversations").await)));
    assert!(!person.get(&list).await.has("You:"));
    let reply = [("body", "At seven."), ("resolve", "true")];
    let page = person.submit(&path, &format!("{path}/reply"), &reply).await;
    page.expect(200, "Sending the reply. The conversation is resolved.").expect(200, "Resolved");
    person.get(&list).await.expect(200, "You:</span> <bdi>At seven.</bdi>");
    let page = person.submit(&path, &format!("{path}/reply"), &[("body", ""), ("resolve", "true")]).await;
    page.expect(422, "e-body");
}

async fn the_inbox_can_be_synced(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let account = inbox(t.app, &t, &["Hello"], false).await;
    let page = person.submit(&t.path("/inbox"), &t.path("/inbox/sync"), &[]).await;
    page.expect(200, "Checking for new messages");
    assert_eq!(t.app.count_rows("jobs WHERE kind = 'sync_inbox'").await, 1);
    t.app.expire_account(account).await;
    let page = person.submit(&t.path("/inbox"), &t.path("/inbox/sync"), &[]).await;
    page.expect(409, "Refresh or reconnect it first.");
}

async fn errors_are_shown_at_their_fields(t: Tenant<'_>, person: ConsoleUser<'_>) {
    inbox(t.app, &t, &["Hello"], false).await;
    let other_user = t.app.tenant("pro").await.user.to_string();
    let path = t.path(&format!("/inbox/{}", t.app.newest_id("conversations").await));
    let (long, tag) = ("x".repeat(2_001), format!("ok,{}", "x".repeat(41)));
    let problems = [
        ("reply", vec![("body", "")], "e-body"),
        ("reply", vec![("body", long.as_str())], "e-body"),
        ("edit", edit_fields(&[("status", "flown")]), "e-status"),
        ("edit", edit_fields(&[("status", "snoozed"), ("snoozed_until", "2000-01-01T00:00")]), "e-snoozed_until"),
        ("edit", edit_fields(&[("status", "snoozed")]), "e-snoozed_until"),
        ("edit", edit_fields(&[("user_id", other_user.as_str())]), "e-user_id"),
        ("edit", edit_fields(&[("user_id", "x")]), "e-user_id"),
        ("edit", edit_fields(&[("tags", tag.as_str())]), "e-tags"),
    ];
    for (action, fields, problem) in problems {
        person.submit(&path, &format!("{path}/{action}"), &fields).await.expect(422, problem);
    }
    let all = edit_fields(&[("status", "flown"), ("user_id", "x"), ("tags", tag.as_str())]);
    let page = person.submit(&path, &format!("{path}/edit"), &all).await;
    page.expect(422, "e-status").expect(422, "e-user_id").expect(422, "e-tags");
    let changed = "conversations WHERE status != 'open' OR assignee_id IS NOT NULL";
    assert_eq!(t.app.count_rows(changed).await, 0);
    assert_eq!(t.app.count_rows("messages").await, 1);
}

async fn long_conversations_are_shown_in_parts(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let bodies: Vec<String> = (0..5).map(|n| format!("Message {n} {}", "x".repeat(15_000))).collect();
    let bodies: Vec<&str> = bodies.iter().map(String::as_str).collect();
    inbox(t.app, &t, &bodies, true).await;
    let path = t.path(&format!("/inbox/{}", t.app.newest_id("conversations").await));
    let page = person.get(&path).await;
    page.expect(200, "Message 4").expect(200, "Message 3").expect(200, "Earlier messages");
    assert!(!page.has("Message 2"));
    let link = page.text.split("href=\"").find(|link| link.contains("?before=")).expect("a link");
    let page = person.get(link.split('"').next().unwrap()).await;
    page.expect(200, "Message 2").expect(200, "Message 1");
    assert!(!page.has("Message 3"));
    person.get(&format!("{path}?before=x")).await.expect(200, "Message 4");
}

async fn an_expired_account_cannot_reply(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let account = inbox(t.app, &t, &["Hello"], false).await;
    t.app.expire_account(account).await;
    let path = t.path(&format!("/inbox/{}", t.app.newest_id("conversations").await));
    let page = person.get(&path).await;
    page.expect(200, "Refresh or reconnect it.");
    assert!(!page.has("name=\"body\""), "{}", page.text);
}

async fn only_the_brands_conversations_are_shown(app: TestApp) {
    let (t, other) = (app.tenant("pro").await, app.tenant("pro").await);
    inbox(&app, &t, &["Mine"], false).await;
    let account = inbox(&app, &other, &["Theirs"], false).await;
    let person = ConsoleUser::sign_in(&t).await;
    let path = t.path("/inbox");
    let page = person.get(&path).await;
    assert!(!page.has("Theirs"), "{}", page.text);
    let mut fields = page.hidden_fields(&format!("{path}/sync"));
    fields.retain(|(name, _)| name != "account_id");
    let mut fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let id = account.to_string();
    fields.push(("account_id", &id));
    person.post(&format!("{path}/sync"), &fields).await.expect(404, "Page not found");
}
