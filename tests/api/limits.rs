//! The allowance: by key where there is one, by address where there is none.

use chrono::TimeDelta;

use crate::support::app::{TestApp, on_both_apps};

on_both_apps!(a_key_has_its_plans_allowance, whoever_has_no_key_is_counted_by_address, replays_count_too);

async fn a_key_has_its_plans_allowance(app: TestApp) {
    let (free, other) = (app.tenant("free").await, app.tenant("free").await);
    for left in (0..60).rev() {
        let reply = free.get("/brands").await;
        reply.expect(200);
        assert_eq!(reply.header("x-ratelimit-limit"), Some("60"));
        assert_eq!(reply.header("x-ratelimit-remaining"), Some(left.to_string().as_str()));
    }
    let refused = free.get("/brands").await;
    refused.refused(429, "rate_limited");
    assert_eq!((refused.header("retry-after"), refused.header("x-ratelimit-remaining")), (Some("1"), Some("0")));
    let reset = (app.now() + TimeDelta::minutes(1)).timestamp().to_string();
    assert_eq!(refused.header("x-ratelimit-reset"), Some(reset.as_str()));
    other.get("/brands").await.expect(200);
    app.clock.advance(TimeDelta::seconds(1));
    free.get("/brands").await.expect(200);
    free.get("/brands").await.refused(429, "rate_limited");
}

async fn whoever_has_no_key_is_counted_by_address(app: TestApp) {
    let owner = app.tenant("unlimited").await;
    for _ in 0..60 {
        app.request("GET", "/brands").send().await.refused(401, "unauthorized");
    }
    let refused = app.request("GET", "/brands").key("svc_live_nope").send().await;
    refused.refused(429, "rate_limited");
    assert_eq!(refused.header("retry-after"), Some("1"));
    // A path that does not exist does not exist for anybody, and a valid key has an allowance of its own.
    app.request("GET", "/nope").send().await.refused(404, "not_found");
    owner.get("/brands").await.expect(200);
}

async fn replays_count_too(app: TestApp) {
    let owner = app.tenant("free").await;
    let delete = async || app.request("DELETE", &owner.path("/posts/1")).key(&owner.key).idem("k").send().await;
    let left = async || delete().await.header("x-ratelimit-remaining").unwrap().parse::<u32>().unwrap();
    let (first, second) = (left().await, left().await);
    assert_eq!(first - second, 1);
}
