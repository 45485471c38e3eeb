//! Concurrent requests for the same deliveries: each gets a response, and no delivery gets two jobs.

use crier_store::{deliveries, webhooks};
use futures::future::join_all;
use serde_json::{Value, json};

use super::{create_deliveries, ids, open_jobs};
use crate::support::app::{Reply, Tenant, on_both_apps};

on_both_apps!("unlimited" =>
    concurrent_retries_each_add_one_attempt,
    concurrent_recoveries_enqueue_each_delivery_once,
    concurrent_retry_and_recovery_enqueue_one_job,
    a_recovery_after_another_recovers_nothing,
    requests_that_wait_for_a_deletion_return_404,
    an_endpoint_can_be_deleted_during_other_requests,
);

async fn retry(t: &Tenant<'_>, hook: &str, id: i64) -> Reply {
    t.request("POST", &format!("{hook}/deliveries/{id}/retry")).send().await
}

async fn recover(t: &Tenant<'_>, hook: &str) -> Reply {
    t.post(&format!("{hook}/recover"), json!({ "since": t.app.now() })).await
}

async fn allowed(t: &Tenant<'_>, hook: &str) -> Vec<Value> {
    let all = t.get(&format!("{hook}/deliveries?per_page=100")).await.data(200);
    all.as_array().unwrap().iter().map(|delivery| delivery["max_attempts"].clone()).collect()
}

fn number(hook: &str) -> i64 {
    hook.trim_start_matches("/webhooks/").parse().unwrap()
}

async fn concurrent_retries_each_add_one_attempt(t: Tenant<'_>) {
    let (hook, all) = create_deliveries(&t, 2).await;
    t.app.fail_deliveries(&all[..1]).await;
    for id in all {
        let replies = join_all((0..8).map(|_| retry(&t, &hook, id))).await;
        let mut seen: Vec<_> = replies.iter().map(|r| r.data(200)["max_attempts"].as_i64().unwrap()).collect();
        seen.sort_unstable();
        assert_eq!(seen, (9..=16).collect::<Vec<_>>());
        assert_eq!(open_jobs(&t, id).await, 1);
    }
}

async fn concurrent_recoveries_enqueue_each_delivery_once(t: Tenant<'_>) {
    let (hook, all) = create_deliveries(&t, 6).await;
    t.app.fail_deliveries(&all).await;
    let replies = join_all((0..5).map(|_| recover(&t, &hook))).await;
    let mut found: Vec<_> = replies.iter().map(|r| r.data(202)["recovered"].as_i64().unwrap()).collect();
    found.sort_unstable();
    assert_eq!(found, [0, 0, 0, 0, 6], "one recovery found all");
    assert_eq!(allowed(&t, &hook).await, vec![json!(9); 6]);
    for id in all {
        assert_eq!(open_jobs(&t, id).await, 1);
    }
}

async fn concurrent_retry_and_recovery_enqueue_one_job(t: Tenant<'_>) {
    for _ in 0..4 {
        let (hook, all) = create_deliveries(&t, 3).await;
        t.app.fail_deliveries(&all).await;
        let (retried, recovered) = tokio::join!(retry(&t, &hook, all[1]), recover(&t, &hook));
        let max_attempts = retried.data(200)["max_attempts"].as_i64().unwrap();
        // The first request schedules the delivery, so that a later recovery does not find it among the failed.
        let first = if max_attempts == 9 { 2 } else { 3 };
        let recovered = recovered.data(202)["recovered"].as_i64().unwrap();
        assert!(recovered == first || (max_attempts, recovered) == (9, 3), "{max_attempts} {recovered}");
        for id in all {
            assert_eq!(open_jobs(&t, id).await, 1);
        }
        t.delete(&hook).await.expect(204);
    }
}

/// The test simulates the other recovery, which has not committed when the request arrives.
async fn a_recovery_after_another_recovers_nothing(t: Tenant<'_>) {
    let (hook, all) = create_deliveries(&t, 3).await;
    t.app.fail_deliveries(&all).await;
    let mut other = t.app.begin().await.unwrap();
    webhooks::find_for_update(&mut other, t.user, number(&hook)).await.unwrap().unwrap();
    let since = other.now;
    assert_eq!(deliveries::recover(&mut other, number(&hook), since, 0, 9).await.unwrap(), all);
    let (waited, ()) = tokio::join!(recover(&t, &hook), async { other.commit().await.unwrap() });
    assert_eq!(waited.data(202), json!({ "recovered": 0 }));
    assert_eq!(allowed(&t, &hook).await, vec![json!(9); 3]);
}

async fn requests_that_wait_for_a_deletion_return_404(t: Tenant<'_>) {
    let (hook, all) = create_deliveries(&t, 1).await;
    let mut deleting = t.app.begin().await.unwrap();
    assert!(webhooks::delete(&mut deleting, t.user, number(&hook)).await.unwrap());
    let test = format!("{hook}/test");
    let waiting = async {
        tokio::join!(
            retry(&t, &hook, all[0]),
            recover(&t, &hook),
            t.post(&test, json!({ "event": "post.failed" })),
            t.put(&hook, json!({ "is_active": false })),
            t.delete(&hook),
        )
    };
    let (replies, ()) = tokio::join!(waiting, async { deleting.commit().await.unwrap() });
    for reply in [replies.0, replies.1, replies.2, replies.3, replies.4] {
        reply.expect_error(404, "not_found");
    }
    assert_eq!(t.app.count_rows("events").await, 1, "no sample was stored");
}

async fn an_endpoint_can_be_deleted_during_other_requests(t: Tenant<'_>) {
    for _ in 0..4 {
        let (hook, all) = create_deliveries(&t, 4).await;
        t.app.fail_deliveries(&all[..2]).await;
        let (hook, t) = (&hook, &t);
        let retries = join_all(all.iter().map(|id| retry(t, hook, *id)));
        let brand = t.post("/brands", json!({ "name": "Meanwhile" }));
        let (retried, recovered, deleted, created) = tokio::join!(retries, recover(t, hook), t.delete(hook), brand);
        deleted.expect(204);
        created.expect(201);
        for reply in retried {
            assert!([200, 404].contains(&reply.status), "{reply:?}");
        }
        assert!([202, 404].contains(&recovered.status), "{recovered:?}");
        assert_eq!(ids(&t.get("/webhooks").await.data(200)), Vec::<i64>::new());
        // The delivery for the new brand may have been written meanwhile. Its job deletes it.
        let left = "
            SELECT count(*)
            FROM webhook_deliveries d
            JOIN events e ON e.id = d.event_id
            WHERE e.name <> 'brand.created'
                OR NOT EXISTS (
                    SELECT 1
                    FROM jobs j
                    WHERE j.kind = 'deliver_webhook' AND j.subject_id = d.id AND j.state = 'ready'
                )";
        assert_eq!(t.app.number(left).await, 0, "all were deleted");
    }
}
