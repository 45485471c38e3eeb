//! Other services: Redis, the storage, the mail server, the clocks, and the path from the internet to the API.

use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, TimeDelta};
use crier_base::random;
use crier_config::{Config, StorageConfig};
use crier_http::HttpClient;
use crier_mail::Mailer;
use crier_media::Storage;
use crier_media::storage::marker;
use crier_runtime::{storage_marker, trace_export, traces_client};
use crier_store::{Store, server};
use redis::RedisError;
use redis::aio::MultiplexedConnection;
use secrecy::ExposeSecret as _;
use url::Host;

use super::installation::text;
use super::{Finding, SEE_ERRORS};

/// If clocks differ by more, Crier uses the time of the database (`crier_base::clock`), and logs that.
const CLOCK_TOLERANCE: TimeDelta = TimeDelta::seconds(1);
/// If clocks differ by more, one of them is not synchronized. Others rely on them too: a bucket rejects signatures whose
/// time is wrong, and the lines of the logs are in a wrong order.
const CLOCK_LIMIT: TimeDelta = TimeDelta::seconds(10);
const MAX_BODY: usize = 8 << 20;

async fn redis(config: &Config) -> Option<Result<MultiplexedConnection, RedisError>> {
    let url = config.redis_url.as_ref()?;
    let connect = async { redis::Client::open(url.expose_secret())?.get_multiplexed_async_connection().await };
    Some(connect.await)
}

pub async fn queue(config: &Config) -> Finding {
    let Some(connected) = redis(config).await else { return Finding::ok("queue", "in-process") };
    let mut connection = match connected {
        Ok(connection) => connection,
        Err(error) => return no_queue(&format!("Redis does not respond: {error}"), "start Redis"),
    };
    // A server whose memory or disk is full, or a replica, responds to all commands except for writes.
    // This writes nothing, because there is no such list.
    match redis::cmd("LPUSHX").arg("crier:check").arg("").query_async::<()>(&mut connection).await {
        Ok(()) => Finding::ok("queue", "Redis accepts writes"),
        Err(error) => no_queue(
            &format!("Redis does not accept writes: {error}"),
            "free memory (maxmemory) or disk space for it, permit its user to write",
        ),
    }
}

fn no_queue(detail: &str, remedy: &str) -> Finding {
    let remedy = format!(
        "{remedy}, or correct CRIER_REDIS_URL; until then, no job starts: nothing is published, and posts that become \
         due wait in the database"
    );
    Finding::failure("queue", detail, remedy)
}

pub async fn storage(config: &Config, store: Option<&Store>) -> Finding {
    // The directory may be the mount point of a disk that is not mounted.
    if let Some(store) = store
        && let Err(error) = storage_marker::check(config, store).await
    {
        return Finding::failure("storage", error.explain(&config.database).to_string(), SEE_ERRORS);
    }
    let place = match &config.storage {
        StorageConfig::Directory(dir) => dir.display().to_string(),
        StorageConfig::S3(_) => "the bucket".to_owned(),
    };
    // A check must not create the directory: with files in it, it would count as the storage of this installation.
    if let StorageConfig::Directory(dir) = &config.storage
        && matches!(marker::has_files(dir), Ok(false))
    {
        return Finding::warning(
            "storage",
            format!("{place}: not checked, because it has not been used yet"),
            "start Crier, which creates it",
        );
    }
    match write_and_read(&config.storage).await {
        Ok(()) => Finding::ok("storage", format!("{place}: a file was written, read and deleted")),
        Err(error) => Finding::failure("storage", format!("{place}: {error}"), config.storage_remedy()),
    }
}

async fn write_and_read(config: &StorageConfig) -> Result<(), String> {
    let text = |error: crier_media::StorageError| error.to_string();
    let storage = Storage::open(config).map_err(text)?;
    let name = random::text(16).map_err(|error| error.to_string())?;
    let (key, bytes) = (format!("doctor-{name}"), Bytes::from_static(b"written by crier doctor"));
    storage.put(&key, bytes.clone()).await.map_err(text)?;
    let read = storage.read(&key).await.map_err(text);
    storage.delete(&key).await.map_err(text)?;
    match read? {
        Some(read) if read == bytes => Ok(()),
        _ => Err("the written file could not be read".to_owned()),
    }
}

pub async fn mail(config: &Config) -> Finding {
    let mailer = match Mailer::new(&config.mail) {
        Ok(Some(mailer)) => mailer,
        Ok(None) => {
            let remedy =
                "set CRIER_SMTP_URL, so that owners are notified of expired accounts and reports can be emailed";
            return Finding::warning("mail", "no mail server is configured, so no emails are sent", remedy);
        }
        Err(error) => return Finding::failure("mail", error.to_string(), "correct the variable"),
    };
    match mailer.check().await {
        Ok(()) => Finding::ok("mail", "the mail server responds and accepts the login"),
        Err(error) => Finding::failure("mail", error.to_string(), "start the mail server, or correct CRIER_SMTP_URL"),
    }
}

