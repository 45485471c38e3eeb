//! Tests with an additional kind, added as the recipe describes, in their own registry.

use std::sync::Arc;

use crier_base::clock::Clock;
use crier_base::secrets::{Cipher, SecretKey};
use crier_domain::declare_job_kind;
use crier_domain::job::{KindLimits, NoopNotifier};
use crier_store::{Db, Store, StoreError};

use super::*;

macro_rules! registry {
    ($macro:ident) => {
        $macro! {
            Noop = noop { max_attempts: 5, lane_cap: None, workspace_cap: None },
            Ping = ping { max_attempts: 3, lane_cap: Some(2), workspace_cap: None },
        }
    };
}

registry!(declare_job_kind);
registry!(dispatch_to_definitions);

mod ping {
    use super::*;

    pub struct Ping;

    /// The result of every function shows that it was called.
    impl JobDefinition for Ping {
        async fn lock(_tx: &mut Tx, _subject_id: i64) -> Result<()> {
            Err(StoreError::Decode("lock".into()))
        }

        async fn describe(_conn: &mut Conn, subject_id: i64) -> Result<Option<SubjectDescription>> {
            Ok(Some(SubjectDescription::new(format!("ping {subject_id}"))))
        }

        async fn on_dead(_tx: &mut Tx, subject_id: i64, trace: Option<&str>) -> Result<()> {
            Err(StoreError::Decode(format!("dead {subject_id} {trace:?}")))
        }

        async fn on_cancelled(_tx: &mut Tx, _subject_id: i64) -> Result<()> {
            Err(StoreError::Decode("cancelled".into()))
        }

        async fn on_retry(_tx: &mut Tx, _subject_id: i64) -> Result<bool> {
            Ok(false)
        }
    }
}

#[test]
fn a_registered_kind_has_a_name_and_limits() {
    assert_eq!(JobKind::ALL, [JobKind::Noop, JobKind::Ping]);
    assert_eq!((JobKind::Ping.as_str(), "ping".parse()), ("ping", Ok(JobKind::Ping)));
    let limits = KindLimits { max_attempts: 3, lane_cap: Some(2), workspace_cap: None };
    assert_eq!(JobKind::Ping.limits(), limits);
}

#[tokio::test]
async fn a_registered_kind_is_called() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::sqlite(&dir.path().join("crier.db")).await.unwrap();
    let cipher = Cipher::new(&[SecretKey::new(1, [7; 32])]).unwrap();
    let store = Store::new(db, Clock::system(), cipher, Arc::new(NoopNotifier));
    let tx = &mut store.begin().await.unwrap();

    let failed = |result: Result<()>| result.unwrap_err().to_string();
    assert!(failed(lock(tx, JobKind::Ping, 7).await).contains("lock"));
    assert!(failed(on_dead(tx, JobKind::Ping, 7, Some("request-1")).await).contains("dead 7 Some(\"request-1\")"));
    assert!(failed(on_cancelled(tx, JobKind::Ping, 7).await).contains("cancelled"));
    assert!(!on_retry(tx, JobKind::Ping, 7).await.unwrap());
    assert_eq!(describe(tx, JobKind::Ping, 7).await.unwrap().unwrap().words, "ping 7");

    lock(tx, JobKind::Noop, 7).await.unwrap();
    on_dead(tx, JobKind::Noop, 7, None).await.unwrap();
    on_cancelled(tx, JobKind::Noop, 7).await.unwrap();
    assert!(on_retry(tx, JobKind::Noop, 7).await.unwrap());
    assert_eq!(describe(tx, JobKind::Noop, 7).await.unwrap().unwrap().words, "nothing");
}
