//! The avatars of accounts.

use chrono::{DateTime, Utc};
use crier_store::avatars::{self, Avatar};

use crate::support::store::{TestStore, on_both};

on_both![an_avatar_remains_if_it_cannot_be_read_again, an_avatar_is_deleted_with_its_account];

const URL: &str = "https://a.example/1.png";

async fn save(s: &TestStore, account: i64, url: &str, image: Option<&[u8]>, next_read_at: DateTime<Utc>) {
    s.write(async |tx| avatars::save(tx, account, url, image, next_read_at).await).await;
}

async fn find(s: &TestStore, account: i64) -> Option<Avatar> {
    avatars::find(&mut s.conn().await, account).await.unwrap()
}

fn avatar(url: &str, image: Option<&[u8]>, next_read_at: DateTime<Utc>) -> Option<Avatar> {
    Some(Avatar { url: url.to_owned(), image: image.map(<[u8]>::to_vec), next_read_at })
}

async fn an_avatar_remains_if_it_cannot_be_read_again(s: TestStore) {
    let w = s.create_world().await;
    let (one, two) = (s.account(w, "one", "t").await.id, s.account(w, "two", "t").await.id);
    assert_eq!(find(&s, one).await, None);
    save(&s, one, URL, None, s.later(60)).await;
    assert_eq!(find(&s, one).await, avatar(URL, None, s.later(60)));
    save(&s, one, URL, Some(b"\0\xff"), s.later(120)).await;
    assert_eq!(find(&s, one).await, avatar(URL, Some(b"\0\xff"), s.later(120)));
    let other = "https://a.example/2.png";
    save(&s, one, other, None, s.later(180)).await;
    assert_eq!(find(&s, one).await, avatar(other, Some(b"\0\xff"), s.later(180)));
    save(&s, one, other, Some(b"2"), s.later(240)).await;
    assert_eq!(find(&s, one).await, avatar(other, Some(b"2"), s.later(240)));
    assert_eq!(find(&s, two).await, None);
}

async fn an_avatar_is_deleted_with_its_account(s: TestStore) {
    let w = s.create_world().await;
    let account = s.account(w, "one", "t").await.id;
    save(&s, account, URL, Some(b"1"), s.later(60)).await;
    s.sql(format!("DELETE FROM social_accounts WHERE id = {account}")).await;
    assert_eq!(find(&s, account).await, None);
    save(&s, account, URL, Some(b"1"), s.later(60)).await;
    assert_eq!(find(&s, account).await, None);
}
