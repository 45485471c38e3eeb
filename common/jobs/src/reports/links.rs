//! URLs in the emails of reports that need no API key: the URL of the file, and the URL to unsubscribe. Their tokens
//! are sealed with the installation's key, so that any replica can serve them and nobody else can create them.

use chrono::{DateTime, TimeDelta, Utc};
use crier_base::secrets::link::{self, LinkError};
use crier_base::secrets::{Cipher, SecretError, SecretLocation};
use serde::{Deserialize, Serialize};

/// The time for which the URL of a file works.
const FILE_LIFETIME: TimeDelta = TimeDelta::days(14);

const FILE: SecretLocation<'_> = SecretLocation { table: "report_deliveries", row: "", column: "file_link" };
const UNSUBSCRIBE: SecretLocation<'_> = SecretLocation { table: "report_schedules", row: "", column: "unsubscribe" };

/// A link to the file of a delivery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileLink {
    pub delivery_id: i64,
    pub expires_at: DateTime<Utc>,
}

impl FileLink {
    pub fn new(delivery_id: i64, now: DateTime<Utc>) -> Self {
        Self { delivery_id, expires_at: now + FILE_LIFETIME }
    }

    pub fn url(&self, cipher: &Cipher, public_url: &str) -> Result<String, SecretError> {
        Ok(format!("{public_url}/reports/files/{}", link::seal(cipher, &FILE, self)?))
    }

    pub fn open(cipher: &Cipher, token: &str, now: DateTime<Utc>) -> Result<Self, LinkError> {
        let found: Self = link::open(cipher, &FILE, token)?;
        if now < found.expires_at { Ok(found) } else { Err(LinkError::Expired) }
    }
}

/// A link with which a recipient unsubscribes from the reports of a workspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnsubscribeLink {
    pub workspace_id: i64,
    /// The schedule whose email contains the link.
    pub schedule_id: i64,
    pub recipient: String,
}

impl UnsubscribeLink {
    pub fn url(&self, cipher: &Cipher, public_url: &str) -> Result<String, SecretError> {
        Ok(format!("{public_url}/reports/unsubscribe/{}", link::seal(cipher, &UNSUBSCRIBE, self)?))
    }

    pub fn open(cipher: &Cipher, token: &str) -> Result<Self, LinkError> {
        link::open(cipher, &UNSUBSCRIBE, token)
    }
}