pub async fn traces(config: &Config) -> Finding {
    let Some(traces) = &config.traces else { return Finding::ok("traces", "not recorded") };
    match trace_export::check(traces, traces_client()).await {
        Ok(()) => Finding::ok("traces", format!("{} accepts traces", traces.url)),
        Err(error) => Finding::failure(
            "traces",
            format!("{} does not accept traces: {error}", traces.url),
            "start the collector with OTLP over HTTP, or correct CRIER_OTLP_ENDPOINT and CRIER_OTLP_HEADERS; until then, \
             only traces are lost",
        ),
    }
}

pub async fn clock(config: &Config, store: &Store) -> Finding {
    let mut behind = Vec::new();
    match database_clock(store).await {
        Ok(Some(offset)) => behind.push(("the database's", offset)),
        Ok(None) => {}
        Err(error) => return Finding::failure("clock", text(&error, config), SEE_ERRORS),
    }
    if let Some(Ok(mut connection)) = redis(config).await
        && let Ok((seconds, micros)) = redis::cmd("TIME").query_async::<(i64, u32)>(&mut connection).await
        && let Some(at) = DateTime::from_timestamp(seconds, micros.saturating_mul(1_000))
    {
        behind.push(("Redis'", store.now() - at));
    }
    let Some((whose, offset)) = behind.into_iter().max_by_key(|(_, offset)| offset.abs()) else {
        return Finding::ok("clock", "no other clock to compare with");
    };
    let detail = format!("differs from {whose} by {} ms", offset.num_milliseconds());
    let remedy = "synchronize the clocks of all machines (chrony, systemd-timesyncd)";
    match offset.abs() {
        small if small <= CLOCK_TOLERANCE => Finding::ok("clock", detail),
        medium if medium <= CLOCK_LIMIT => Finding::warning("clock", detail, remedy),
        _ => Finding::failure("clock", detail, remedy),
    }
}

/// Returns how far the clock of this machine is ahead of the database's. The database's clock is compared with the middle
/// of the query.
async fn database_clock(store: &Store) -> crier_store::Result<Option<TimeDelta>> {
    let mut conn = store.read().await?;
    let before = store.now();
    let at = server::now(&mut conn).await?;
    let middle = before + (store.now() - before) / 2;
    Ok(at.map(|at| middle - at))
}

pub async fn public_url(config: &Config) -> Finding {
    let (base, id) = (config.absolute(""), "public_url");
    let is_loopback = match config.public_url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    };
    #[expect(clippy::disallowed_methods, reason = "the operator sets the URL")]
    let client = HttpClient::trusted(Duration::from_secs(8), MAX_BODY);
    // Without a key, every Crier rejects this with an error of its own form.
    let url = config.absolute("/api/public/v1/brands");
    match client.send(client.request(http::Method::GET, &url)).await {
        Ok(response) if is_our_error(&response.body) => {}
        Ok(response) => {
            let detail = format!("{url} returns {}, which is not from Crier", response.status);
            let remedy = "configure the reverse proxy to forward the whole host, or correct CRIER_PUBLIC_URL";
            return Finding::failure(id, detail, remedy);
        }
        Err(error) => {
            let detail = format!("{url} cannot be reached: {error}");
            let remedy = "start Crier and configure the reverse proxy to forward to it, or correct CRIER_PUBLIC_URL";
            return Finding::failure(id, detail, remedy);
        }
    }
    if is_loopback {
        let remedy = "set CRIER_PUBLIC_URL to an https URL to connect accounts in a browser, and to publish \
                      images and videos on platforms that download them";
        return Finding::warning(id, format!("only this machine can reach {base}"), remedy);
    }
    if config.public_url.scheme() != "https" {
        return Finding::warning(id, format!("{base} does not use https"), "put a reverse proxy with TLS in front");
    }
    Finding::ok(id, format!("{base} reaches this installation"))
}

/// Checks whether the API of this machine receives requests through a proxy that it does not trust.
pub async fn proxy(config: &Config) -> Finding {
    let url = format!("{}metrics", config.http.own_ops_url());
    #[expect(clippy::disallowed_methods, reason = "the operator sets the URL")]
    let client = HttpClient::trusted(Duration::from_secs(5), MAX_BODY);
    let page = client.send(client.request(http::Method::GET, &url)).await;
    let count = page.ok().and_then(|page| requests_of_untrusted_proxies(&String::from_utf8_lossy(&page.body)));
    match count {
        None => Finding::ok("proxy", format!("not checked: no API responds at {url}")),
        Some(0) => Finding::ok("proxy", "no requests came through an untrusted proxy"),
        Some(count) => Finding::warning(
            "proxy",
            format!("{count} requests came through an untrusted proxy, whose clients share one rate limit"),
            "set CRIER_TRUSTED_PROXIES to the proxy's address, which is in the log of the API",
        ),
    }
}

fn requests_of_untrusted_proxies(metrics: &str) -> Option<u64> {
    let value = metrics.lines().find_map(|line| line.strip_prefix("crier_http_untrusted_proxy_requests_total "))?;
    value.trim().parse().ok()
}

/// Returns whether a body is an error of Crier's API.
fn is_our_error(body: &[u8]) -> bool {
    let envelope: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    envelope
        .is_some_and(|envelope| ["code", "request_id", "doc_url"].iter().all(|key| envelope["error"][key].is_string()))
}
