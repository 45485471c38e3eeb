//! The cost of counting: counted visits compared with visits of bots, which are not counted. The measurement fails unless
//! the database contains each view once at the end.

use std::time::{Duration, Instant};

use super::super::connection::Connection;
use super::super::figure::Figure;
use super::super::service::Service;
use super::super::{Figures, fail};
use super::client::{self, VisitRequest};
use super::{Bench, site};

const NAME: &str = "counted";
const CLIENTS: u32 = 32;
/// Time limit for the last counts, which are written every three seconds.
const COUNT_TIMEOUT: Duration = Duration::from_secs(15);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

pub async fn run(bench: &Bench) -> Figures {
    let service = Service::start(bench, None).await?;
    let mut connection = Connection::open(service.address).await?;
    let path = site::create(&mut connection, &service, site::SLUG).await?;
    let mut figures = Vec::new();
    for (what, is_bot) in [("bots, not counted", true), ("visitors", false)] {
        bench.show_progress(format_args!("{NAME}, {what}"));
        let visit = VisitRequest { is_bot, ..VisitRequest::of(site::PAGE) };
        let visits = client::visit_concurrently(service.address, &visit, bench.args.requests, CLIENTS).await?;
        figures.push(Figure::rate(NAME, what, "requests/s", visits.times.len(), visits.took));
    }
    let (ended, sent) = (Instant::now(), u64::from(bench.args.requests));
    loop {
        match site::views(&mut connection, &service, &path).await? {
            views if views == sent => break,
            views if views > sent || ended.elapsed() > COUNT_TIMEOUT => {
                return fail(format!("{views} views were counted of {sent} visits"));
            }
            _ => tokio::time::sleep(POLL_INTERVAL).await,
        }
    }
    figures.push(Figure::time(NAME, "all of them in the database after", ended.elapsed()));
    service.stop().await;
    Ok(figures)
}
