//! `crier-bench replicas`, whose workers are separate processes.

use std::path::Path;
use std::process::Command;

use sqlx::{Connection as _, PgConnection};

use super::{MACHINE, Names, add, as_own_role, assert_no_leftovers, end, split, start};
use crate::support::client::until;
use crate::support::{databases, servers};

#[rustfmt::skip]
const TINY: &[&str] =
    &["replicas", "--pending", "20", "--posts", "20", "--lanes", "1,5", "--workers", "1,2", "--json"];

/// All figures, in the order of the output.
fn expected() -> Names {
    let mut all = Vec::new();
    add(&mut all, "machine", MACHINE);
    for (measurement, lanes) in
        [("deliveries", ["1 endpoint", "5 endpoints"]), ("publishes", ["1 account", "5 accounts"])]
    {
        for lane in lanes {
            let figures = ["1 worker", "2 workers", "2 workers / 1 worker"].map(|which| format!("{lane}, {which}"));
            add(&mut all, measurement, &figures.each_ref().map(String::as_str));
        }
    }
    all
}

#[tokio::test]
async fn split_replicas_report_every_figure_and_clean_up() {
    split(TINY, &expected(), &["replicas", "--only", "deliveries"]).await;
}

#[tokio::test]
async fn interrupted_replicas_leave_no_worker_process() {
    let installation = databases::postgres().await;
    let url = as_own_role(&installation.url).await;
    let redis = servers::redis().await;
    let mut server = PgConnection::connect(&url).await.expect("a database");
    let env = [("CRIER_DATABASE_URL", url.as_str()), ("CRIER_REDIS_URL", redis.as_str())];
    let dir = tempfile::tempdir().expect("a directory");
    let long = ["replicas", "--only", "deliveries", "--pending", "2000", "--lanes", "1,200,1,200", "--workers", "3"];

    let child = start(dir.path(), &long, &env);
    let workers =
        until("three workers", || async { Some(children(child.id())).filter(|found| found.len() == 3) }).await;
    let status = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill runs");
    assert!(status.success());
    let (done, _, stderr) = end(child).await;
    assert!(!done && stderr.ends_with("crier: interrupted\n"), "{stderr}");
    let left: Vec<_> = workers.iter().filter(|id| Path::new(&format!("/proc/{id}")).exists()).collect();
    assert!(left.is_empty(), "{left:?}");
    assert_no_leftovers(&mut server, &redis).await;
}

#[tokio::test]
async fn replicas_are_rejected_on_sqlite() {
    let dir = tempfile::tempdir().expect("a directory");
    for args in [["replicas", "--dir", "."].as_slice(), &["worker", "--kind", "noop", "--slots", "1"]] {
        let (done, stdout, stderr) = end(start(dir.path(), args, &[])).await;
        assert!(!done && stdout.is_empty(), "{stdout}");
        let words = ["CRIER_DATABASE_URL", "CRIER_REDIS_URL"];
        let helps = words.iter().all(|word| stderr.contains(word)) || stderr.contains("`crier-bench replicas`");
        assert!(helps, "{stderr}");
    }
    let left: Vec<_> = std::fs::read_dir(dir.path()).expect("a directory").flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Returns the ids of a process's own processes.
fn children(parent: u32) -> Vec<u32> {
    let parent_of = |id: u32| {
        // The name, which may have spaces, is in parentheses; the state and the parent follow.
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse::<u32>().ok()
    };
    let processes = std::fs::read_dir("/proc").expect("processes are listed").flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter(|id| parent_of(*id) == Some(parent)).collect()
}
