//! Snippets, the signatures of accounts, and their place in posts.

use chrono::TimeDelta;
use crier_domain::access::Role;
use serde_json::{Value, json};

use crate::support::app::{MISSING_ID, Tenant, TestApp, on_both_apps, on_one_app};
use crate::support::images;

on_both_apps!(
    a_snippet_is_created_listed_updated_and_deleted,
    the_contents_of_a_brand_s_snippets_are_limited,
    an_account_has_a_signature,
    a_signature_belongs_to_the_brand,
    a_signature_is_appended_where_it_is_missing,
    a_signature_is_decided_when_the_post_is_written,
    a_published_target_keeps_its_signature,
);
on_one_app!(
    invalid_snippets_are_rejected,
    a_repeated_key_creates_one_snippet,
    contributors_cannot_change_a_signature_in_use,
    a_signature_counts_in_the_length,
);

/// Creates a snippet and returns its id.
pub async fn snippet(t: &Tenant<'_>, kind: &str, content: &str) -> i64 {
    let body = json!({ "name": "Closing", "kind": kind, "content": content });
    t.post(&t.path("/snippets"), body).await.data(201)["id"].as_i64().unwrap()
}

fn path_of(t: &Tenant<'_>, snippet: i64) -> String {
    t.path(&format!("/snippets/{snippet}"))
}

async fn a_snippet_is_created_listed_updated_and_deleted(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let body = json!({ "name": "Hours", "kind": "text", "content": "Open from 6 to 18.\n" });
    let reply = t.post(&t.path("/snippets"), body).await;
    let created = reply.data(201);
    let path = t.path(&format!("/snippets/{}", created["id"]));
    assert_eq!(reply.header("location"), Some(format!("/api/public/v1{path}").as_str()));
    let at = app.now().to_rfc3339_opts(chrono::SecondsFormat::Micros, true);
    assert_eq!(
        created,
        json!({
            "id": created["id"], "name": "Hours", "kind": "text", "content": "Open from 6 to 18.\n",
            "created_at": at, "updated_at": at,
        })
    );
    let second = snippet(&t, "hashtags", "#bread #rye").await;
    let listed = t.get(&t.path("/snippets")).await.data(200);
    assert_eq!((&listed[0]["id"], &listed[1]), (&json!(second), &created));
    app.clock.advance(TimeDelta::seconds(5));
    let changed = t.put(&path, json!({ "content": "Open from 6 to 20.", "kind": "signature" })).await.data(200);
    assert_eq!(
        (&changed["name"], &changed["kind"], &changed["content"]),
        (&json!("Hours"), &json!("signature"), &json!("Open from 6 to 20."))
    );
    assert_ne!(changed["updated_at"], created["updated_at"]);
    let same = t.put(&path, json!({ "name": null })).await.data(200);
    assert_eq!(same, changed, "omitted fields are unchanged");
    assert_eq!(t.get(&t.path("/snippets")).await.data(200)[1], changed);
    assert_eq!(t.delete(&path).await.expect(204), Value::Null);
    for reply in [t.delete(&path).await, t.put(&path, json!({ "name": "x" })).await] {
        reply.expect_error(404, "not_found");
    }
    t.delete(&path_of(&t, MISSING_ID)).await.expect_error(404, "not_found");
    assert_eq!(t.get(&t.path("/snippets")).await.data(200).as_array().unwrap().len(), 1);
}

async fn invalid_snippets_are_rejected(app: TestApp) {
    let t = app.tenant("unlimited").await;
    assert_eq!(t.post(&t.path("/snippets"), json!({})).await.invalid_fields(), ["content", "kind", "name"]);
    let all = json!({ "name": "n".repeat(61), "kind": "footer", "content": "x".repeat(5_001) });
    assert_eq!(t.post(&t.path("/snippets"), all.clone()).await.invalid_fields(), ["content", "kind", "name"]);
    let synonym = json!({ "name": "Hours", "type": "text", "content": "x" });
    assert_eq!(t.post(&t.path("/snippets"), synonym).await.invalid_fields(), ["kind", "type"]);
    let longest = json!({ "name": "ä".repeat(60), "kind": "text", "content": "ä".repeat(5_000) });
    let created = t.post(&t.path("/snippets"), longest).await.data(201);
    let path = path_of(&t, created["id"].as_i64().unwrap());
    assert_eq!(t.put(&path, all).await.invalid_fields(), ["content", "kind", "name"]);
    assert_eq!(t.put(&path, json!({ "name": "", "content": "" })).await.invalid_fields(), ["content", "name"]);
    // A snippet that does not exist is reported before invalid fields.
    t.put(&path_of(&t, MISSING_ID), json!({ "name": "" })).await.expect_error(404, "not_found");
}

