//! Writes client and server of the one service that a cluster's scheduler offers. Its messages are serde types, encoded by postcard:
//! both ends are always of one build, so no schema files are needed.

use tonic_build::manual::{Builder, Method, Service};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    const CODEC: &str = "voxelflow_sync::network::PostcardCodec";
    let once = [
        ("jobs", "Jobs", "Everything", "Jobs"),
        ("executors", "Executors", "Everything", "Executors"),
        ("why_waiting", "WhyWaiting", "OfJob", "Waits"),
        ("cancel", "Cancel", "OfJob", "Done"),
        ("counts", "Counts", "OfJob", "Counts"),
        ("logs", "Logs", "LogRequest", "LogPage"),
        ("push_logs", "PushLogs", "LogPush", "Done"),
    ];
    let message = |name: &str| format!("crate::control::messages::{name}");
    let call = |name: &str, route: &str, asks: &str, answers: &str| {
        let method = Method::builder().name(name).route_name(route).codec_path(CODEC);
        method.input_type(message(asks)).output_type(message(answers))
    };
    let service = Service::builder().name("ClusterControl").package("voxelflow.cluster");
    let service = once
        .into_iter()
        .fold(service, |service, (name, route, asks, answers)| {
            service.method(call(name, route, asks, answers).build())
        })
        .method(call("submit", "Submit", "Submission", "JobNews").server_streaming().build())
        .method(
            call("attend", "Attend", "ExecutorSays", "SchedulerSays")
                .client_streaming()
                .server_streaming()
                .build(),
        );
    Builder::new().compile(&[service.build()]);
}
