//! The applications registered at platforms: those that an operator set for a brand, a workspace or the installation,
//! and those that Crier registered automatically at a server that a user named.

use std::collections::BTreeSet;

use crier_base::secrets::{Cipher, SecretLocation};
use crier_domain::application::{Application, ListedApplication, Owner};
use crier_domain::platform::{ConnectTarget, Platform};
use secrecy::{ExposeSecret, SecretString};

use super::db::{execute, run};
use super::{Conn, Result, StoreError, Tx};

#[derive(sqlx_macros::FromRow)]
struct ApplicationRow {
    client_id: String,
    client_secret: Vec<u8>,
}

/// The client id is the row's name, because it is known before the row has an id. Two rows may share an application.
fn place(client_id: &str) -> SecretLocation<'_> {
    SecretLocation { table: "applications", row: client_id, column: "client_secret" }
}

impl ApplicationRow {
    fn open(self, cipher: &Cipher) -> Result<Application> {
        let plain = cipher.open(&place(&self.client_id), &self.client_secret)?;
        let secret =
            String::from_utf8(plain).map_err(|_| StoreError::Decode("a client secret is not valid UTF-8".into()))?;
        Ok(Application { client_id: self.client_id, client_secret: SecretString::from(secret) })
    }
}

/// An application to store.
#[derive(Clone, Debug)]
pub struct NewApplication<'a> {
    pub platform: Platform,
    pub target: ConnectTarget,
    pub owner: Owner,
    /// The server at which Crier registered it automatically; otherwise empty.
    pub instance: &'a str,
    /// The callback URL with which it was registered.
    pub redirect_uri: &'a str,
    pub application: &'a Application,
}

/// Stores an application. Replaces the previous one of the same owner, target and instance.
pub async fn set(tx: &mut Tx, new: &NewApplication<'_>) -> Result<i64> {
    const SQL: &str = "
        INSERT INTO applications (
            platform, target, workspace_id, brand_id, instance, redirect_uri, client_id, client_secret
        )
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
        ON CONFLICT (platform, target, coalesce(workspace_id, 0), coalesce(brand_id, 0), instance)
        DO UPDATE SET redirect_uri = excluded.redirect_uri, client_id = excluded.client_id,
            client_secret = excluded.client_secret
        RETURNING id";
    let id = &new.application.client_id;
    let sealed = tx.cipher.seal(&place(id), new.application.client_secret.expose_secret().as_bytes())?;
    let (workspace, brand) = (new.owner.workspace_id(), new.owner.brand_id());
    Ok(run!(tx, c => sqlx::query_scalar(SQL).bind(new.platform).bind(new.target).bind(workspace).bind(brand)
        .bind(new.instance).bind(new.redirect_uri).bind(id).bind(&sealed).fetch_one(c))?)
}

/// Returns the application that an operator set for a brand: its own, otherwise its workspace's or the installation's.
pub async fn of_brand(
    conn: &mut Conn,
    cipher: &Cipher,
    platform: Platform,
    target: ConnectTarget,
    workspace_id: i64,
    brand_id: i64,
) -> Result<Option<Application>> {
    const SQL: &str = "
        SELECT client_id, client_secret
        FROM applications
        WHERE platform = $1
            AND target = $2
            AND instance = ''
            AND (brand_id = $3 OR workspace_id = $4 OR (brand_id IS NULL AND workspace_id IS NULL))
        ORDER BY
            CASE WHEN brand_id IS NOT NULL THEN 0 WHEN workspace_id IS NOT NULL THEN 1 ELSE 2 END
        LIMIT 1";
    let target = platform.application_target(target);
    let row: Option<ApplicationRow> = run!(conn, c => sqlx::query_as(SQL).bind(platform).bind(target).bind(brand_id)
        .bind(workspace_id).fetch_optional(c))?;
    row.map(|row| row.open(cipher)).transpose()
}

/// Returns the platforms for which an operator set an application that a brand may use.
pub async fn platforms(conn: &mut Conn, workspace_id: i64, brand_id: i64) -> Result<BTreeSet<Platform>> {
    const SQL: &str = "
        SELECT DISTINCT platform
        FROM applications
        WHERE instance = ''
            AND (brand_id = $1 OR workspace_id = $2 OR (brand_id IS NULL AND workspace_id IS NULL))";
    let found: Vec<Platform> = run!(conn, c => sqlx::query_scalar(SQL).bind(brand_id).bind(workspace_id).fetch_all(c))?;
    Ok(found.into_iter().collect())
}

/// Returns the application that Crier registered at a server with this callback URL.
pub async fn at_instance(
    conn: &mut Conn,
    cipher: &Cipher,
    platform: Platform,
    instance: &str,
    redirect_uri: &str,
) -> Result<Option<Application>> {
    const SQL: &str = "
        SELECT client_id, client_secret
        FROM applications
        WHERE platform = $1
            AND instance = $2
            AND redirect_uri = $3";
    let row: Option<ApplicationRow> = run!(conn, c => sqlx::query_as(SQL).bind(platform).bind(instance)
        .bind(redirect_uri).fetch_optional(c))?;
    row.map(|row| row.open(cipher)).transpose()
}

/// Lists all applications, for the operator.
pub async fn list(conn: &mut Conn) -> Result<Vec<ListedApplication>> {
    const SQL: &str = "
        SELECT id, platform, target, workspace_id, brand_id, instance, client_id
        FROM applications
        ORDER BY id";
    Ok(run!(conn, c => sqlx::query_as(SQL).fetch_all(c))?)
}

/// Returns the server at which Crier registered an application automatically. `None` if an operator set the application,
/// or if it does not exist.
pub async fn registered_at(conn: &mut Conn, id: i64) -> Result<Option<String>> {
    const SQL: &str = "SELECT instance FROM applications WHERE id = $1 AND instance <> ''";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(id).fetch_optional(c))?)
}

/// Deletes an application. Returns `false` if it does not exist. Accounts that were connected with it keep its client
/// id.
pub async fn delete(tx: &mut Tx, id: i64) -> Result<bool> {
    Ok(execute!(tx, "DELETE FROM applications WHERE id = $1", id)? > 0)
}