async fn a_repeated_key_creates_one_snippet(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let body = json!({ "name": "Hours", "kind": "text", "content": "Open from 6 to 18." });
    let create = async || t.request("POST", &t.path("/snippets")).idempotency_key("once").json(&body).send().await;
    let (first, second) = (create().await, create().await);
    assert!(!first.replayed() && second.replayed());
    assert_eq!(first.data(201), second.data(201));
    assert_eq!(app.count_rows("snippets").await, 1);
}

async fn the_contents_of_a_brand_s_snippets_are_limited(app: TestApp) {
    let (t, other) = (app.tenant("unlimited").await, app.tenant("unlimited").await);
    // 104 snippets of 10,000 bytes fit into 1 MiB, and 105 do not.
    let at = "'2026-01-01T00:00:00.000000Z'";
    let row = format!("({}, 'Long', 'text', '{}', {at}, {at})", t.brand, "ä".repeat(5_000));
    let rows = vec![row; 103].join(", ");
    app.sql(format!("INSERT INTO snippets (brand_id, name, kind, content, created_at, updated_at) VALUES {rows}"))
        .await;
    let long = json!({ "name": "Long", "kind": "text", "content": "ä".repeat(5_000) });
    let created = t.post(&t.path("/snippets"), long.clone()).await.data(201);
    assert_eq!(t.post(&t.path("/snippets"), long.clone()).await.invalid_fields(), ["content"]);
    other.post(&other.path("/snippets"), long.clone()).await.expect(201);
    let short = snippet(&t, "text", "short").await;
    assert_eq!(t.put(&path_of(&t, short), long.clone()).await.invalid_fields(), ["content"]);
    t.put(&path_of(&t, short), json!({ "content": "also short" })).await.expect(200);
    t.delete(&path_of(&t, created["id"].as_i64().unwrap())).await.expect(204);
    t.put(&path_of(&t, short), long).await.expect(200);
}

/// Sets the signature of an account.
pub async fn sign(t: &Tenant<'_>, account: i64, signature: impl Into<Value>) -> Value {
    let path = t.path(&format!("/social-accounts/{account}"));
    t.put(&path, json!({ "signature_id": signature.into() })).await.data(200)
}

async fn an_account_has_a_signature(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await;
    let path = t.path(&format!("/social-accounts/{account}"));
    let listed = async || t.get(&t.path("/social-accounts")).await.data(200)[0]["signature_id"].clone();
    assert_eq!(listed().await, Value::Null);
    let (one, two) = (snippet(&t, "signature", "— Ann").await, snippet(&t, "signature", "— Ben").await);
    let changed = sign(&t, account, one).await;
    assert_eq!((&changed["id"], &changed["signature_id"]), (&json!(account), &json!(one)));
    assert_eq!(listed().await, one);
    assert_eq!(t.put(&path, json!({})).await.data(200)["signature_id"], one);
    // Connecting the account again keeps its signature.
    let again = json!({ "platform": "sandbox", "credentials": { "handle": "demo" } });
    assert_eq!(t.post(&t.path("/social-accounts"), again).await.data(201)[0]["signature_id"], one);
    let refreshed = t.request("POST", &format!("{path}/refresh")).send().await.data(200);
    assert_eq!(refreshed["signature_id"], one);
    sign(&t, account, two).await;
    // The signature of an account keeps its kind.
    assert_eq!(t.put(&path_of(&t, two), json!({ "kind": "text" })).await.invalid_fields(), ["kind"]);
    t.put(&path_of(&t, two), json!({ "kind": "signature", "content": "— Benno" })).await.expect(200);
    t.put(&path_of(&t, one), json!({ "kind": "text" })).await.expect(200);
    t.delete(&path_of(&t, two)).await.expect(204);
    assert_eq!(listed().await, Value::Null);
    let three = snippet(&t, "signature", "— Cem").await;
    sign(&t, account, three).await;
    assert_eq!(sign(&t, account, Value::Null).await["signature_id"], Value::Null);
    t.put(&path_of(&t, three), json!({ "kind": "text" })).await.expect(200);
}

