//! The id of the storage directory: the first process decides, and only a command replaces it.

use crier_store::storage_marker;

use crate::support::store::{TestStore, on_both};

on_both![the_first_id_is_kept, an_id_is_replaced_and_deleted];

async fn find(s: &TestStore) -> Option<String> {
    storage_marker::find(&mut s.conn().await).await.unwrap()
}

async fn the_first_id_is_kept(s: TestStore) {
    assert_eq!(find(&s).await, None);
    s.write(async |tx| storage_marker::insert(tx, "first").await).await;
    s.write(async |tx| storage_marker::insert(tx, "second").await).await;
    assert_eq!((find(&s).await.as_deref(), s.count_rows("storage_marker").await), (Some("first"), 1));
}

async fn an_id_is_replaced_and_deleted(s: TestStore) {
    for id in ["first", "second"] {
        s.write(async |tx| storage_marker::replace(tx, id).await).await;
        assert_eq!((find(&s).await.as_deref(), s.count_rows("storage_marker").await), (Some(id), 1));
    }
    s.write(async |tx| storage_marker::delete(tx).await).await;
    assert_eq!(find(&s).await, None);
}
