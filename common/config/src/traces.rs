//! The collector that traces are sent to.

use http::{HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;
use secrecy::SecretString;

use super::key::{DefaultValue, Key};
use super::reader::Reader;
use super::values;

const ENDPOINT: Key = Key::new(
    "OTLP_ENDPOINT",
    "The URL of the OpenTelemetry collector that receives traces, over OTLP/HTTP (protobuf). `/v1/traces` is appended. If \
     unset, no traces are sent.",
    DefaultValue::Unset,
    "http://127.0.0.1:4318",
);
const HEADERS: Key = Key::new(
    "OTLP_HEADERS",
    "Headers of requests to the collector, as `name=value,…`. Encode a comma in a value as `%2C`.",
    DefaultValue::Unset,
    "authorization=Bearer%20secret",
)
.secret();
const SAMPLE: Key = Key::new(
    "OTLP_SAMPLE",
    "The share of traces to send, from 0 to 1. All processes must have the same value.",
    DefaultValue::Value("1"),
    "0.1",
);
pub(super) const KEYS: &[Key] = &[ENDPOINT, HEADERS, SAMPLE];

/// The collector, and the share of traces that it receives.
#[derive(Clone, Debug)]
pub struct TracesConfig {
    /// The full URL that spans are posted to.
    pub url: String,
    pub headers: Vec<(HeaderName, SecretString)>,
    /// The share of traces to send, from 0 to 1.
    pub sample: f64,
}

pub(super) fn read(reader: &mut Reader) -> Option<TracesConfig> {
    let (headers, sample) = (reader.optional(&HEADERS, headers).unwrap_or_default(), reader.parse(&SAMPLE, share));
    let url = reader.optional(&ENDPOINT, endpoint)?;
    Some(TracesConfig { url, headers, sample })
}

fn endpoint(text: &str) -> Result<String, String> {
    let base = values::base_url(text)?;
    // With a doubled path collectors return 404, which would be visible only in the log.
    if base.ends_with("/v1/traces") {
        return Err("must not end with /v1/traces, which is appended".to_owned());
    }
    Ok(format!("{base}/v1/traces"))
}

/// Parses headers in the format of `OTEL_EXPORTER_OTLP_HEADERS`, which the vendors of collectors document.
fn headers(text: &str) -> Result<Vec<(HeaderName, SecretString)>, String> {
    values::parts(text).map(header).collect()
}

/// Parses one header. No error contains a part of the text, because all of it may be secret.
fn header(part: &str) -> Result<(HeaderName, SecretString), String> {
    let (name, value) = part.split_once('=').ok_or("has a part without =")?;
    let name = name.trim().parse::<HeaderName>().map_err(|_| "has a name that is not a header name")?;
    let value = percent_decode_str(value.trim()).decode_utf8().map_err(|_| "has a value that is not UTF-8")?;
    HeaderValue::from_str(&value).map_err(|_| "has a value that is not valid in a header")?;
    Ok((name, value.into_owned().into()))
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("is not a number from 0 to 1".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;
    use crate::{Config, ConfigSource, ProcessRole};

    fn load(env: &[(&str, &str)], file: &str) -> Option<Option<TracesConfig>> {
        let source = ConfigSource::new(env.iter().copied(), Some(file.to_owned()), [("", ""); 0]);
        Config::load(&source, ProcessRole::Crier).ok().map(|config| config.traces)
    }

    #[test]
    fn traces_are_off_without_a_collector() {
        assert!(load(&[("CRIER_OTLP_SAMPLE", "0.5"), ("CRIER_OTLP_HEADERS", "a=b")], "").unwrap().is_none());
        assert!(load(&[("CRIER_OTLP_SAMPLE", "2")], "").is_none(), "values are checked all the same");
    }

    #[test]
    fn a_file_can_have_all_keys() {
        let traces = load(&[], "[otlp]\nendpoint = 'http://collector:4318'\nheaders = ['a=b', 'c=d']\nsample = 0.25\n");
        let traces = traces.unwrap().unwrap();
        assert_eq!((traces.url.as_str(), traces.sample), ("http://collector:4318/v1/traces", 0.25));
        assert_eq!(traces.headers.len(), 2);
    }

    #[test]
    fn the_path_of_traces_is_appended() {
        assert_eq!(endpoint("https://c.example.com/otlp/").unwrap(), "https://c.example.com/otlp/v1/traces");
        for wrong in ["collector:4318", "grpc://collector", "http://u:p@collector", "http://collector:4318/v1/traces/"]
        {
            assert!(endpoint(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn headers_are_percent_decoded() {
        let read = headers("Authorization=Basic%20YTpi==, x-scope=a%2Cb,").unwrap();
        let read: Vec<_> = read.iter().map(|(name, value)| (name.as_str(), value.expose_secret())).collect();
        assert_eq!(read, [("authorization", "Basic YTpi=="), ("x-scope", "a,b")]);
        for wrong in ["hush", "=hush", "hu sh=x", "x=hush%ff", "x=hush%0a"] {
            let error = headers(wrong).unwrap_err();
            assert!(error.starts_with("has a ") && !error.contains("hush"), "{error}");
        }
    }

    #[test]
    fn the_share_is_from_0_to_1() {
        assert_eq!((share("0"), share("0.1"), share("1")), (Ok(0.0), Ok(0.1), Ok(1.0)));
        for wrong in ["-0.1", "1.01", "NaN", "inf", "10%", ""] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
    }
}
