//! The subcommands and their arguments: what is measured, and how much.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use crier_domain::report::ReportFormat;

use super::replicas::worker::BenchWorker;

#[derive(Subcommand, Debug)]
pub enum BenchCommand {
    /// Measure the job engine. Takes three minutes.
    #[command(
        after_help = concat!(
            "Examples:\n",
            "  crier-bench jobs\n",
            "  crier-bench jobs --only pickup,throughput --dir /var/lib/crier\n",
            "  crier-bench jobs --only publish --posts 50000 --slots 128 --json",
        )
    )]
    Jobs(BenchJobs),
    /// Measure webhooks, from the request to the endpoint. Takes ten minutes.
    #[command(
        after_help = concat!(
            "A message through the API is a created brand. After every 900 brands, the clients continue in another \
             workspace.\n\n",
            "Examples:\n",
            "  crier-bench webhooks\n",
            "  crier-bench webhooks --only throughput,backlog --messages 5000\n",
            "  crier-bench webhooks --only isolation --seconds 90 --rounds 5 --json",
        )
    )]
    Webhooks(BenchWebhooks),
    /// Measure uploads, thumbnails, memory of the library, and posts with videos. Takes two minutes.
    #[command(
        after_help = concat!(
            "The files are in the system's temporary directory, where videos need twice their size.\n\n",
            "Examples:\n",
            "  crier-bench media\n",
            "  crier-bench media --only uploads --megapixels 24\n",
            "  crier-bench media --only memory --concurrency 50 --media-memory-mib 128 --json\n",
            "  crier-bench media --only videos,video-posts --videos 4 --video-mib 256",
        )
    )]
    Media(BenchMedia),
    /// Measure link-in-bio pages. Takes some minutes.
    #[command(
        after_help = concat!(
            "Examples:\n",
            "  crier-bench pages\n",
            "  crier-bench pages --only page,unchanged --requests 1000000\n",
            "  crier-bench pages --only first --pages 5000 --json",
        )
    )]
    Pages(BenchPages),
    /// Measure lists and searches of a very large inbox. Takes some minutes, most of them to fill it.
    #[command(
        after_help = concat!(
            "Examples:\n",
            "  crier-bench inbox\n",
            "  crier-bench inbox --conversations 10000 --messages 100000",
        )
    )]
    Inbox(BenchInbox),
    /// Measure lists and searches of a brand with very many posts. Takes ten minutes.
    #[command(
        after_help = concat!(
            "On Postgres, each list is measured twice: before the first ANALYZE of the tables, as after an import, and \
             after it. The goal is a p95 below 50 ms.\n\n",
            "Examples:\n",
            "  crier-bench posts\n",
            "  crier-bench posts --posts 10000 --repeat 200 --json",
        )
    )]
    Posts(BenchPosts),
    /// Measure the analytics of a brand with many posts. Takes a minute.
    #[command(
        after_help = concat!(
            "Examples:\n",
            "  crier-bench analytics\n",
            "  crier-bench analytics --posts 50000",
        )
    )]
    Analytics(BenchAnalytics),
    /// Measure the scheduler with many recurring posts. Takes two minutes.
    #[command(
        after_help = concat!(
            "The work per day is that of the ticks of a day, in which each rule is due once. The goal is less than 72 \
             minutes, 5 % of a core.\n\n",
            "Examples:\n",
            "  crier-bench recurring\n",
            "  crier-bench recurring --brands 100 --rules 50",
        )
    )]
    Recurring(BenchRecurring),
    /// Measure the time and memory of each report format. Takes some seconds.
    #[command(
        after_help = concat!(
            "Examples:\n",
            "  crier-bench reports\n",
            "  crier-bench reports --posts 10000 --only pdf --json",
        )
    )]
    Reports(BenchReports),
    /// Measure the export of a brand's posts. Takes two minutes.
    #[command(
        after_help = concat!(
            "Examples:\n",
            "  crier-bench export\n",
            "  crier-bench export --posts 20000 --json",
        )
    )]
    Export(BenchExport),
    /// Count the database statements of requests and jobs. Takes some seconds.
    #[command(
        after_help = concat!(
            "The counts of statements and transactions are the same on every machine. The bytes written on Postgres \
             include other writes on the same server.\n\n",
            "Examples:\n",
            "  crier-bench cost\n",
            "  crier-bench cost --only publish,publish-many --repeat 50 --json",
        )
    )]
    Cost(BenchCost),
    /// Measure how many posts the API creates. Takes two minutes.
    #[command(
        after_help = concat!(
            "Examples:\n",
            "  crier-bench requests\n",
            "  crier-bench requests --only draft --seconds 30 --warm-up 5 --json",
        )
    )]
    Requests(BenchRequests),
    /// Compare several worker processes with one. Takes ten minutes.
    #[command(
        after_help = concat!(
            "Requires Postgres and Redis.\n\n",
            "Examples:\n",
            "  crier-bench replicas --database-url postgres://crier:password@localhost/crier \
             --redis-url redis://localhost\n",
            "  crier-bench replicas --only deliveries --pending 5000 --workers 1,8 --json",
        )
    )]
    Replicas(BenchReplicas),
    /// Run one worker of `replicas`, which starts it.
    #[command(hide = true)]
    Worker(BenchWorker),
}

