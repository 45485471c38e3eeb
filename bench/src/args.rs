//! `crier bench …`: what is measured, and how much of it.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use crier_domain::report::ReportFormat;

use super::replicas::worker::BenchWorker;

#[derive(Subcommand, Debug)]
pub enum BenchCommand {
    /// Measure the job engine: some three minutes.
    #[command(
        after_help = concat!(
            "Where: on SQLite and the queue inside the process; where CRIER_DATABASE_URL is Postgres and \
             CRIER_REDIS_URL is set, on a new database of that server (the user needs the right to create one) and \
             under keys of its own.\n\n",
            "Examples:\n",
            "  crier bench jobs\n",
            "  crier bench jobs --only pickup,throughput --dir /var/lib/crier\n",
            "  crier bench jobs --only publish --posts 50000 --slots 128 --json\n",
            "  crier bench jobs --database-url postgres://crier:password@localhost/crier --redis-url redis://localhost",
        )
    )]
    Jobs(BenchJobs),
    /// Measure webhooks, from the request to the endpoint: some ten minutes.
    #[command(
        after_help = concat!(
            "Where: as for `crier bench jobs`. Clients, API, worker, scheduler and endpoints are all on this machine \
             and share its processors.\n\n",
            "Examples:\n",
            "  crier bench webhooks\n",
            "  crier bench webhooks --only throughput,backlog --messages 5000\n",
            "  crier bench webhooks --only isolation --seconds 90 --rounds 5 --json",
        )
    )]
    Webhooks(BenchWebhooks),
    /// Measure uploads, thumbnails and memory of the media library: some two minutes.
    #[command(
        after_help = concat!(
            "Where: as for `crier bench jobs`; the files are in the directory for temporary files.\n\n",
            "Examples:\n",
            "  crier bench media\n",
            "  crier bench media --only uploads --megapixels 24\n",
            "  crier bench media --only memory --at-once 50 --media-memory-mib 128 --json",
        )
    )]
    Media(BenchMedia),
    /// Measure link-in-bio pages as visitors see them: some minutes.
    #[command(
        after_help = concat!(
            "Where: as for `crier bench jobs`. Clients and API are on this machine and share its processors.\n\n",
            "Examples:\n",
            "  crier bench pages\n",
            "  crier bench pages --only page,unchanged --requests 1000000\n",
            "  crier bench pages --only first --pages 5000 --json",
        )
    )]
    Pages(BenchPages),
    /// Measure lists and searches of a very large inbox: some minutes, most of them to fill it.
    #[command(
        after_help = concat!(
            "Where: as for `crier bench jobs`.\n\n",
            "Examples:\n",
            "  crier bench inbox\n",
            "  crier bench inbox --conversations 10000 --messages 100000",
        )
    )]
    Inbox(BenchInbox),
    /// Measure the analytics of a brand with many posts: a minute.
    #[command(
        after_help = concat!(
            "Where: as for `crier bench jobs`.\n\n",
            "Examples:\n",
            "  crier bench analytics\n",
            "  crier bench analytics --posts 50000",
        )
    )]
    Analytics(BenchAnalytics),
    /// Measure the time and memory of each format of a report: some seconds.
    #[command(
        after_help = concat!(
            "Examples:\n",
            "  crier bench reports\n",
            "  crier bench reports --posts 10000 --only pdf --json",
        )
    )]
    Reports(BenchReports),
    /// Count what requests and jobs ask of the database; the same on every machine. Some seconds.
    #[command(
        after_help = concat!(
            "Where: as for `crier bench jobs`. Other writes on the same Postgres server are counted in its bytes.\n\n",
            "Examples:\n",
            "  crier bench cost\n",
            "  crier bench cost --only publish,publish-many --repeat 50 --json",
        )
    )]
    Cost(BenchCost),
    /// Measure how many posts the API creates: some two minutes.
    #[command(
        after_help = concat!(
            "Where: as for `crier bench jobs`. Clients and API are on this machine and share its processors.\n\n",
            "Examples:\n",
            "  crier bench requests\n",
            "  crier bench requests --only draft --seconds 30 --warm-up 5 --json",
        )
    )]
    Requests(BenchRequests),
    /// Measure how many more jobs several worker processes run: some ten minutes.
    #[command(
        after_help = concat!(
            "Where: on Postgres and Redis alone, as for `crier bench jobs`. Workers, scheduler, endpoints and servers \
             share the processors of the machines they are on.\n\n",
            "Examples:\n",
            "  crier bench replicas --database-url postgres://crier:password@localhost/crier \
             --redis-url redis://localhost\n",
            "  crier bench replicas --only deliveries --pending 5000 --workers 1,8 --json",
        )
    )]
    Replicas(BenchReplicas),
    /// Run one worker of `crier bench replicas`, which starts it.
    #[command(hide = true)]
    Worker(BenchWorker),
}