async fn a_signature_belongs_to_the_brand(app: TestApp) {
    let (t, other) = (app.tenant("unlimited").await, app.tenant("unlimited").await);
    let account = t.account("demo").await;
    let path = t.path(&format!("/social-accounts/{account}"));
    let foreign = snippet(&other, "signature", "— Zoe").await;
    let text = snippet(&t, "text", "Open from 6 to 18.").await;
    for id in [json!(foreign), json!(text), json!(MISSING_ID), json!("x"), json!(0)] {
        assert_eq!(t.put(&path, json!({ "signature_id": id })).await.invalid_fields(), ["signature_id"], "{id}");
    }
    let missing = t.path(&format!("/social-accounts/{MISSING_ID}"));
    t.put(&missing, json!({ "signature_id": "x" })).await.expect_error(404, "not_found");
    // Each brand of an account has its own signature.
    let second = t.post("/brands", json!({ "name": "Second" })).await.data(201)["id"].as_i64().unwrap();
    let second = Tenant { key: t.key.clone(), brand: second, ..t };
    assert_eq!(second.account("demo").await, account);
    let (first_own, second_own) = (snippet(&t, "signature", "— 1").await, snippet(&second, "signature", "— 2").await);
    sign(&t, account, first_own).await;
    assert_eq!(sign(&second, account, second_own).await["signature_id"], second_own);
    assert_eq!(t.get(&t.path("/social-accounts")).await.data(200)[0]["signature_id"], first_own);
    assert_eq!(t.put(&path, json!({ "signature_id": second_own })).await.invalid_fields(), ["signature_id"]);
}

/// A signature becomes part of posts that others publish.
async fn contributors_cannot_change_a_signature_in_use(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let (account, contributor) = (t.account("demo").await, t.colleague(Role::Contributor).await);
    let id = snippet(&contributor, "signature", "— Ann").await;
    let path = path_of(&t, id);
    contributor.put(&path, json!({ "content": "— Anna" })).await.expect(200);
    sign(&t, account, id).await;
    contributor.put(&path, json!({ "content": "— Ben" })).await.expect_error(403, "insufficient_scope");
    contributor.delete(&path).await.expect_error(403, "insufficient_scope");
    t.put(&path, json!({ "content": "— Ann" })).await.expect(200);
    sign(&t, account, Value::Null).await;
    contributor.delete(&path).await.expect(204);
}

/// Returns the signatures of a post's targets.
fn signatures(post: &Value) -> Vec<Option<&str>> {
    post["targets"].as_array().unwrap().iter().map(|target| target["signature"].as_str()).collect()
}

async fn a_signature_is_appended_where_it_is_missing(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let (signed, plain) = (t.account("demo").await, t.account("other").await);
    sign(&t, signed, snippet(&t, "signature", "— Ann\n").await).await;
    let create = async |content: &str, own: Option<&str>| {
        let own: Vec<Value> = own.iter().map(|content| json!({ "account_id": signed, "content": content })).collect();
        let body = json!({ "content": content, "accounts": [signed, plain], "overrides": own });
        t.post(&t.path("/posts"), body).await.data(201)
    };
    for (content, own, signature) in [
        ("Fresh bread", None, Some("— Ann")),
        ("Fresh bread — ann", None, Some("— Ann")),
        ("Fresh bread\n— Ann\n#bread", None, None),
        ("Fresh bread", Some("Only here"), Some("— Ann")),
        ("Fresh bread — Ann", Some("Only here"), Some("— Ann")),
        ("Fresh bread", Some("Only here — Ann"), None),
    ] {
        let created = create(content, own).await;
        assert_eq!(signatures(&created), [signature, None], "{content}, {own:?}");
        let shown = t.get(&t.path(&format!("/posts/{}", created["id"]))).await.data(200);
        assert_eq!((signatures(&shown), &shown["content"]), (vec![signature, None], &json!(content)));
    }
    let image = t.upload("a.png", &images::png(3, 2), &[]).await.data(201)["id"].clone();
    let body = json!({ "media": [image], "accounts": [signed] });
    assert_eq!(signatures(&t.post(&t.path("/posts"), body).await.data(201)), [Some("— Ann")]);
    assert_eq!(t.post(&t.path("/posts"), json!({ "accounts": [signed] })).await.invalid_fields(), ["content"]);
}

