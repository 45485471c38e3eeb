//! Pagination of lists.

use serde_json::{Value, json};

use crate::support::app::{Tenant, on_both_apps};

on_both_apps!("unlimited" =>
    pages_match_laravel_pagination,
    filters_reduce_the_total,
    invalid_page_parameters_are_rejected,
    only_paginated_lists_have_page_metadata,
);

async fn drafts(t: &Tenant<'_>, n: i64) -> Vec<i64> {
    let mut ids = Vec::new();
    for i in 0..n {
        let created = t.post(&t.path("/posts"), json!({ "content": format!("draft {i}") })).await.data(201);
        ids.push(created["id"].as_i64().unwrap());
    }
    ids
}

async fn pages_match_laravel_pagination(t: Tenant<'_>) {
    let url = format!("{}/api/public/v1{}", t.app.url, t.path("/posts"));
    let empty = t.get(&t.path("/posts")).await.expect(200);
    assert_eq!(empty["data"], json!([]));
    assert_eq!((&empty["meta"]["last_page"], &empty["meta"]["from"]), (&json!(1), &Value::Null));
    let mut ids = drafts(&t, 5).await;
    ids.reverse();
    let page = t.get(&t.path("/posts?per_page=2&status=draft&page=2")).await.expect(200);
    let shown: Vec<i64> = page["data"].as_array().unwrap().iter().map(|p| p["id"].as_i64().unwrap()).collect();
    assert_eq!(shown, ids[2..4]);
    let at = |n: i64| format!("{url}?per_page=2&status=draft&page={n}");
    assert_eq!(page["links"], json!({ "first": at(1), "last": at(3), "prev": at(1), "next": at(3) }));
    let link = |url: Option<String>, label: &str, active: bool| json!({ "url": url, "label": label, "active": active });
    assert_eq!(
        page["meta"],
        json!({
            "current_page": 2, "from": 3, "last_page": 3, "path": url, "per_page": 2, "to": 4, "total": 5,
            "links": [
                link(Some(at(1)), "&laquo; Previous", false), link(Some(at(1)), "1", false), link(Some(at(2)), "2", true),
                link(Some(at(3)), "3", false), link(Some(at(3)), "Next &raquo;", false),
            ],
        })
    );
    let past = t.get(&t.path("/posts?page=1000000")).await.expect(200);
    assert_eq!((&past["data"], &past["links"]["next"]), (&json!([]), &Value::Null));
    assert_eq!(past["links"]["prev"], format!("{url}?page=999999"));
    t.get(&t.path("/posts?page=99999999999999999999")).await.expect(200);
    assert_eq!(t.get(&t.path("/posts?per_page=1000")).await.expect(200)["meta"]["per_page"], 100);
}

async fn filters_reduce_the_total(t: Tenant<'_>) {
    drafts(&t, 3).await;
    for (status, total) in [("draft", 3), ("scheduled", 0), ("failed", 0)] {
        let page = t.get(&t.path(&format!("/posts?status={status}"))).await.expect(200);
        assert_eq!(page["meta"]["total"], total, "{status}");
    }
    assert_eq!(t.get(&t.path("/posts?status=nope&page=0")).await.invalid_fields(), ["page", "status"]);
}

async fn invalid_page_parameters_are_rejected(t: Tenant<'_>) {
    for query in ["per_page=0", "per_page=-1", "per_page=abc", "page=0", "page=1.5", "page="] {
        let field = query.split('=').next().unwrap();
        assert_eq!(t.get(&t.path(&format!("/posts?{query}"))).await.invalid_fields(), [field], "{query}");
    }
}

async fn only_paginated_lists_have_page_metadata(t: Tenant<'_>) {
    for path in ["/social-accounts", "/posts", "/media"] {
        let page = t.get(&t.path(&format!("{path}?per_page=1000"))).await.expect(200);
        assert_eq!(page["meta"]["per_page"], 100, "{path}");
    }
    for path in [
        "/brands".to_owned(),
        "/webhooks".to_owned(),
        "/webhook-events".to_owned(),
        t.path("/social-accounts/platforms"),
        t.path("/feeds"),
    ] {
        let list = t.get(&path).await.expect(200);
        assert_eq!(list.as_object().unwrap().len(), 1, "{path}");
    }
}