/// Where all of `crier bench` takes place, and how it is printed.
#[derive(Args, Debug, Clone)]
pub struct BenchOptions {
    /// Where the SQLite file goes: the disk decides much [default: the directory for temporary files].
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// How many jobs the worker runs at once (but in the throughput of jobs).
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1_024))]
    pub slots: u16,
    /// Print JSON: an array of objects.
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug, Clone)]
pub struct BenchJobs {
    /// Some of: memory, throughput, pickup, lateness, dispatch, publish [default: all].
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    pub only: Vec<Measurement>,
    /// How many jobs each point of throughput, pickup, lateness and memory takes [default: as many as it needs].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub jobs: Option<u32>,
    /// How many scheduled rows the large table of dispatch has.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1_000..=100_000_000))]
    pub rows: u32,
    /// How many posts come due together in publish.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub posts: u32,
    #[command(flatten)]
    pub options: BenchOptions,
}

crier_base::text_enum! {
    /// What `crier bench jobs` measures, in the order in which it does: the memory while little was used of it yet.
    pub enum Measurement {
        Memory = "memory",
        Throughput = "throughput",
        Pickup = "pickup",
        Lateness = "lateness",
        Dispatch = "dispatch",
        Publish = "publish",
    }
}

#[derive(Args, Debug, Clone)]
pub struct BenchWebhooks {
    /// Some of: memory, throughput, backlog, latency, isolation [default: all].
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    pub only: Vec<WebhookMeasurement>,
    /// How many endpoints receive each message in throughput and backlog, one point after the other.
    #[arg(long, value_delimiter = ',', value_name = "N,…", default_values_t = [1, 10, 1_000],
        value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub endpoints: Vec<u32>,
    /// How many messages go to one endpoint in throughput and backlog; to more, so many fewer.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub messages: u32,
    /// How many deliveries are pending in memory; a tenth of them waits for the bad endpoint in isolation.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    pub pending: u32,
    /// How long latency is measured, and isolation alone and beside each bad endpoint, all rounds together.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=3_600))]
    pub seconds: u32,
    /// How often isolation measures alone and beside, in turns.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// How many seconds an endpoint is bad before isolation measures beside it, at most; more than a time-out of 25 s.
    #[arg(long, default_value_t = 35, value_parser = clap::value_parser!(u32).range(0..=600))]
    pub warm_up: u32,
    /// Measure throughput and latency of what listens there in place of Crier: see bench/webhooks/peer.mjs.
    #[arg(long, hide = true)]
    pub peer: Option<std::net::SocketAddr>,
    #[command(flatten)]
    pub options: BenchOptions,
}

crier_base::text_enum! {
    /// What `crier bench webhooks` measures, in the order in which it does.
    pub enum WebhookMeasurement {
        Memory = "memory",
        Throughput = "throughput",
        Backlog = "backlog",
        Latency = "latency",
        Isolation = "isolation",
    }
}

#[derive(Args, Debug, Clone)]
pub struct BenchMedia {
    /// Some of: memory, uploads, thumbnails [default: all].
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    pub only: Vec<MediaMeasurement>,
    /// How large the photographs of uploads and thumbnails are, in megapixels.
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub megapixels: u32,
    /// How many photographs are uploaded at each point, and how many thumbnails are made.
    #[arg(long, default_value_t = 48, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub pictures: u32,
    /// How many large files are uploaded at once in memory.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub at_once: u32,
    /// How large these are, in megapixels; at 36, some 24 MiB.
    #[arg(long, default_value_t = 36, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub large: u32,
    /// Measure uploads and thumbnails of what listens there in place of Crier: see bench/media/peer.mjs.
    #[arg(long, hide = true)]
    pub peer: Option<std::net::SocketAddr>,
    #[command(flatten)]
    pub options: BenchOptions,
}

crier_base::text_enum! {
    /// What `crier bench media` measures, in the order in which it does.
    pub enum MediaMeasurement { Memory = "memory", Uploads = "uploads", Thumbnails = "thumbnails" }
}

#[derive(Args, Debug, Clone)]
pub struct BenchInbox {
    /// How many conversations the brand has.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub conversations: u32,
    /// How many messages they have together.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    pub messages: u32,
    /// How often each list is read.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub repeat: u32,
    #[command(flatten)]
    pub options: BenchOptions,
}

