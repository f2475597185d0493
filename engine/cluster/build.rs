//! Writes client and server of the cluster's control service. Its messages are serde types, encoded by postcard:
//! both ends are always of one build, so no schema files are needed.

use tonic_build::manual::{Builder, Method, Service};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    const CODEC: &str = "voxelflow_sync::network::PostcardCodec";
    let calls = [
        ("jobs", "Jobs", "Everything", "Jobs"),
        ("executors", "Executors", "Everything", "Executors"),
        ("why_waiting", "WhyWaiting", "OfJob", "Waits"),
        ("cancel", "Cancel", "OfJob", "Done"),
        ("logs", "Logs", "LogRequest", "LogPage"),
        ("push_logs", "PushLogs", "LogPush", "Done"),
    ];
    let service = Service::builder().name("ClusterControl").package("voxelflow.cluster");
    let service = calls.into_iter().fold(service, |service, (name, route, asks, answers)| {
        let method = Method::builder().name(name).route_name(route).codec_path(CODEC);
        let message = |name: &str| format!("crate::control::messages::{name}");
        service.method(method.input_type(message(asks)).output_type(message(answers)).build())
    });
    Builder::new().compile(&[service.build()]);
}
