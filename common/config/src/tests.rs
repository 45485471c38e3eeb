#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::path::Path;

use crier_domain::analytics::Metric;
use crier_domain::job::JobKind;
use crier_domain::platform::{ConnectTarget, Platform};
use secrecy::ExposeSecret;

use super::*;
use crate::PlatformsConfig;

/// 32 bytes, 0 to 31.
const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const PG: &str = "postgres://crier:hush-pg@db:5432/crier";
const REDIS: &str = "redis://:hush-redis@cache:6379/1";

fn load(env: &[(&str, &str)], role: ProcessRole) -> Result<Config, ConfigError> {
    Config::load(&ConfigSource::new(env.iter().copied(), None, [("", ""); 0]), role)
}

/// Returns the problems as lines.
fn problem_lines(result: Result<Config, ConfigError>) -> String {
    let error = result.expect_err("should be rejected");
    error.problems.iter().map(|p| format!("{}: {}", p.key, p.message)).collect::<Vec<_>>().join("\n")
}

fn from_file(text: &str) -> Result<Config, ConfigError> {
    Config::load(&ConfigSource::new([("", ""); 0], Some(text.to_owned()), [("", ""); 0]), ProcessRole::Crier)
}

#[test]
fn defaults_work_in_embedded_mode() {
    let config = load(&[("PATH", "/bin"), ("CRIER_SMTP_URL", "")], ProcessRole::Crier).unwrap();
    assert_eq!(config.http.addr.to_string(), "127.0.0.1:8080");
    assert_eq!(config.http.ops_addr.to_string(), "127.0.0.1:9090");
    assert_eq!(config.absolute("/docs"), "http://127.0.0.1:8080/docs");
    assert!(matches!(&config.database, Database::Sqlite(path) if path.ends_with("crier-data/crier.db")));
    assert!(matches!(&config.storage, StorageConfig::Directory(path) if path.ends_with("crier-data/files")));
    assert!(config.redis_url.is_none() && config.secret_keys.is_none() && config.mail.smtp.is_none());
    assert!(config.sandbox && config.http.drain_delay.is_zero());
    assert_eq!(config.mail.from, Mailbox { name: Some("Crier".to_owned()), address: "crier@localhost".to_owned() });
    assert_eq!(config.latest_publish, Duration::from_secs(86_400));
    assert_eq!(config.worker.concurrency, Concurrency::each(64));
    assert_eq!(
        (config.worker.drain, config.worker.platform_timeout),
        (Duration::from_secs(30), Duration::from_secs(30))
    );
    assert_eq!(config.worker.kinds, JobKind::ALL);
    assert_eq!((config.log.filter.as_str(), config.log.format), ("info", None));
    assert!(config.plans.get("unlimited").is_some());
}

#[test]
fn limits_of_videos_are_consistent() {
    let media = |env: &[(&str, &str)]| load(env, ProcessRole::Crier).unwrap().media;
    let usual = media(&[]);
    assert_eq!((usual.max_video_bytes, usual.video_spool_bytes), (1 << 30, 4 << 30));
    assert_eq!(usual.ffmpeg.as_deref(), Some(Path::new("ffmpeg")));
    let large = media(&[("CRIER_MEDIA_VIDEO_MAX_MIB", "4096"), ("CRIER_MEDIA_FFMPEG", "no")]);
    assert_eq!((large.max_video_bytes, large.video_spool_bytes, large.ffmpeg), (4 << 30, 8 << 30, None));
    let small = media(&[("CRIER_MEDIA_VIDEO_SPOOL_MIB", "2"), ("CRIER_MEDIA_FFMPEG", "/opt/ffmpeg")]);
    assert_eq!(small.video_spool_bytes, 2 << 30, "the largest video fits into half of it");
    assert_eq!(small.ffmpeg.as_deref(), Some(Path::new("/opt/ffmpeg")));
    assert!(problem_lines(load(&[("CRIER_MEDIA_FFMPEG", "true")], ProcessRole::Crier)).contains("neither a path nor"));
}

