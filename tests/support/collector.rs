//! An OpenTelemetry collector that records every span.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use wiremock::matchers::{header, method, path};
use wiremock::{Mock, MockServer, ResponseTemplate};

pub struct Collector(MockServer);

/// A span with its attributes as text.
#[derive(Clone, Debug)]
pub struct ReceivedSpan {
    /// `service.name` of its process.
    pub service: String,
    pub span: Span,
    pub attributes: BTreeMap<String, String>,
}

impl Collector {
    /// Starts a collector that requires this header. It returns 404 to all other requests.
    pub async fn start(name: &'static str, value: &str) -> Self {
        let server = MockServer::start().await;
        Mock::given(method("POST"))
            .and(path("/v1/traces"))
            .and(header("content-type", "application/x-protobuf"))
            .and(header(name, value))
            .respond_with(ResponseTemplate::new(200))
            .mount(&server)
            .await;
        Self(server)
    }

    pub fn url(&self) -> String {
        self.0.uri()
    }

    /// Returns the bodies of all requests.
    pub async fn bodies(&self) -> Vec<Vec<u8>> {
        let requests = self.0.received_requests().await.expect("requests are kept");
        requests.into_iter().map(|request| request.body).collect()
    }

    pub async fn spans(&self) -> Vec<ReceivedSpan> {
        let mut spans = Vec::new();
        for body in self.bodies().await {
            let request = ExportTraceServiceRequest::decode(body.as_slice()).expect("a request of OTLP");
            for of_process in request.resource_spans {
                let process = attributes(&of_process.resource.expect("a resource").attributes);
                for span in of_process.scope_spans.into_iter().flat_map(|scope| scope.spans) {
                    let (service, attributes) = (process["service.name"].clone(), attributes(&span.attributes));
                    spans.push(ReceivedSpan { service, span, attributes });
                }
            }
        }
        spans
    }
}

fn attributes(list: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |value: &KeyValue| match value.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        Value::IntValue(number) => Some(number.to_string()),
        other => panic!("{other:?}"),
    };
    list.iter().map(|one| (one.key.clone(), text(one).expect("a value"))).collect()
}