/// Arguments of all subcommands.
#[derive(Args, Debug, Clone)]
pub struct BenchOptions {
    /// The directory for the SQLite file; the speed of its disk matters. Default: the system's temporary directory.
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// The number of jobs that the worker runs concurrently. The throughput of jobs has its own numbers.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1_024))]
    pub slots: u16,
    /// Print JSON: an array of objects.
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug, Clone)]
pub struct BenchJobs {
    /// The measurements: memory, throughput, pickup, lateness, dispatch, publish. Default: all.
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    pub only: Vec<JobMeasurement>,
    /// The number of jobs at each point of throughput, pickup, lateness and memory. Default: as many as it needs.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub jobs: Option<u32>,
    /// The number of scheduled jobs in the large table of dispatch.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1_000..=100_000_000))]
    pub rows: u32,
    /// The number of posts that become due together in publish.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub posts: u32,
    #[command(flatten)]
    pub options: BenchOptions,
}

crier_base::text_enum! {
    /// The measurements of `crier-bench jobs`, in their order. Memory is first, while the process has used little.
    pub enum JobMeasurement {
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
    /// The measurements: memory, throughput, backlog, latency, isolation. Default: all.
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    pub only: Vec<WebhookMeasurement>,
    /// The numbers of endpoints that receive each message in throughput and backlog; each is a point.
    #[arg(long, value_delimiter = ',', value_name = "N,…", default_values_t = [1, 10, 1_000],
        value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub endpoints: Vec<u32>,
    /// The number of messages to one endpoint in throughput and backlog; proportionally fewer to several.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub messages: u32,
    /// The number of pending deliveries in memory. In isolation, a tenth of it is pending for the bad endpoint.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    pub pending: u32,
    /// The duration of latency, and of each case of isolation, in seconds, all rounds together.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=3_600))]
    pub seconds: u32,
    /// The number of rounds of isolation; each measures without and with the bad endpoint.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// The maximum time that an endpoint is bad before isolation measures, in seconds; the timeout of a delivery is 25.
    #[arg(long, default_value_t = 35, value_parser = clap::value_parser!(u32).range(0..=600))]
    pub warm_up: u32,
    /// The address of a peer to measure in place of Crier; see bench/webhooks/peer.mjs.
    #[arg(long, hide = true)]
    pub peer: Option<std::net::SocketAddr>,
    #[command(flatten)]
    pub options: BenchOptions,
}

crier_base::text_enum! {
    /// The measurements of `crier-bench webhooks`, in their order.
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
    /// The measurements: memory, uploads, thumbnails, videos, video-posts. Default: all.
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    pub only: Vec<MediaMeasurement>,
    /// The size of the photographs in uploads and thumbnails, in megapixels.
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub megapixels: u32,
    /// The number of photographs that each point uploads, and of thumbnails.
    #[arg(long, default_value_t = 48, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub images: u32,
    /// The number of large files that memory uploads concurrently.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub concurrency: u32,
    /// The size of the large files, in megapixels; 36 are about 24 MiB.
    #[arg(long, default_value_t = 36, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub large: u32,
    /// The number of videos that are uploaded or published at the same time.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub videos: u32,
    /// The size of each video, in MiB. The disk needs twice the size of all videos.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_024))]
    pub video_mib: u32,
    /// The address of a peer to measure in place of Crier; see bench/media/peer.mjs.
    #[arg(long, hide = true)]
    pub peer: Option<std::net::SocketAddr>,
    #[command(flatten)]
    pub options: BenchOptions,
}

crier_base::text_enum! {
    /// The measurements of `crier-bench media`, in their order.
    pub enum MediaMeasurement {
        Memory = "memory",
        Uploads = "uploads",
        Thumbnails = "thumbnails",
        Videos = "videos",
        VideoPosts = "video-posts",
    }
}

#[derive(Args, Debug, Clone)]
pub struct BenchInbox {
    /// The number of conversations of the brand.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub conversations: u32,
    /// The total number of messages.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    pub messages: u32,
    /// The number of reads of each list.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub repeat: u32,
    #[command(flatten)]
    pub options: BenchOptions,
}

crier_base::text_enum! {
    /// The measurements of `crier-bench inbox`.
    pub enum InboxMeasurement { Lists = "lists" }
}

#[derive(Args, Debug, Clone)]
pub struct BenchPosts {
    /// The number of posts of the brand. Other brands of the workspace have as many together.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub posts: u32,
    /// The number of reads of each list. A slow one is read fewer times.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub repeat: u32,
    #[command(flatten)]
    pub options: BenchOptions,
}

#[derive(Args, Debug, Clone)]
pub struct BenchAnalytics {
    /// The number of posts that the brand published within a year.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub posts: u32,
    /// The number of reads of each series.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub repeat: u32,
    #[command(flatten)]
    pub options: BenchOptions,
}

crier_base::text_enum! {
    /// The measurements of `crier-bench analytics`.
    pub enum AnalyticsMeasurement { Series = "series" }
}

#[derive(Args, Debug, Clone)]
pub struct BenchRecurring {
    /// The number of brands. A tenth of them is measured too.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub brands: u32,
    /// The number of recurring posts of each brand.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=50))]
    pub rules: u32,
    /// The number of slots in the queue of each brand.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=168))]
    pub weekly_slots: u32,
    /// The number of ticks with nothing due.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub repeat: u32,
    #[command(flatten)]
    pub options: BenchOptions,
}

crier_base::text_enum! {
    /// The measurements of `crier-bench recurring`.
    pub enum RecurringMeasurement { Scheduler = "scheduler" }
}

#[derive(Args, Debug, Clone)]
pub struct BenchReports {
    /// The formats: pdf, csv, json, pptx, xlsx. Default: all.
    #[arg(long, value_delimiter = ',', value_name = "FORMAT,…")]
    pub only: Vec<ReportFormat>,
    /// The numbers of posts in a report; each is a point.
    #[arg(long, value_delimiter = ',', default_values_t = [100, 1_000, 10_000], value_name = "N,…")]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pub posts: Vec<u32>,
    #[command(flatten)]
    pub options: BenchOptions,
}

#[derive(Args, Debug, Clone)]
pub struct BenchExport {
    /// The number of posts of the brand.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub posts: u32,
    #[command(flatten)]
    pub options: BenchOptions,
}

#[derive(Args, Debug, Clone)]
pub struct BenchCost {
    /// The operations: brand, posts, create-brand, draft, schedule, publish, publish-many, deliver, deliver-many.
    /// Default: all.
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    pub only: Vec<CostMeasurement>,
    /// The number of runs of each operation, one after the other.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub repeat: u32,
    /// The number of concurrent runs in publish-many and deliver-many.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=2_000))]
    pub concurrency: u32,
    #[command(flatten)]
    pub options: BenchOptions,
}

crier_base::text_enum! {
    /// The operations of `crier-bench cost`, in their order.
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
    /// The measurements: page, unchanged, first, counted. Default: all.
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    pub only: Vec<PagesMeasurement>,
    /// The number of requests at each point of page, unchanged and counted.
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    pub requests: u32,
    /// The number of pages whose first view is measured in first.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub pages: u32,
    /// The file to write the response with the page to, for a peer.
    #[arg(long, hide = true)]
    pub page_to: Option<PathBuf>,
    /// The address of a peer to measure in place of Crier; see bench/pages/peer.mjs.
    #[arg(long, hide = true)]
    pub peer: Option<std::net::SocketAddr>,
    #[command(flatten)]
    pub options: BenchOptions,
}

crier_base::text_enum! {
    /// The measurements of `crier-bench pages`, in their order.
    pub enum PagesMeasurement { Page = "page", Unchanged = "unchanged", First = "first", Counted = "counted" }
}

#[derive(Args, Debug, Clone)]
pub struct BenchRequests {
    /// The kinds of posts: draft, scheduled. Default: all.
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    pub only: Vec<RequestMeasurement>,
    /// The duration of each point, in seconds.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=3_600))]
    pub seconds: u32,
    /// The duration of the same requests before each point, in seconds.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(0..=600))]
    pub warm_up: u32,
    #[command(flatten)]
    pub options: BenchOptions,
}

crier_base::text_enum! {
    /// The kinds of posts that `crier-bench requests` creates, in their order.
    pub enum RequestMeasurement { Draft = "draft", Scheduled = "scheduled" }
}

#[derive(Args, Debug, Clone)]
pub struct BenchReplicas {
    /// The measurements: deliveries, publishes. Default: all.
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    pub only: Vec<ReplicasMeasurement>,
    /// The numbers of worker processes; each is a point.
    #[arg(long, value_delimiter = ',', value_name = "N,…", default_values_t = [1, 2, 4],
        value_parser = clap::value_parser!(u32).range(1..=64))]
    pub workers: Vec<u32>,
    /// The numbers of endpoints, and of accounts, that the jobs are for; each is a point.
    #[arg(long, value_delimiter = ',', value_name = "N,…", default_values_t = [1, 200],
        value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub lanes: Vec<u32>,
    /// The number of pending deliveries. Use many: the first ones are delivered before all workers run.
    #[arg(long, default_value_t = 60_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub pending: u32,
    /// The number of due posts in publishes.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub posts: u32,
    #[command(flatten)]
    pub options: BenchOptions,
}

crier_base::text_enum! {
    /// The measurements of `crier-bench replicas`, in their order.
    pub enum ReplicasMeasurement { Deliveries = "deliveries", Publishes = "publishes" }
}
