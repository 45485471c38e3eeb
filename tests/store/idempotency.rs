//! Stored responses, by `Idempotency-Key`.

use chrono::{DateTime, Utc};
use crier_store::idempotency::FreeKey::{Expired, Leased, Unused};
use crier_store::idempotency::{
    self, FreeKey, IdempotencySlot, KeyState, LEASE, RETENTION, StoredBody, StoredResponse,
};
use crier_store::{StoreError, users};

use crate::support::store::{TestStore, on_both};

on_both![
    a_response_is_replayed_to_the_same_request,
    a_large_response_is_stored_as_record_ids,
    a_different_request_with_the_same_key_is_a_conflict,
    keys_are_scoped_to_the_api_key,
    a_failed_request_releases_its_key,
    only_one_of_many_concurrent_requests_runs,
    a_stored_response_or_a_lease_is_not_overwritten,
    a_leased_key_is_in_progress_until_its_lease_expires,
    storing_a_response_ends_a_lease,
    an_expired_lease_cannot_take_the_key_back,
    a_response_is_kept_for_a_day,
    the_body_is_stored_encrypted,
    a_response_cannot_be_decrypted_in_another_row,
    old_responses_are_deleted_in_batches,
];

fn slot(api_key_id: i64, key: &str) -> IdempotencySlot {
    IdempotencySlot { api_key_id, key: key.to_owned(), fingerprint: vec![1, 2, 3], request: None }
}

const BODY: &[u8] = b"{\"secret\":\"whsec_x\"}";

fn new_response() -> StoredResponse {
    StoredResponse { status: 201, location: Some("/brands/1".to_owned()), body: StoredBody::Whole(BODY.to_vec()) }
}

async fn look_up(s: &TestStore, slot: &IdempotencySlot) -> KeyState {
    idempotency::look_up(&s.store, slot).await.unwrap()
}

async fn store(s: &TestStore, slot: &IdempotencySlot) {
    s.write(async |tx| idempotency::store(tx, slot, &new_response(), Unused).await).await;
}

async fn lease(s: &TestStore, slot: &IdempotencySlot, free: FreeKey) -> DateTime<Utc> {
    s.write(async |tx| idempotency::acquire_lease(tx, slot, free).await).await
}

async fn a_response_is_replayed_to_the_same_request(s: TestStore) {
    let w = s.create_world().await;
    let slot = slot(s.key(w.user).await, "one");
    store(&s, &slot).await;
    for _ in 0..2 {
        assert_eq!(look_up(&s, &slot).await, KeyState::Stored(new_response()));
    }
    let mut empty = slot.clone();
    empty.key = "empty".to_owned();
    let empty_response = StoredResponse { status: 204, location: None, body: StoredBody::Whole(Vec::new()) };
    s.write(async |tx| idempotency::store(tx, &empty, &empty_response, Unused).await).await;
    assert_eq!(look_up(&s, &empty).await, KeyState::Stored(empty_response));
}

async fn a_large_response_is_stored_as_record_ids(s: TestStore) {
    let w = s.create_world().await;
    let id = s.key(w.user).await;
    for (key, ids) in [("none", vec![]), ("one", vec![7]), ("large", vec![i64::MAX, 1])] {
        let slot = slot(id, key);
        let large = StoredResponse { body: StoredBody::Records(ids), ..new_response() };
        s.write(async |tx| idempotency::store(tx, &slot, &large, Unused).await).await;
        assert_eq!(look_up(&s, &slot).await, KeyState::Stored(large));
    }
    s.clock.advance(RETENTION);
    let slot = slot(id, "large");
    assert_eq!(look_up(&s, &slot).await, KeyState::Free(Expired));
    lease(&s, &slot, Expired).await;
    assert_eq!(look_up(&s, &slot).await, KeyState::InProgress, "the old response is discarded");
}

async fn a_different_request_with_the_same_key_is_a_conflict(s: TestStore) {
    let w = s.create_world().await;
    let first = slot(s.key(w.user).await, "one");
    store(&s, &first).await;
    let other = IdempotencySlot { fingerprint: vec![9], ..first.clone() };
    assert_eq!(look_up(&s, &other).await, KeyState::Reused);
    assert_eq!(look_up(&s, &first).await, KeyState::Stored(new_response()));
}

