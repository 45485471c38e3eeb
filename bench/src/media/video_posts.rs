//! Posts with videos, published at the same time on accounts of a local server that reads all bytes. The API, the
//! worker and the server are in this process.

use std::time::{Duration, Instant};

use crier_domain::job::JobKind;
use http::header::AUTHORIZATION;
use http::{Request, StatusCode};
use secrecy::ExposeSecret as _;
use serde_json::json;

use super::super::connection::Connection;
use super::super::environment::BenchEnvironment;
use super::super::figure::Figure;
use super::super::roles::{self, BenchRoles};
use super::super::service::Service;
use super::super::{BenchError, Figures, Result as BenchResult, fail, resident};
use super::Bench;
use super::fake_platform::FakePlatform;
use super::video::Videos;
use super::video_client;

const NAME: &str = "video-posts";
const KIND: JobKind = JobKind::PublishTarget;

pub async fn run(bench: &Bench) -> Figures {
    let videos = Videos::new(bench.args.videos, bench.args.video_mib);
    let service = Service::start(bench, None).await?;
    let Some(environment) = bench.environment.lock().await.clone() else {
        return fail("there is no environment");
    };
    bench.show_progress(format_args!("{NAME}: uploading {} videos", videos.count));
    let uploads = video_client::upload(&service, &videos).await?;
    let platform = FakePlatform::start().await?;
    // An account publishes only a few posts at the same time, so each post has its own.
    let accounts = platform.create_accounts(environment.api(), &service, videos.count).await?;
    bench.show_progress(format_args!("{NAME}: publishing {} videos", videos.count));
    let before = resident::now();
    resident::reset_peak();
    let took = publish(bench, &environment, &service, &uploads.ids, &accounts).await?;
    let peak = resident::peak();
    service.stop().await;
    platform.check(videos.count, videos.size() * u64::from(videos.count))?;

    let count = videos.count;
    let kilobytes = usize::try_from(videos.size() * u64::from(count) / 1_000).unwrap_or(usize::MAX);
    let mut figures = Vec::new();
    figures.extend(Figure::size(NAME, "a video", Some(videos.size())));
    figures.extend(Figure::size(NAME, "before", before));
    figures.extend(Figure::size(NAME, format!("{count} posts together, peak"), peak));
    figures.push(Figure::time(NAME, format!("{count} posts together, all published after"), took));
    figures.push(Figure::rate(NAME, format!("{count} posts together, bytes"), "kB/s", kilobytes, took));
    Ok(figures)
}

/// Publishes each video on an account. Returns the time from the first request until no job is left.
async fn publish(
    bench: &Bench,
    environment: &BenchEnvironment,
    service: &Service,
    videos: &[i64],
    accounts: &[i64],
) -> Result<Duration, BenchError> {
    let job = roles::job(&bench.config, environment, KIND)?;
    let roles = BenchRoles::start(environment, KIND, job, bench.slots())?;
    let mut connection = Connection::open(service.address).await?;
    let began = Instant::now();
    for (video, account) in videos.iter().zip(accounts) {
        post(&mut connection, service, *video, *account).await?;
    }
    roles::wait_until_settled(environment.api(), KIND).await?;
    let took = began.elapsed();
    roles.stop().await;
    Ok(took)
}

async fn post(connection: &mut Connection, service: &Service, video: i64, account: i64) -> BenchResult {
    let body = json!({
        "content": "Fresh bread from seven o'clock, as every morning.", "media": [video], "schedule_type": "now",
        "accounts": [account],
    });
    let request = Request::post(format!("/api/public/v1/brands/{}/posts", service.brand))
        .header(AUTHORIZATION, format!("Bearer {}", service.key.expose_secret()))
        .header("Idempotency-Key", format!("{:016x}", crier_base::random::u64()));
    match connection.send_json(request, &body).await? {
        (StatusCode::CREATED, _) => Ok(()),
        (status, response) => fail(format!("the API answered {status}: {}", String::from_utf8_lossy(&response))),
    }
}
