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
    Builder::new().compile(&[Service::builder()
        .package("voxelflow.wire_bench")
        .name("Wire")
        .method(echo)
        .build()]);
}