#[test]
fn separate_processes_require_shared_settings() {
    assert_eq!(problem_lines(load(&[], ProcessRole::Worker)), "\
CRIER_DATABASE_URL: is not set, which means SQLite, and crier-worker cannot share a SQLite file with the other processes; \
set a URL such as postgres://crier:password@localhost:5432/crier, or run `crier`, which runs all of them in one process
CRIER_REDIS_URL: is not set, and crier-worker receives work only through Redis; set a URL such as redis://localhost:6379/0, or run \
`crier`, which needs no Redis
CRIER_SECRET_KEY: is not set, and crier-worker shares its secrets with the other processes; create one key for all of them \
with `openssl rand -base64 32`");
    let all = [("CRIER_DATABASE_URL", PG), ("CRIER_REDIS_URL", REDIS), ("CRIER_SECRET_KEY", KEY)];
    for role in [ProcessRole::Api, ProcessRole::Worker, ProcessRole::Scheduler] {
        let config = load(&all, role).unwrap();
        assert!(!config.sandbox && matches!(config.database, Database::Postgres(_)));
        assert_eq!(config.http.drain_delay, Duration::from_secs(5));
    }
    let sqlite = [("CRIER_DATABASE_URL", "sqlite:///var/crier.db"), all[1], all[2]];
    assert!(
        problem_lines(load(&sqlite, ProcessRole::Api))
            .starts_with("CRIER_DATABASE_URL: is SQLite, and crier-api cannot")
    );
    let one_process = load(&[sqlite[0], ("CRIER_SANDBOX", "off")], ProcessRole::Crier).unwrap();
    assert!(!one_process.sandbox);
    // An invalid address is reported once, not also as missing.
    let bad = [("CRIER_DATABASE_URL", "mysql://x"), ("CRIER_REDIS_URL", "nats://x"), ("CRIER_SECRET_KEY", "short")];
    assert_eq!(problem_lines(load(&bad, ProcessRole::Api)).lines().count(), 3);
}

#[test]
fn flags_override_env_and_env_overrides_the_file() {
    let file = "http_addr = \"127.0.0.1:1\"\nops_addr = \"127.0.0.1:2\"\n[ai]\nbase_url = \"http://file/\"\n\
                [worker]\nconcurrency = 3\nkinds = [\"noop\", \"deliver_webhook\"]\n[google_business]\nclient_id = 77\n";
    let env = [("CRIER_HTTP_ADDR", "127.0.0.1:3"), ("CRIER_OPS_ADDR", "127.0.0.1:4")];
    let source = ConfigSource::new(env, Some(file.to_owned()), [("http-addr", "127.0.0.1:5")]);
    let config = Config::load(&source, ProcessRole::Crier).unwrap();
    assert_eq!((config.http.addr.port(), config.http.ops_addr.port()), (5, 4));
    assert_eq!(config.ai.base_url.as_deref(), Some("http://file"));
    assert_eq!(config.worker.concurrency, Concurrency::each(3));
    assert!(config.worker.kinds == [JobKind::DeliverWebhook, JobKind::Noop]);
    assert_eq!(config.platforms[&Platform::GoogleBusiness].client_id.as_deref(), Some("77"));
}

#[test]
fn only_some_platforms_have_a_second_application() {
    let load = |name: &str| {
        let id = format!("CRIER_{name}_PAGE_CLIENT_ID");
        let secret = format!("CRIER_{name}_PAGE_CLIENT_SECRET");
        let source = ConfigSource::new([(id.as_str(), "page"), (secret.as_str(), "shh")], None, [("", ""); 0]);
        Config::load(&source, ProcessRole::Crier)
    };
    for (name, platform) in [("LINKEDIN", Platform::Linkedin), ("INSTAGRAM", Platform::Instagram)] {
        let config = load(name).unwrap();
        let settings = &config.platforms[&platform];
        let application = settings.application(ConnectTarget::Page).unwrap();
        assert!(application.client_id == "page" && application.has_secret());
        assert!(settings.application(ConnectTarget::Default).is_none());
    }
    assert!(problem_lines(load("FACEBOOK")).contains("CRIER_FACEBOOK_PAGE_CLIENT_ID: is unknown"));
}

#[test]
fn a_page_has_permissions_of_its_own_or_those_of_the_platform() {
    let scopes = |env: &[(&str, &str)]| {
        let config = load(env, ProcessRole::Crier).unwrap();
        let of = |target| config.platforms[&Platform::Linkedin].further_scopes(target).join(" ");
        (of(ConnectTarget::Default), of(ConnectTarget::Page))
    };
    let (own, page) = (("CRIER_LINKEDIN_SCOPES", "email"), ("CRIER_LINKEDIN_PAGE_SCOPES", "r_x, w_x"));
    assert_eq!(scopes(&[own, page]), ("email".to_owned(), "r_x w_x".to_owned()));
    assert_eq!(scopes(&[own]), ("email".to_owned(), "email".to_owned()), "the variable for pages is not set");
    assert_eq!(scopes(&[page]), (String::new(), "r_x w_x".to_owned()));
    let error = problem_lines(load(&[("CRIER_THREADS_PAGE_SCOPES", "x")], ProcessRole::Crier));
    assert!(error.contains("CRIER_THREADS_PAGE_SCOPES: is unknown"), "{error}");
}

#[test]
fn an_unknown_key_error_suggests_the_nearest_key() {
    let env = [
        ("CRIER_HTTP_ADR", "x"),
        ("CRIER_TWITER_CLIENT_ID", "x"),
        ("CRIER_X_INBOX", "x"),
        ("CRIER_TEST_PG_URL", "x"),
        ("CRIERS", "x"),
    ];
    let file = "redis_uri = \"x\"\n[http]\nport = 1\n";
    let source = ConfigSource::new(env, Some(file.to_owned()), [("--ops-adr", "x")]);
    assert_eq!(
        problem_lines(Config::load(&source, ProcessRole::Crier)),
        "\
http_port (configuration file): is unknown; the nearest known key is http_addr (configuration file)
redis_uri (configuration file): is unknown; the nearest known key is redis_url (configuration file)
CRIER_HTTP_ADR: is unknown; the nearest known key is CRIER_HTTP_ADDR
CRIER_TWITER_CLIENT_ID: is unknown; the nearest known key is CRIER_TWITTER_CLIENT_ID
CRIER_X_INBOX: is unknown; the nearest known key is CRIER_TWITTER_INBOX
--ops-adr: is unknown; the nearest known key is --ops-addr"
    );
}

#[test]
fn kubernetes_service_variables_are_ignored() {
    let links = [
        ("CRIER_SERVICE_HOST", "10.0.0.1"),
        ("CRIER_API_SERVICE_PORT_HTTP", "8080"),
        ("CRIER_PORT", "tcp://10.0.0.1:8080"),
        ("CRIER_API_PORT_8080_TCP_ADDR", "10.0.0.1"),
    ];
    assert_eq!(problem_lines(load(&links, ProcessRole::Crier)).lines().count(), 4);
    let mut env = links.to_vec();
    env.push(("KUBERNETES_SERVICE_HOST", "10.0.0.2"));
    load(&env, ProcessRole::Crier).unwrap();
}

#[test]
fn an_invalid_value_error_contains_an_example() {
    let table = [
        (
            "HTTP_ADDR",
            "localhost:8080",
            "`localhost:8080` is not an IP address with a port; use a value such as 127.0.0.1:8080",
        ),
        ("OPS_ADDR", "127.0.0.1:8080", "is 127.0.0.1:8080, which the API already listens on; choose another port"),
        (
            "TRUSTED_PROXIES",
            "10.0.0.0/8,proxy",
            "`10.0.0.0/8,proxy` has `proxy`, which is not a network (CIDR); use a value such as 127.0.0.1,10.0.0.0/8",
        ),
        (
            "PUBLIC_URL",
            "crier.example.com",
            "`crier.example.com` is not a URL; use a value such as https://crier.example.com",
        ),
        (
            "PUBLIC_URL",
            "https://x.example/crier",
            "`https://x.example/crier` has a path; Crier must be at the root of a host name; use a value such as https://crier.example.com",
        ),
        ("SANDBOX", "maybe", "`maybe` is neither true nor false; use a value such as true"),
        ("LATEST_PUBLISH", "24", "`24` is not an integer with a unit (ms, s, m, h, d); use a value such as 24h"),
        ("LATEST_PUBLISH", "10ms", "`10ms` is shorter than 1s; use a value such as 24h"),
        ("DRAIN_DELAY", "11m", "`11m` is longer than 600 s; use a value such as 5s"),
        ("DRAIN", "2d", "`2d` is longer than 3600 s; use a value such as 30s"),
        ("PLATFORM_TIMEOUT", "0s", "`0s` is shorter than 100ms; use a value such as 30s"),
        (
            "WORKER_CONCURRENCY",
            "0",
            "`0` is not a number from 1 to 1024; use a value such as 64,publish_target=16,deliver_webhook=256",
        ),
        (
            "WORKER_CONCURRENCY",
            "1025",
            "`1025` is not a number from 1 to 1024; use a value such as 64,publish_target=16,deliver_webhook=256",
        ),
        (
            "STORAGE_URL",
            "/var/media",
            "`/var/media` is neither file:///directory nor s3://bucket; use a value such as s3://my-bucket/crier",
        ),
        (
            "STORAGE_URL",
            "file://media",
            "`file://media` must be the full path of a directory, with three slashes after file:; use a value such as s3://my-bucket/crier",
        ),
        (
            "MAIL_FROM",
            "Crier",
            "`Crier` is not an email address, with or without a name; use a value such as Crier <crier@example.com>",
        ),
        (
            "MASTODON_BASE_URL",
            "ftp://x",
            "`ftp://x` does not begin with http:// or https://; use a value such as https://api.example.com",
        ),
        (
            "FACEBOOK_API_VERSION",
            "v25/../",
            "`v25/../` is not a version (letters, digits, dots, at most 40); use a value such as v25.0",
        ),
        (
            "FACEBOOK_SCOPES",
            "read_insights, a&b",
            "`read_insights, a&b` has `a&b`, which is not a permission name; use a value such as read_insights",
        ),
        (
            "THREADS_METRICS",
            "likes=a,likes=b",
            "`likes=a,likes=b` has `likes` twice; use a value such as impressions=views,shares=reposts+quotes",
        ),
        (
            "THREADS_METRICS",
            "likes",
            "`likes` has `likes`, which is not metric=name; use a value such as impressions=views,shares=reposts+quotes",
        ),
        (
            "LOG",
            "verbose",
            "`verbose` has `verbose`, which is neither a level (off, error, warn, info, debug, trace) nor module=level; \
             use a value such as info,crier=debug",
        ),
        ("LOG_FORMAT", "xml", "`xml` is neither text nor json; use a value such as json"),
        (
            "AI_BASE_URL",
            "https://u:p@x",
            "the value must not contain a user or a password; use a value such as https://api.openai.com/v1",
        ),
    ];
    for (name, value, message) in table {
        let name = format!("CRIER_{name}");
        assert_eq!(problem_lines(load(&[(&name, value)], ProcessRole::Crier)), format!("{name}: {message}"));
    }
    let kinds = problem_lines(load(&[("CRIER_WORKER_KINDS", "publish")], ProcessRole::Crier));
    assert!(
        kinds.starts_with("CRIER_WORKER_KINDS: `publish` has `publish`, which is not one of: all, publish_target,"),
        "{kinds}"
    );
}

#[test]
fn concurrency_is_configurable_per_kind() {
    let read = |text| load(&[("CRIER_WORKER_CONCURRENCY", text)], ProcessRole::Crier).unwrap().worker.concurrency;
    let of = |text| [JobKind::PublishTarget, JobKind::DeliverWebhook, JobKind::Noop].map(|kind| read(text).of(kind));
    assert_eq!(of("5"), [5, 5, 5]);
    assert_eq!(of(" 64 , publish_target = 16,deliver_webhook=1024"), [16, 1_024, 64]);
    assert_eq!(of("noop=1"), [64, 64, 1]);
    for (text, message) in [
        ("1025", "is not a number from 1 to 1024"),
        ("64,noop=0", "has `noop=0`, where `0` is not a number from 1 to 1024"),
        ("64,noop=", "has `noop=`, where `` is not a number from 1 to 1024"),
        ("publish=3", &format!("has `publish`, which is not one of: {}", "".parse::<JobKind>().unwrap_err().known)),
        ("noop=3,noop=4", "has `noop` twice"),
        ("3,4", "has a number without a kind twice"),
    ] {
        let error = problem_lines(load(&[("CRIER_WORKER_CONCURRENCY", text)], ProcessRole::Crier));
        assert!(
            error.starts_with(&format!("CRIER_WORKER_CONCURRENCY: `{text}` {message}; use a value such as")),
            "{error}"
        );
    }
}

#[test]
fn a_daily_cap_falls_back_to_the_platform_default() {
    let caps = |env: &[(&str, &str)]| {
        let platforms = load(env, ProcessRole::Crier).unwrap().platforms;
        let config = PlatformsConfig { platforms, ..PlatformsConfig::default() };
        [Platform::Instagram, Platform::Tiktok, Platform::Telegram].map(|platform| config.daily_posts(platform))
    };
    assert_eq!(caps(&[]), [Some(50), Some(15), None]);
    let set =
        [("CRIER_INSTAGRAM_DAILY_POSTS", "0"), ("CRIER_TIKTOK_DAILY_POSTS", "40"), ("CRIER_TELEGRAM_DAILY_POSTS", "1")];
    assert_eq!(caps(&set), [None, Some(40), Some(1)]);
    let error = problem_lines(load(&[("CRIER_THREADS_DAILY_POSTS", "-1")], ProcessRole::Crier));
    assert!(error.starts_with("CRIER_THREADS_DAILY_POSTS: `-1` is not a number from 0 to"), "{error}");
}

#[test]
fn the_limits_of_videos_can_be_set_where_they_are_uncertain() {
    let limits = |env: &[(&str, &str)], platform| {
        let platforms = load(env, ProcessRole::Crier).unwrap().platforms;
        let limits = PlatformsConfig { platforms, ..PlatformsConfig::default() }.video_limits(platform);
        (limits.max_bytes, limits.max_duration_ms)
    };
    let set = [("CRIER_TWITTER_VIDEO_MAX_MIB", "512"), ("CRIER_TWITTER_VIDEO_MAX_SECONDS", "140")];
    assert_eq!(limits(&set, Platform::Twitter), (Some(512 << 20), Some(140_000)));
    assert_eq!(limits(&set, Platform::Instagram), (None, None));
    let error = problem_lines(load(&[("CRIER_FACEBOOK_VIDEO_MAX_MIB", "0")], ProcessRole::Crier));
    assert!(error.starts_with("CRIER_FACEBOOK_VIDEO_MAX_MIB: `0` is not a number from 1 to"), "{error}");
}

#[test]
fn metrics_and_permissions_are_lists() {
    let env = [("CRIER_THREADS_METRICS", "shares = reposts + quotes, reach="), ("CRIER_THREADS_SCOPES", "a_b, c:d e")];
    let config = load(&env, ProcessRole::Crier).unwrap();
    let threads = &config.platforms[&Platform::Threads];
    let shares = vec!["reposts".to_owned(), "quotes".to_owned()];
    assert_eq!(threads.metrics, [(Metric::Shares, shares), (Metric::Reach, Vec::new())]);
    assert_eq!(threads.scopes, ["a_b", "c:d", "e"]);
    assert!(!threads.no_inbox);
    let off = load(&[("CRIER_TWITTER_INBOX", "off")], ProcessRole::Crier).unwrap();
    assert!(off.platforms[&Platform::Twitter].no_inbox);
    assert_eq!(threads.analytics, None);
    let on = load(&[("CRIER_TWITTER_ANALYTICS", "true")], ProcessRole::Crier).unwrap();
    assert_eq!(on.platforms[&Platform::Twitter].analytics, Some(true));
    let error = problem_lines(load(&[("CRIER_THREADS_METRICS", "views=x")], ProcessRole::Crier));
    assert!(error.contains("`views`, which is not one of: impressions, reach, likes"), "{error}");
}

#[test]
fn all_errors_are_reported_together_without_secrets() {
    let env = [
        ("CRIER_DATABASE_URL", "mysql://u:hush@db"),
        ("CRIER_REDIS_URL", "http://hush@cache"),
        ("CRIER_SECRET_KEY", "hush"),
        ("CRIER_SMTP_URL", "smtp://hush@mail"),
        ("CRIER_TWITTER_CLIENT_SECRET", "hu\nsh"),
        ("CRIER_OTLP_HEADERS", "api-key=ok,hush"),
        ("CRIER_HTTP_ADDR", "nowhere"),
    ];
    let error = load(&env, ProcessRole::Crier).unwrap_err();
    assert_eq!(error.problems.len(), env.len());
    let text = error.to_string();
    assert!(!text.contains("hush") && !text.contains("hu\nsh"), "{text}");
    for (name, _) in env {
        assert!(text.lines().any(|line| line.starts_with(&format!("crier: {name}: "))), "{text}");
    }
}

/// Such a password is cut at its special character, and the part before it would be taken for the host.
#[test]
fn a_password_is_not_taken_for_a_host() {
    for (name, url) in [
        ("CRIER_DATABASE_URL", "postgres://crier:a@hush/b@db:5432/crier"),
        ("CRIER_DATABASE_URL", "postgres://crier:a@hush#b@db:5432/crier"),
        ("CRIER_DATABASE_URL", "postgres://crier:12?hush@db:5432/crier"),
        ("CRIER_REDIS_URL", "redis://:a@hush#b@cache:6379"),
        ("CRIER_SMTP_URL", "smtp://user:a@hush/b@mail"),
    ] {
        let error = problem_lines(load(&[(name, url)], ProcessRole::Crier));
        let start = format!(
            "{name}: the value has an @ after the host; in the user and the password, write @ as %40, / as %2F, ? as %3F \
             and # as %23; use a value such as "
        );
        assert!(error.starts_with(&start) && !error.contains("hush"), "{error}");
    }
    for (name, url) in [
        ("CRIER_DATABASE_URL", "postgres://crier:a@b@db:5432/crier"),
        ("CRIER_DATABASE_URL", "postgres://crier:a%40hush%2Fb@db:5432/crier"),
        ("CRIER_REDIS_URL", "redis://:a@b@cache:6379/0"),
    ] {
        load(&[(name, url)], ProcessRole::Crier).unwrap();
    }
}

#[test]
fn debug_output_redacts_secrets() {
    let env = [
        ("CRIER_DATABASE_URL", PG),
        ("CRIER_REDIS_URL", REDIS),
        ("CRIER_SECRET_KEY", KEY),
        ("CRIER_SMTP_URL", "smtp://user:hush%2Fsmtp@mail?tls=required"),
        ("CRIER_AI_API_KEY", "hush-ai"),
        ("CRIER_REDDIT_CLIENT_SECRET", "hush-reddit"),
        ("CRIER_OTLP_ENDPOINT", "http://collector:4318"),
        ("CRIER_OTLP_HEADERS", "authorization=hush-otlp"),
        ("CRIER_STORAGE_URL", "s3://bucket/a/b/"),
        ("AWS_ACCESS_KEY_ID", "id"),
        ("AWS_SECRET_ACCESS_KEY", "hush-aws"),
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:9000/"),
    ];
    let config = load(&env, ProcessRole::Crier).unwrap();
    let printed = format!("{config:?}");
    assert!(!printed.contains("hush") && !printed.contains("[0, 1, 2"), "{printed}");
    let smtp = config.mail.smtp.unwrap();
    let (user, password) = smtp.login.unwrap();
    assert_eq!((smtp.host.as_str(), smtp.port, smtp.tls), ("mail", 25, SmtpTls::Required));
    assert_eq!((user.as_str(), password.expose_secret()), ("user", "hush/smtp"));
    let StorageConfig::S3(s3) = config.storage else { panic!("s3:// is S3") };
    assert_eq!((s3.bucket.as_str(), s3.prefix.as_str(), s3.region.as_str()), ("bucket", "a/b", "us-east-1"));
    assert_eq!(s3.endpoint.as_deref(), Some("http://127.0.0.1:9000"));
}

#[test]
fn an_s3_bucket_requires_credentials() {
    assert_eq!(problem_lines(load(&[("CRIER_STORAGE_URL", "s3://bucket"), ("AWS_REGION", "")], ProcessRole::Crier)), "\
AWS_REGION: is not set, and CRIER_STORAGE_URL is s3://…; set it, for example to eu-central-1
AWS_ACCESS_KEY_ID: is not set, and CRIER_STORAGE_URL is s3://…; set it, for example to AKIAIOSFODNN7EXAMPLE
AWS_SECRET_ACCESS_KEY: is not set, and CRIER_STORAGE_URL is s3://…; set it, for example to the secret that was issued with the ID");
    load(&[("AWS_ENDPOINT_URL", "not looked at without s3")], ProcessRole::Crier).unwrap();
}

#[test]
fn keys_are_identified_by_id_and_the_first_encrypts() {
    let one: SecretKeys = KEY.parse().unwrap();
    assert_eq!((one.as_slice()[0].id, one.as_slice()[0].bytes.expose_secret()[31]), (0, 31));
    let other = KEY.replace('A', "B").replace('=', "");
    let two: SecretKeys = format!("7:{other}, {KEY}").parse().unwrap();
    assert_eq!(two.as_slice().iter().map(|key| key.id).collect::<Vec<_>>(), [7, 0]);
    assert_eq!(two.as_slice()[1].bytes.expose_secret(), one.as_slice()[0].bytes.expose_secret());
    let error = |text: &str| text.parse::<SecretKeys>().unwrap_err();
    assert_eq!(error(&format!("{KEY},{other}")), "has two keys with the ID 0");
    assert_eq!(error(&format!("256:{KEY}")), "has an ID that is not 0 to 255 at key 1");
    assert_eq!(error(&format!("1:{KEY},2:AAAA")), "is not 32 bytes in base64 at key 2");
    assert_eq!(error(","), "contains no key");
}

#[test]
fn networks_and_durations_are_parsed_in_every_form() {
    let networks = values::networks("10.1.2.3/8, 127.0.0.1,::1, fd00::/8,").unwrap();
    let networks: Vec<String> = networks.iter().map(ToString::to_string).collect();
    assert_eq!(networks, ["10.0.0.0/8", "127.0.0.1/32", "::1/128", "fd00::/8"]);
    for (text, seconds) in [("500ms", 0.5), ("30s", 30.0), ("15m", 900.0), ("24h", 86_400.0), ("7d", 604_800.0)] {
        assert_eq!(values::duration(text, Duration::ZERO, Duration::MAX).unwrap().as_secs_f64(), seconds);
    }
    for text in ["", "s", "1.5h", "-1s", "1 s", "1y", "99999999999999999999d", "9999999999999999d"] {
        assert!(values::duration(text, Duration::ZERO, Duration::MAX).is_err(), "{text}");
    }
}

#[test]
fn senders_and_mail_servers_are_parsed_in_every_form() {
    let from = |text: &str| load(&[("CRIER_MAIL_FROM", text)], ProcessRole::Crier).map(|config| config.mail.from);
    assert_eq!(from("a@b").unwrap(), Mailbox { name: None, address: "a@b".to_owned() });
    assert_eq!(from("\"Doe, J.\" <j@x.example>").unwrap().name.as_deref(), Some("Doe, J."));
    for text in ["a", "@b", "a@", "a@b@c", "A <a@b", "a@b>", "A <a b@c>"] {
        assert!(from(text).is_err(), "{text}");
    }
    let smtp =
        |text: &str| load(&[("CRIER_SMTP_URL", text)], ProcessRole::Crier).map(|config| config.mail.smtp.unwrap());
    let implicit = smtp("smtps://[::1]?tls=required").unwrap();
    assert_eq!((implicit.host.as_str(), implicit.port, implicit.tls), ("::1", 465, SmtpTls::Implicit));
    assert_eq!(smtp("smtp://mail:2525").unwrap().tls, SmtpTls::IfOffered);
    for text in ["mail:25", "smtp://", "smtp://u@mail", "smtp://:p@mail", "smtp://mail/x", "smtp://mail?tls=maybe"] {
        assert!(smtp(text).is_err(), "{text}");
    }
}

#[test]
fn toml_errors_name_the_line_without_its_content() {
    let text = problem_lines(from_file("http_addr = \"127.0.0.1:1\"\nredis_url = redis://:hush@x\n"));
    assert!(text.starts_with("configuration file: line 2 is not TOML: ") && !text.contains("hush"), "{text}");
    assert_eq!(
        problem_lines(from_file("http_addr = \"127.0.0.1:1\"\nlog = 2026-01-01\n[http]\naddr = \"127.0.0.1:2\"\n")),
        "http_addr (configuration file): is set twice, as a key and in a table; remove one of them\n\
         log (configuration file): must be a string, a number, true, false or a list of strings"
    );
}

#[test]
fn plans_file_errors_are_reported_with_the_others() {
    let source = |text: &'static str| {
        ConfigSource::new([("CRIER_PLANS_FILE", "/plans.toml"), ("CRIER_SANDBOX", "x")], None, [("", ""); 0])
            .with_files(move |path| {
                assert_eq!(path, std::path::Path::new("/plans.toml"));
                if text.is_empty() { Err(std::io::ErrorKind::NotFound.into()) } else { Ok(text.to_owned()) }
            })
    };
    let text = problem_lines(Config::load(&source("[plans.a]\nbrands = \"many\"\n"), ProcessRole::Crier));
    assert!(text.contains("CRIER_SANDBOX: `x`"), "{text}");
    assert!(text.contains("CRIER_PLANS_FILE: /plans.toml: [plans.a] brands must be an integer"), "{text}");
    assert!(
        problem_lines(Config::load(&source(""), ProcessRole::Crier))
            .contains("CRIER_PLANS_FILE: /plans.toml: cannot be read")
    );
}

#[test]
fn the_documented_file_is_valid() {
    let page = include_str!("../../../docs/configuration.md");
    let (_, rest) = page.split_once("```toml\n").unwrap();
    let (file, _) = rest.split_once("```").unwrap();
    let config = from_file(file).unwrap();
    assert!(config.has_public_url && config.http.trusted_proxies.len() == 2);
    assert!(config.platforms[&Platform::Mastodon].no_inbox);
}

#[test]
fn setting_examples_are_valid_and_names_are_unique() {
    let keys = keys::all();
    let names: std::collections::BTreeSet<String> = keys.iter().map(key::Key::variable).collect();
    assert_eq!(names.len(), keys.len());
    // The key's example is not a valid key, so that it is never used as one.
    let env: Vec<(String, String)> = keys
        .iter()
        .filter(|key| key.name != "SECRET_KEY" && key.name != "STORAGE_URL")
        .map(|key| (key.variable(), key.example.to_owned()))
        .collect();
    let source = ConfigSource::new(env, None, [("", ""); 0]).with_files(|_| Ok("[plans.one]".to_owned()));
    let config = Config::load(&source, ProcessRole::Crier).unwrap();
    assert_eq!(config.plans.names().collect::<Vec<_>>(), ["one"]);
}

#[test]
fn help_and_readme_list_every_key() {
    let (help, table) = (keys::help(), keys::markdown_table());
    for key in keys::fixed() {
        assert!(help.contains(&format!("--{} VALUE", key.flag())), "{help}");
        assert!(table.contains(&format!("| `{}` |", key.variable())), "{table}");
    }
    assert!(help.contains("tiktok, google-business, reddit") && help.contains("(X is twitter)"), "{help}");
    assert!(help.contains("--<platform>-client-id") && table.contains("`CRIER_<PLATFORM>_AUTH_URL`"));
}

#[test]
fn backticks_in_the_table_are_not_nested() {
    let table = keys::markdown_table();
    assert!(table.contains(" | the output of `openssl rand -base64 32` |\n"), "{table}");
    assert!(table.contains(" | `https://crier.example.com` |\n"), "{table}");
    for line in table.lines() {
        let code: Vec<&str> = line.split('`').skip(1).step_by(2).collect();
        assert!(code.iter().all(|text| *text == text.trim() && !text.is_empty()), "{line}");
    }
}

#[test]
fn a_separate_process_parses_its_command_line() {
    let parse = |args: &[&str]| Invocation::parse(args.iter().map(Into::into));
    assert_eq!(parse(&["--http-addr=1:1", "--help"]).unwrap(), Invocation::Help);
    assert_eq!(parse(&["-V"]).unwrap(), Invocation::Version);
    let Invocation::Run { config, flags } = parse(&["--config", "a.toml", "--log=a=b", "--drain", "1s"]).unwrap()
    else {
        panic!("runs")
    };
    assert_eq!(config.as_deref(), Some(std::path::Path::new("a.toml")));
    assert_eq!(flags, [("log", "a=b"), ("drain", "1s")].map(|(k, v)| (k.to_owned(), v.to_owned())));
    assert_eq!(
        parse(&["serve", "--log"]).unwrap_err().to_string(),
        "crier: `serve`: is not a flag; flags have the form --key VALUE, and --help lists them\n\
         crier: --log: requires a value"
    );
}
