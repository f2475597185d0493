//! Generates the services of this crate from Rust types: the control of a gang, and the echo that the wire
//! benchmark compares with.

use tonic_build::manual::{Builder, Method, Service};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let echo = Method::builder()
        .name("echo")
        .route_name("Echo")
        .input_type("bytes::Bytes")
        .output_type("bytes::Bytes")
        .codec_path("crate::Raw")
        .client_streaming()
        .server_streaming()
        .build();
    let attend = Method::builder()
        .name("attend")
        .route_name("Attend")
        .input_type("crate::protocol::ToCoordinator")
        .output_type("crate::protocol::ToMember")
        .codec_path("crate::network::PostcardCodec")
        .client_streaming()
        .server_streaming()
        .build();
    let service =
        |package, name, method| Service::builder().package(package).name(name).method(method).build();
    Builder::new().compile(&[
        service("voxelflow.gang", "Control", attend),
        service("voxelflow.wire_bench", "Wire", echo),
    ]);
}
