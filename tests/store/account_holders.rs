//! Accounts and brands that share an account: other accounts of the same person or application, and brands of other
//! users.

use crier_base::secrets::{Cipher, SecretKey};
use crier_domain::access::Role;
use crier_domain::platform::Platform;
use crier_store::accounts::{self, NewAccount};
use crier_store::{StoreError, account_holders};

use crate::support::store::{TestStore, cipher, expose, new_account, on_both};

on_both![
    accounts_of_the_same_person_or_application_are_listed_a_page_at_a_time,
    secrets_of_a_former_key_are_decrypted,
    brands_of_other_users_are_detected,
];

async fn candidates(s: &TestStore, cipher: &Cipher, after: i64) -> Result<Vec<(i64, String)>, StoreError> {
    let (platform, application) = (Platform::Sandbox, Some("app"));
    let mut conn = s.conn().await;
    let found = account_holders::candidates(&mut conn, cipher, platform, "ann", application, after).await?;
    Ok(found.iter().map(|(account, secrets)| (account.id, expose(secrets).to_owned())).collect())
}

async fn accounts_of_the_same_person_or_application_are_listed_a_page_at_a_time(s: TestStore) {
    let (w, other) = (s.create_world().await, s.world_of("bob@example.com").await);
    let create_account = async |workspace: i64, external_id: &str, application: Option<&str>| {
        let new = NewAccount { application: application.map(str::to_owned), ..new_account(external_id, "t") };
        s.write(async |tx| accounts::save(tx, workspace, &new).await).await.id
    };
    let mut expected = vec![
        create_account(w.workspace, "ann", None).await,
        create_account(other.workspace, "ann", Some("else")).await,
    ];
    create_account(w.workspace, "bob", Some("else")).await;
    create_account(w.workspace, "cy", None).await;
    for n in 0..100 {
        expected.push(create_account(other.workspace, &format!("page-{n}"), Some("app")).await);
    }
    let (mut listed, mut pages) = (Vec::new(), 0);
    loop {
        let page = candidates(&s, &cipher(), listed.last().copied().unwrap_or_default()).await.unwrap();
        if page.is_empty() {
            break;
        }
        pages += 1;
        listed.extend(page.iter().map(|(id, _)| *id));
    }
    assert_eq!((listed, pages), (expected, 2));
}

async fn secrets_of_a_former_key_are_decrypted(s: TestStore) {
    let w = s.create_world().await;
    s.account(w, "ann", "t").await;
    let (former, new) = (SecretKey::new(1, [7; 32]), SecretKey::new(2, [8; 32]));
    let rotated = Cipher::new(&[new.clone(), former]).unwrap();
    assert_eq!(candidates(&s, &rotated, 0).await.unwrap(), candidates(&s, &cipher(), 0).await.unwrap());
    // Unreadable secrets are an error and not an empty list, so that a token that may be in use is not revoked.
    let lost = Cipher::new(&[new]).unwrap();
    assert!(candidates(&s, &lost, 0).await.is_err());
    let found = account_holders::find_external(&mut s.conn().await, &lost, w.workspace, Platform::Sandbox, "ann")
        .await
        .unwrap();
    assert!(found.unwrap().secrets.is_none());
}

async fn brands_of_other_users_are_detected(s: TestStore) {
    let w = s.create_world().await;
    let account = s.account(w, "ann", "t").await.id;
    let colleague = s.user(w.workspace, "colleague@example.com").await;
    let brand = s.brand(w.workspace, colleague).await;
    let belongs_to_others = async |user: i64| {
        account_holders::belongs_to_others(&mut s.conn().await, account, brand, user, None).await.unwrap()
    };
    assert!(belongs_to_others(colleague).await && !belongs_to_others(w.user).await);
    s.member(w.brand, colleague, Role::Contributor).await;
    assert!(belongs_to_others(colleague).await, "contributors connect no accounts");
    s.sql(format!("UPDATE brand_members SET role = 'editor' WHERE brand_id = {} AND user_id = {colleague}", w.brand))
        .await;
    assert!(!belongs_to_others(colleague).await);
    s.sql(format!("DELETE FROM brand_members WHERE brand_id = {} AND user_id = {colleague}", w.brand)).await;
    assert!(belongs_to_others(colleague).await);
    s.write(async |tx| accounts::attach(tx, brand, account).await).await;
    assert!(!belongs_to_others(colleague).await, "the brand has it already");
}