async fn keys_are_scoped_to_the_api_key(s: TestStore) {
    let w = s.create_world().await;
    let (one, two) = (s.key(w.user).await, s.key(w.user).await);
    store(&s, &slot(one, "same")).await;
    assert_eq!(look_up(&s, &slot(two, "same")).await, KeyState::Free(Unused));
    assert_eq!(look_up(&s, &slot(one, "Same")).await, KeyState::Free(Unused), "upper and lower case differ");
    s.sql(format!("DELETE FROM api_keys WHERE id = {one}")).await;
    assert_eq!(s.number("SELECT count(*) FROM idempotency_keys").await, 0);
}

async fn a_failed_request_releases_its_key(s: TestStore) {
    let w = s.create_world().await;
    let slot = slot(s.key(w.user).await, "one");
    s.discard(async |tx| {
        users::create_workspace(tx, "lost", "pro").await?;
        idempotency::store(tx, &slot, &new_response(), Unused).await
    })
    .await;
    assert_eq!(look_up(&s, &slot).await, KeyState::Free(Unused));
    assert_eq!(s.number("SELECT count(*) FROM workspaces WHERE name = 'lost'").await, 0);
}

async fn only_one_of_many_concurrent_requests_runs(s: TestStore) {
    let w = s.create_world().await;
    let slot = slot(s.key(w.user).await, "one");
    let found = crate::support::store::run_concurrently(8, |_| {
        let (store, slot) = (s.store.clone(), slot.clone());
        async move {
            let mut tx = store.begin().await.unwrap();
            users::create_workspace(&mut tx, "made", "pro").await.unwrap();
            match idempotency::store(&mut tx, &slot, &new_response(), Unused).await {
                Err(lost) if lost.is_serialization() => {
                    tx.rollback().await.unwrap();
                    idempotency::look_up(&store, &slot).await.unwrap()
                }
                stored => {
                    stored.unwrap();
                    tx.commit().await.unwrap();
                    KeyState::Free(Unused)
                }
            }
        }
    })
    .await;
    let (ran, others): (Vec<_>, Vec<_>) = found.iter().partition(|found| **found == KeyState::Free(Unused));
    assert_eq!(ran.len(), 1);
    assert!(others.iter().all(|found| **found == KeyState::Stored(new_response())), "they waited for it: {others:?}");
    assert_eq!(s.number("SELECT count(*) FROM workspaces WHERE name = 'made'").await, 1);
}

/// The look-up may not see a response that was committed while the write waited for a lock.
async fn a_stored_response_or_a_lease_is_not_overwritten(s: TestStore) {
    let w = s.create_world().await;
    let id = s.key(w.user).await;
    let (stored_slot, leased) = (slot(id, "stored"), slot(id, "leased"));
    store(&s, &stored_slot).await;
    lease(&s, &leased, Unused).await;
    for slot in [&stored_slot, &leased] {
        for free in [Unused, Expired, Leased(s.now())] {
            let stored = s.try_write(async |tx| idempotency::store(tx, slot, &new_response(), free).await).await;
            let leased = s.try_write(async |tx| idempotency::acquire_lease(tx, slot, free).await.map(drop)).await;
            for result in [stored, leased] {
                assert!(result.unwrap_err().is_serialization(), "the request runs again, and finds what is stored");
            }
        }
    }
    assert_eq!(look_up(&s, &stored_slot).await, KeyState::Stored(new_response()));
    assert_eq!(look_up(&s, &leased).await, KeyState::InProgress);
}

async fn a_leased_key_is_in_progress_until_its_lease_expires(s: TestStore) {
    let w = s.create_world().await;
    let slot = slot(s.key(w.user).await, "connect");
    assert_eq!(lease(&s, &slot, Unused).await, s.now() + LEASE);
    assert_eq!(look_up(&s, &slot).await, KeyState::InProgress);
    let other = IdempotencySlot { fingerprint: vec![9], ..slot.clone() };
    assert_eq!(look_up(&s, &other).await, KeyState::Reused);
    s.clock.advance(LEASE);
    assert_eq!(look_up(&s, &slot).await, KeyState::Free(Expired));
    let held = lease(&s, &slot, Expired).await;
    assert_eq!(look_up(&s, &slot).await, KeyState::InProgress, "the new hold has a lease of its own");
    s.write(async |tx| idempotency::release(tx, &slot, held).await).await;
    assert_eq!(look_up(&s, &slot).await, KeyState::Free(Unused));
}

