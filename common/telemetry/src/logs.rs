//! The log: lines on stderr, as text on a terminal and otherwise as JSON objects. Stdout is for the output of commands.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{IsTerminal, stderr};
use std::panic::PanicHookInfo;
use std::time::{Duration, Instant};

use crier_config::{LogConfig, LogFormat};
use tracing::Subscriber;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::util::SubscriberInitExt;

const REPEAT_INTERVAL: Duration = Duration::from_secs(10);
/// What libraries log; `CRIER_LOG` can enable all of it. salvo's `info` lines duplicate ours. apalis logs the start, the
/// stop and the failure of the worker of each job kind and each task, and sqlx a line or more for each lost connection:
/// in an outage of Redis or Postgres, our own lines have the reason. An invalid certificate of a user's server is not
/// our error; the delivery's result shows it.
const LIBRARIES: &str = "salvo_core=warn,apalis_core=off,sqlx_core::pool=off,sqlx::pool=off,sqlx::postgres::notice=off,\
                         rmcp=error,rustls_platform_verifier=off";

/// Initializes logging. Only the first call has an effect, because several tests share a process.
pub fn init(config: &LogConfig) {
    if subscriber(config, stderr().is_terminal(), stderr).try_init().is_ok() {
        std::panic::set_hook(Box::new(log_panic));
    }
}

/// Returns whether the log consists of JSON objects.
pub fn is_json(config: &LogConfig) -> bool {
    format(config, stderr().is_terminal()) == LogFormat::Json
}

fn format(config: &LogConfig, terminal: bool) -> LogFormat {
    config.format.unwrap_or(if terminal { LogFormat::Text } else { LogFormat::Json })
}

fn subscriber<W>(config: &LogConfig, terminal: bool, writer: W) -> Box<dyn Subscriber + Send + Sync>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let format = format(config, terminal);
    // The configuration has already validated the filter.
    let filter = format!("{LIBRARIES},{}", config.filter);
    let filter = EnvFilter::builder().parse(filter).unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
    match format {
        LogFormat::Text => Box::new(builder.with_ansi(terminal).finish()),
        // The list of spans already contains the current one.
        LogFormat::Json => Box::new(builder.json().flatten_event(true).with_current_span(false).finish()),
    }
}

/// Limits how often a lasting problem is logged: immediately, and then every ten seconds.
#[derive(Debug, Default)]
pub struct Repeat {
    last: Option<Instant>,
    /// Whether the problem was logged since its last end.
    is_logged: bool,
}

impl Repeat {
    pub fn is_due(&mut self) -> bool {
        let is_due = self.last.is_none_or(|last| last.elapsed() >= REPEAT_INTERVAL);
        if is_due {
            (self.last, self.is_logged) = (Some(Instant::now()), true);
        }
        is_due
    }

    /// Records that the problem is over. Returns whether to log that, because the problem was logged. The interval
    /// continues, so that a problem that comes and goes is logged as seldom as one that stays.
    pub fn end(&mut self) -> bool {
        std::mem::take(&mut self.is_logged)
    }
}

/// Logs a panic as one event. The output of the standard hook is not JSON, and lacks the span of the job.
fn log_panic(info: &PanicHookInfo<'_>) {
    let payload = info.payload();
    let message =
        payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let location = info.location().map(ToString::to_string).unwrap_or_default();
    let backtrace = Backtrace::capture();
    let backtrace = (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string());
    tracing::error!(location, backtrace, "panic: {}", message.unwrap_or("(no text)"));
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn logged(filter: &str, format: Option<LogFormat>, terminal: bool) -> String {
        let buffer = Buffer::default();
        let writer = buffer.clone();
        let config = LogConfig { filter: filter.to_owned(), format };
        tracing::subscriber::with_default(subscriber(&config, terminal, move || writer.clone()), || {
            tracing::info_span!("job", id = 7).in_scope(|| tracing::info!(kind = "noop", "started"));
            tracing::debug!("a detail");
        });
        String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap()
    }

    /// Returns whether an event is logged.
    fn is_logged(filter: &str, event: fn()) -> bool {
        let buffer = Buffer::default();
        let writer = buffer.clone();
        let config = LogConfig { filter: filter.to_owned(), format: None };
        tracing::subscriber::with_default(subscriber(&config, false, move || writer.clone()), event);
        !buffer.0.lock().unwrap().is_empty()
    }

    #[test]
    fn certificate_errors_of_remote_servers_are_muted() {
        let event = || tracing::error!(target: "rustls_platform_verifier::verification", "failed to verify");
        assert!(!is_logged("info", event));
        assert!(is_logged("info,rustls_platform_verifier=error", event));
    }

    #[test]
    fn starts_and_failures_of_internal_workers_are_muted() {
        let event = || tracing::info!(target: "apalis_core::worker::context", "Worker noop started");
        assert!(!is_logged("info", event));
        assert!(is_logged("info,apalis_core=info", event));
        assert!(!is_logged("info", || tracing::warn!(target: "apalis_core::backend::persistence", "-> Dead")));
    }

    #[test]
    fn lost_connections_of_a_pool_are_muted() {
        let event = || tracing::warn!(target: "sqlx_core::pool::connection", "error while testing the connection");
        assert!(!is_logged("info", event));
        assert!(is_logged("info,sqlx_core::pool=warn", event));
        assert!(!is_logged("info", || tracing::warn!(target: "sqlx::postgres::notice", "terminating connection")));
        assert!(is_logged("info", || tracing::warn!(target: "sqlx::query", "slow statement")));
    }

    #[test]
    fn the_end_of_a_problem_is_logged_once_if_the_problem_was() {
        let mut repeat = Repeat::default();
        assert!(!repeat.end(), "there was no problem");
        assert!(repeat.is_due() && !repeat.is_due());
        assert!(repeat.end() && !repeat.end());
        assert!(!repeat.is_due() && !repeat.end(), "it returns within the interval");
        repeat.last = Instant::now().checked_sub(REPEAT_INTERVAL);
        assert!(repeat.is_due() && repeat.end());
    }

    #[test]
    fn logs_are_json_without_a_terminal() {
        let log = logged("info", None, false);
        let line: serde_json::Value = serde_json::from_str(&log).expect("one line, one object");
        assert_eq!(
            (&line["message"], &line["kind"], &line["level"]),
            (&"started".into(), &"noop".into(), &"INFO".into())
        );
        assert_eq!(line["spans"], serde_json::json!([{ "name": "job", "id": 7 }]));
    }

    #[test]
    fn logs_are_text_on_a_terminal_or_if_configured() {
        assert!(logged("info", None, true).contains('\u{1b}'), "colours on a terminal");
        let log = logged("debug", Some(LogFormat::Text), false);
        assert!(
            log.contains("job{id=7}") && log.contains("started kind=\"noop\"") && log.contains("a detail"),
            "{log}"
        );
        assert!(!log.contains('\u{1b}'), "{log}");
        assert_eq!(logged("off", None, false), "");
    }
}
