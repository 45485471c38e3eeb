//! Lists as the Graph API returns them.

use serde_json::{Value, json};

/// Returns a page of a list with its cursors. `after` is the cursor from the previous page.
pub fn paged(all: &[Value], after: Option<&str>, limit: usize) -> Value {
    let from: usize = after.map_or(0, |after| after.parse().expect("a place in the list"));
    let end = (from + limit).min(all.len());
    let mut paging = json!({ "cursors": { "before": "b", "after": end.to_string() } });
    if end < all.len() {
        paging["next"] = json!("https://graph.facebook.com/next?access_token=page-42");
    }
    json!({ "data": all[from..end], "paging": paging })
}

pub fn newest_first(all: &[Value]) -> Vec<Value> {
    all.iter().rev().cloned().collect()
}