/// A request that was frozen until its lease expired, and continues when another request has the key.
async fn an_expired_lease_cannot_take_the_key_back(s: TestStore) {
    let w = s.create_world().await;
    let slot = slot(s.key(w.user).await, "connect");
    let retake = async |mine| s.write(async |tx| idempotency::look_up_leased(tx, &slot, mine).await).await;
    let late = lease(&s, &slot, Unused).await;
    assert_eq!(retake(late).await, KeyState::Free(Leased(late)));
    s.clock.advance(LEASE);
    assert_eq!(retake(late).await, KeyState::Free(Leased(late)), "no other request took the key");
    let other = lease(&s, &slot, Expired).await;
    assert_eq!((retake(late).await, retake(other).await), (KeyState::InProgress, KeyState::Free(Leased(other))));
    s.write(async |tx| idempotency::release(tx, &slot, late).await).await;
    assert_eq!(look_up(&s, &slot).await, KeyState::InProgress, "the other holds it");
    s.write(async |tx| idempotency::store(tx, &slot, &new_response(), Leased(other)).await).await;
    s.write(async |tx| idempotency::release(tx, &slot, late).await).await;
    assert_eq!(retake(late).await, KeyState::Stored(new_response()));
}

async fn storing_a_response_ends_a_lease(s: TestStore) {
    let w = s.create_world().await;
    let slot = slot(s.key(w.user).await, "connect");
    let held = lease(&s, &slot, Unused).await;
    s.advance(5);
    s.write(async |tx| idempotency::store(tx, &slot, &new_response(), Leased(held)).await).await;
    s.clock.advance(LEASE);
    assert_eq!(look_up(&s, &slot).await, KeyState::Stored(new_response()));
}

async fn a_response_is_kept_for_a_day(s: TestStore) {
    let w = s.create_world().await;
    let slot = slot(s.key(w.user).await, "one");
    store(&s, &slot).await;
    s.clock.advance(RETENTION - chrono::TimeDelta::seconds(1));
    assert_eq!(look_up(&s, &slot).await, KeyState::Stored(new_response()));
    s.advance(1);
    let other = IdempotencySlot { fingerprint: vec![9], ..slot.clone() };
    assert_eq!(look_up(&s, &other).await, KeyState::Free(Expired));
    s.write(async |tx| idempotency::store(tx, &other, &new_response(), Expired).await).await;
    assert_eq!(look_up(&s, &other).await, KeyState::Stored(new_response()));
}

async fn the_body_is_stored_encrypted(s: TestStore) {
    let w = s.create_world().await;
    let slot = slot(s.key(w.user).await, "one");
    store(&s, &slot).await;
    let sealed: Vec<u8> = s.value("SELECT response FROM idempotency_keys").await;
    assert!(sealed.len() > BODY.len());
    for part in [BODY, b"whsec_x", b"secret"] {
        assert!(!sealed.windows(part.len()).any(|bytes| bytes == part));
    }
}

async fn a_response_cannot_be_decrypted_in_another_row(s: TestStore) {
    let w = s.create_world().await;
    let slot = slot(s.key(w.user).await, "one");
    store(&s, &slot).await;
    s.sql("UPDATE idempotency_keys SET key = 'two'").await;
    let moved = IdempotencySlot { key: "two".to_owned(), ..slot };
    assert!(matches!(idempotency::look_up(&s.store, &moved).await, Err(StoreError::Secret(_))));
}

async fn old_responses_are_deleted_in_batches(s: TestStore) {
    let w = s.create_world().await;
    let id = s.key(w.user).await;
    for key in ["a", "b", "c"] {
        store(&s, &slot(id, key)).await;
    }
    lease(&s, &slot(id, "held"), Unused).await;
    // A row from a process whose clock was ahead is kept longer.
    s.clock.set(RETENTION);
    s.clock.restart();
    store(&s, &slot(id, "ahead")).await;
    s.clock.set(-RETENTION);
    let purge = async |limit| s.write(async |tx| idempotency::purge(tx, limit).await).await;
    assert_eq!(purge(10).await, 0);
    s.clock.advance(RETENTION);
    store(&s, &slot(id, "new")).await;
    assert_eq!((purge(3).await, purge(3).await, purge(3).await), (3, 1, 0));
    assert_eq!(look_up(&s, &slot(id, "new")).await, KeyState::Stored(new_response()));
    assert_eq!(look_up(&s, &slot(id, "ahead")).await, KeyState::Stored(new_response()));
    s.clock.advance(RETENTION);
    assert_eq!(purge(3).await, 2);
}
