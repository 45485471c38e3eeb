//! Posts that become due in the same second, published on the sandbox by the real handler.

use std::time::Instant;

use crier_domain::job::JobKind;

use super::super::due_posts::DuePosts;
use super::super::figure::Figure;
use super::super::roles;
use super::starts::{self, Starts};
use super::{Bench, Figures, resident};

const NAME: &str = "publish";
const ACCOUNTS: usize = 100;

pub async fn run(bench: &Bench) -> Figures {
    let environment = bench.create_environment().await?;
    let count = usize::try_from(bench.args.posts).unwrap_or(usize::MAX);
    bench.show_progress(format_args!("publish: writing {count} posts"));
    let first = DuePosts { posts: count, accounts: ACCOUNTS, in_workspace: false }.write(&environment).await?;
    bench.show_progress(format_args!("publish: {count} posts"));
    resident::reset_peak();
    // All posts are due when the scheduler starts.
    let (due, began) = (environment.api().now(), Instant::now());
    let starts = Starts::new(first, count, due);
    let roles = starts::roles(bench, &environment, JobKind::PublishTarget, bench.slots(), &starts)?;
    starts.wait(count).await?;
    let started = began.elapsed();
    roles::wait_until_settled(environment.api(), JobKind::PublishTarget).await?;
    let ended = began.elapsed();
    let peak = resident::peak();
    roles.stop().await;
    let mut figures = vec![
        Figure::time(NAME, format!("{count} posts, all begun after"), started),
        Figure::time(NAME, format!("{count} posts, all ended after"), ended),
        Figure::rate(NAME, "rate", "posts/s", count, ended),
    ];
    figures.extend(Figure::spread(NAME, "lateness", starts.delays_after(due)));
    figures.extend(Figure::size(NAME, "memory, peak", peak));
    Ok(figures)
}
