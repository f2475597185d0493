//! How the nodes of crates that do not know the engine travel: registered here, where both are seen.

use voxelflow_dataset::{
    LedgerNode, NodeCodec, PartitionWise, distributed::Distribute, functions::inventory::submit,
};
use voxelflow_tables::{NiftiExec, SeriesExec, Stores};

submit! {
    NodeCodec {
        name: "NiftiExec",
        encode: |node| node.downcast_ref::<NiftiExec>().map(NiftiExec::to_bytes),
        decode: |bytes, inputs, context| NiftiExec::from_bytes(bytes, inputs, Stores::of(&context.runtime_env())),
    }
}

submit! {
    Distribute { rewrite: |node| node.downcast_ref::<NiftiExec>().and_then(NiftiExec::distributed) }
}

submit! { LedgerNode("NiftiExec") }

submit! {
    NodeCodec {
        name: "SeriesExec",
        encode: |node| node.downcast_ref::<SeriesExec>().map(SeriesExec::to_bytes),
        decode: |bytes, inputs, context| SeriesExec::from_bytes(bytes, inputs, Stores::of(&context.runtime_env())),
    }
}

submit! {
    Distribute { rewrite: |node| node.downcast_ref::<SeriesExec>().and_then(SeriesExec::distributed) }
}

submit! { LedgerNode("SeriesExec") }

// A partition is a file.
submit! { PartitionWise("NiftiExec") }
submit! { PartitionWise("SeriesExec") }
