//! Snippets of a brand, and their use as signatures.

use crier_domain::snippet::SnippetKind;
use crier_store::accounts;
use crier_store::snippets::{self, NewSnippet};

use crate::support::store::{TestStore, World, on_both};

on_both![snippets_belong_to_their_brand, a_signature_is_removed_with_its_snippet];

async fn create(s: &TestStore, w: World, content: &str) -> i64 {
    let new = NewSnippet { name: "Closing", kind: SnippetKind::Signature, content };
    s.write(async |tx| snippets::create(tx, w.brand, &new).await).await.id
}

async fn snippets_belong_to_their_brand(s: TestStore) {
    let (w, other) = (s.create_world().await, s.world_of("bob@example.com").await);
    let (one, two) = (create(&s, w, "— Ännchen").await, create(&s, w, "— Ben").await);
    let listed = snippets::list(&mut s.conn().await, w.brand).await.unwrap();
    assert_eq!(listed.iter().map(|snippet| snippet.id).collect::<Vec<_>>(), [two, one]);
    assert_eq!(snippets::size(&mut s.conn().await, w.brand).await.unwrap(), (2, 12 + 7), "in bytes");
    assert_eq!(snippets::size(&mut s.conn().await, other.brand).await.unwrap(), (0, 0));
    assert!(snippets::list(&mut s.conn().await, other.brand).await.unwrap().is_empty());
    assert!(s.write(async |tx| snippets::find_for_update(tx, other.brand, one).await).await.is_none());
    assert!(!s.write(async |tx| snippets::delete(tx, other.brand, one).await).await);
    assert!(s.write(async |tx| snippets::delete(tx, w.brand, one).await).await);
    assert!(!s.write(async |tx| snippets::delete(tx, w.brand, one).await).await);
}

async fn a_signature_is_removed_with_its_snippet(s: TestStore) {
    let w = s.create_world().await;
    let account = s.account(w, "one", "t").await.id;
    let id = create(&s, w, "— Ann").await;
    let signature = async || {
        let mut conn = s.conn().await;
        let found = accounts::find(&mut conn, w.brand, account).await.unwrap().unwrap().signature_id;
        let [summary] = accounts::summaries(&mut conn, w.brand, &[account]).await.unwrap().try_into().unwrap();
        (found, summary.signature, snippets::is_used(&mut conn, id).await.unwrap())
    };
    assert_eq!(signature().await, (None, None, false));
    assert!(s.write(async |tx| snippets::set_signature(tx, w.brand, account, Some(id)).await).await);
    assert_eq!(signature().await, (Some(id), Some("— Ann".to_owned()), true));
    assert!(!s.write(async |tx| snippets::set_signature(tx, w.brand, account + 1, Some(id)).await).await);
    assert!(s.write(async |tx| snippets::delete(tx, w.brand, id).await).await);
    assert_eq!(signature().await, (None, None, false));
}
