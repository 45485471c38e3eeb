//! The first page of a brand.

use chrono::TimeDelta;
use serde_json::json;

use crate::support::app::{TestApp, on_one_app};
use crate::support::console::ConsoleUser;

on_one_app!(a_new_brand_has_a_checklist, what_goes_out_next_and_what_failed_is_shown);

async fn a_new_brand_has_a_checklist(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let person = ConsoleUser::sign_in(&t).await;
    let page = person.get(&format!("/brands/{}", t.brand)).await;
    page.expect(200, "Get started").expect(200, "Nothing is scheduled");
    assert!(page.has("Bakery") && page.has("Ann"), "{}", page.text);
}

async fn what_goes_out_next_and_what_failed_is_shown(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await;
    let at = (app.now() + TimeDelta::hours(2)).to_rfc3339();
    let body = json!({ "content": "<b>Fresh</b> bread", "schedule_type": "scheduled", "scheduled_at": at, "accounts": [account] });
    t.post(&t.path("/posts"), body).await.expect(201);
    let body = json!({ "content": "Old bread", "schedule_type": "now", "accounts": [account] });
    t.post(&t.path("/posts"), body).await.expect(201);
    app.sql("UPDATE posts SET status = 'failed' WHERE content = 'Old bread'").await;
    app.sql(
        r#"
        UPDATE post_targets
        SET status = 'failed',
            error = '{"code":"x","message":"The oven is cold.","category":"platform_rejected"}'
        WHERE post_id = (SELECT id FROM posts WHERE content = 'Old bread')"#,
    )
    .await;
    let person = ConsoleUser::sign_in(&t).await;
    let page = person.get(&format!("/brands/{}", t.brand)).await;
    page.expect(200, "<b>Fresh</b> bread").expect(200, "The oven is cold.").expect(200, "Old bread");
    assert!(String::from_utf8_lossy(&page.reply.body).contains("&#60;b&#62;Fresh"), "texts are escaped");
}