async fn a_signature_counts_in_the_length(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let (signed, plain) = (t.account("demo").await, t.account("other").await);
    sign(&t, signed, snippet(&t, "signature", "— Ann").await).await;
    let validate = async |content: String| {
        let own = json!([{ "account_id": plain, "content": content }]);
        let body = json!({ "content": content, "accounts": [signed, plain], "overrides": own });
        t.post(&t.path("/posts/validate"), body).await.data(200)
    };
    // The sandbox accepts 5,000 characters.
    let fits = validate("a".repeat(4_993)).await;
    let lengths = |found: &Value| [0, 1].map(|i| found["targets"][i]["length"].as_i64().unwrap());
    assert_eq!(
        (&fits["valid"], lengths(&fits), signatures(&fits)),
        (&json!(true), [5_000, 4_993], vec![Some("— Ann"), None])
    );
    let long = validate("a".repeat(4_994)).await;
    assert_eq!((&long["valid"], lengths(&long)), (&json!(false), [5_001, 4_994]));
    let problem = &long["targets"][0]["problems"][0];
    assert_eq!((&problem["field"], &problem["code"]), (&json!("content"), &json!("text_too_long")));
    assert!(problem["message"].as_str().unwrap().contains("the account's signature"), "{problem}");
    let contained = validate(format!("{}— Ann", "a".repeat(4_995))).await;
    assert_eq!((&contained["valid"], lengths(&contained)), (&json!(true), [5_000, 5_000]));
    let body = |n: usize| json!({ "content": "a".repeat(n), "schedule_type": "now", "accounts": [signed] });
    assert_eq!(t.post(&t.path("/posts"), body(4_994)).await.invalid_fields(), ["content"]);
    t.post(&t.path("/posts"), body(4_993)).await.expect(201);
    let draft = json!({ "content": "a".repeat(4_994), "accounts": [signed] });
    let draft = t.post(&t.path("/posts"), draft).await.data(201);
    let submit = t.path(&format!("/posts/{}/submit", draft["id"]));
    assert_eq!(t.request("POST", &submit).send().await.invalid_fields(), ["content"]);
}

/// A post that was checked cannot become invalid because a signature changes.
async fn a_signature_is_decided_when_the_post_is_written(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await;
    let ann = snippet(&t, "signature", "— Ann").await;
    let at = (app.now() + TimeDelta::hours(2)).to_rfc3339();
    let body = json!({ "content": "Bread", "schedule_type": "scheduled", "scheduled_at": at, "accounts": [account] });
    let path = t.path(&format!("/posts/{}", t.post(&t.path("/posts"), body).await.data(201)["id"]));
    let shown = async || t.get(&path).await.data(200)["targets"][0]["signature"].clone();
    sign(&t, account, ann).await;
    assert_eq!(shown().await, Value::Null);
    assert_eq!(signatures(&t.put(&path, json!({})).await.data(200)), [Some("— Ann")]);
    t.put(&path_of(&t, ann), json!({ "content": "x".repeat(5_000) })).await.expect(200);
    assert_eq!(shown().await, "— Ann");
    assert_eq!(t.put(&path, json!({ "scheduled_at": at })).await.invalid_fields(), ["content"]);
    t.put(&path_of(&t, ann), json!({ "content": "— Anna" })).await.expect(200);
    assert_eq!(signatures(&t.put(&path, json!({ "content": "Rye bread" })).await.data(200)), [Some("— Anna")]);
    t.delete(&path_of(&t, ann)).await.expect(204);
    assert_eq!(shown().await, "— Anna");
    assert_eq!(signatures(&t.put(&path, json!({ "schedule_type": "draft" })).await.data(200)), [None]);
    // A submitted post has the signature that is approved with it.
    let ben = snippet(&t, "signature", "— Ben").await;
    sign(&t, account, ben).await;
    t.request("POST", &format!("{path}/submit")).send().await.expect(200);
    t.put(&path_of(&t, ben), json!({ "content": "— Benno" })).await.expect(200);
    let approved = t.request("POST", &format!("{path}/approve")).send().await.data(200);
    assert_eq!(signatures(&approved), [Some("— Ben")]);
}

async fn a_published_target_keeps_its_signature(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let accounts = [t.account("one").await, t.account("two").await];
    let ann = snippet(&t, "signature", "— Ann").await;
    for account in accounts {
        sign(&t, account, ann).await;
    }
    let body = json!({ "content": "Bread", "schedule_type": "now", "accounts": accounts });
    let id = t.post(&t.path("/posts"), body).await.data(201)["id"].as_i64().unwrap();
    let path = t.path(&format!("/posts/{id}"));
    let too_long = snippet(&t, "signature", &"x".repeat(5_000)).await;
    sign(&t, accounts[0], too_long).await;
    // A change of nothing succeeds while the post is being published.
    app.end_post(id, "publishing", &["publishing", "publishing"]).await;
    assert_eq!(signatures(&t.put(&path, json!({})).await.data(200)), [Some("— Ann"); 2]);
    app.end_post(id, "partially_published", &["published", "failed"]).await;
    sign(&t, accounts[1], Value::Null).await;
    // The next run may look up a post with the text of an earlier call.
    app.sql("UPDATE post_targets SET call_started_at = created_at WHERE status = 'failed'").await;
    assert_eq!(signatures(&t.put(&path, json!({})).await.data(200)), [Some("— Ann"); 2]);
    app.sql("UPDATE post_targets SET call_started_at = NULL").await;
    let again = t.put(&path, json!({ "schedule_type": "now" })).await.data(200);
    assert_eq!((&again["status"], signatures(&again)), (&json!("publishing"), vec![Some("— Ann"), None]));
}