crier_base::text_enum! {
    /// What `crier bench inbox` measures.
    pub enum InboxMeasurement { Lists = "lists" }
}

#[derive(Args, Debug, Clone)]
pub struct BenchAnalytics {
    /// How many posts the brand published within a year.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub posts: u32,
    /// How often each series is read.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub repeat: u32,
    #[command(flatten)]
    pub options: BenchOptions,
}

crier_base::text_enum! {
    /// What `crier bench analytics` measures.
    pub enum AnalyticsMeasurement { Series = "series" }
}

#[derive(Args, Debug, Clone)]
pub struct BenchReports {
    /// Some of: pdf, csv, json, pptx, xlsx [default: all].
    #[arg(long, value_delimiter = ',', value_name = "FORMAT,…")]
    pub only: Vec<ReportFormat>,
    /// How many posts the reports have.
    #[arg(long, value_delimiter = ',', default_values_t = [100, 1_000, 10_000], value_name = "N,…")]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pub posts: Vec<u32>,
    #[command(flatten)]
    pub options: BenchOptions,
}

#[derive(Args, Debug, Clone)]
pub struct BenchCost {
    /// Some of: brand, posts, create-brand, draft, schedule, publish, publish-many, deliver, deliver-many [default: all].
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    pub only: Vec<CostMeasurement>,
    /// How often each operation is done, one after the other.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub repeat: u32,
    /// How many are done at once in publish-many and deliver-many.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=2_000))]
    pub at_once: u32,
    #[command(flatten)]
    pub options: BenchOptions,
}

crier_base::text_enum! {
    /// The operations that `crier bench cost` counts.
    pub enum CostMeasurement {
        Brand = "brand",
        Posts = "posts",
        CreateBrand = "create-brand",
        Draft = "draft",
        Schedule = "schedule",
        Publish = "publish",
        PublishMany = "publish-many",
        Deliver = "deliver",
        DeliverMany = "deliver-many",
    }
}

#[derive(Args, Debug, Clone)]
pub struct BenchPages {
    /// Some of: page, unchanged, first, counted [default: all].
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    pub only: Vec<PagesMeasurement>,
    /// How many requests are sent at each point of page, unchanged and counted.
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    pub requests: u32,
    /// How many pages are seen for the first time in first.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub pages: u32,
    /// Write the page that is measured to this file, as it is answered: for a peer.
    #[arg(long, hide = true)]
    pub page_to: Option<PathBuf>,
    /// Measure page and unchanged of what listens there in place of Crier: see bench/pages/peer.mjs.
    #[arg(long, hide = true)]
    pub peer: Option<std::net::SocketAddr>,
    #[command(flatten)]
    pub options: BenchOptions,
}

crier_base::text_enum! {
    /// What `crier bench pages` measures, in the order in which it does.
    pub enum PagesMeasurement { Page = "page", Unchanged = "unchanged", First = "first", Counted = "counted" }
}

#[derive(Args, Debug, Clone)]
pub struct BenchRequests {
    /// Some of: draft, scheduled [default: all].
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    pub only: Vec<RequestMeasurement>,
    /// How long each point is measured.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=3_600))]
    pub seconds: u32,
    /// How many seconds before that the same requests are sent.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(0..=600))]
    pub warm_up: u32,
    #[command(flatten)]
    pub options: BenchOptions,
}

crier_base::text_enum! {
    /// The posts that `crier bench requests` creates, in the order in which it does.
    pub enum RequestMeasurement { Draft = "draft", Scheduled = "scheduled" }
}

#[derive(Args, Debug, Clone)]
pub struct BenchReplicas {
    /// Some of: deliveries, publishes [default: all].
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    pub only: Vec<ReplicasMeasurement>,
    /// How many worker processes there are, one point after the other.
    #[arg(long, value_delimiter = ',', value_name = "N,…", default_values_t = [1, 2, 4],
        value_parser = clap::value_parser!(u32).range(1..=64))]
    pub workers: Vec<u32>,
    /// How many endpoints, and how many accounts, the work is for, one point after the other.
    #[arg(long, value_delimiter = ',', value_name = "N,…", default_values_t = [1, 200],
        value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub lanes: Vec<u32>,
    /// How many webhooks are pending in deliveries; few of them are delivered before all workers are up to speed.
    #[arg(long, default_value_t = 60_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub pending: u32,
    /// How many posts are due in publishes.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub posts: u32,
    #[command(flatten)]
    pub options: BenchOptions,
}

crier_base::text_enum! {
    /// What `crier bench replicas` measures, in the order in which it does.
    pub enum ReplicasMeasurement { Deliveries = "deliveries", Publishes = "publishes" }
}
