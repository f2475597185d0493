//! How plans travel: every node that is not DataFusion's own is framed with the build that wrote it.
//!
//! ```text
//!   "voxelflow1" │ build id: 64 digits │ length of the name: u16 │ name │ what the node wrote
//! ```
//!
//! An empty name is a node of Ballista. Each task begins with one, so that a scheduler or an executor of another
//! build, to which the same names may mean something else, refuses what it is given.

use ballista_core::serde::BallistaPhysicalExtensionCodec;
use datafusion::{
    error::{DataFusionError, Result},
    execution::TaskContext,
    logical_expr::{AggregateUDF, ScalarUDF, WindowUDF},
    physical_plan::ExecutionPlan,
};
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};
use std::sync::Arc;
use voxelflow_dataset::{build_id, node_codec};

const MAGIC: &[u8] = b"voxelflow1";
const BUILD_DIGITS: usize = 64;

/// Writes and reads the plan nodes of this build.
#[derive(Debug)]
pub struct VoxelflowCodec {
    build: String,
    ballista: BallistaPhysicalExtensionCodec,
}

impl VoxelflowCodec {
    /// The codec of the running program.
    ///
    /// # Errors
    /// A program that cannot read itself.
    pub fn try_new() -> Result<Self> {
        Ok(Self::of_build(build_id().map_err(DataFusionError::from)?))
    }

    /// The codec of the build `build`, 64 digits.
    fn of_build(build: &str) -> Self {
        Self { build: build.to_owned(), ballista: BallistaPhysicalExtensionCodec::default() }
    }

    fn frame(&self, name: &str, buffer: &mut Vec<u8>) -> Result<()> {
        let length = u16::try_from(name.len()).map_err(|e| DataFusionError::External(Box::new(e)))?;
        buffer.extend(MAGIC);
        buffer.extend(self.build.as_bytes());
        buffer.extend(length.to_le_bytes());
        buffer.extend(name.as_bytes());
        Ok(())
    }

    /// The node's name and what it wrote.
    fn unframe<'a>(&self, bytes: &'a [u8]) -> Result<(&'a str, &'a [u8])> {
        let foreign = || refused("it was not written by voxelflow, or by a version before this one".into());
        let rest = bytes.strip_prefix(MAGIC).ok_or_else(foreign)?;
        let (build, rest) = rest.split_at_checked(BUILD_DIGITS).ok_or_else(foreign)?;
        if build != self.build.as_bytes() {
            let theirs = String::from_utf8_lossy(&build[..12]).into_owned();
            let ours = self.build.get(..12).unwrap_or(&self.build);
            return Err(refused(format!(
                "it was made by build {theirs}…, and this process is build {ours}…: start the driver, the scheduler \
                 and the executors from the same program"
            )));
        }
        let (length, rest) = rest.split_first_chunk::<2>().ok_or_else(foreign)?;
        let (name, payload) =
            rest.split_at_checked(u16::from_le_bytes(*length).into()).ok_or_else(foreign)?;
        Ok((std::str::from_utf8(name).map_err(|_| foreign())?, payload))
    }
}

fn refused(reason: String) -> DataFusionError {
    DataFusionError::Plan(format!("plan refused: {reason}"))
}

fn unknown(kind: &str, name: &str) -> DataFusionError {
    refused(format!(
        "this build has no {kind} `{name}`; it is registered in the driver's session only, or its crate is not linked"
    ))
}

impl PhysicalExtensionCodec for VoxelflowCodec {
    fn try_decode(
        &self,
        bytes: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        context: &TaskContext,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match self.unframe(bytes)? {
            ("", payload) => self.ballista.try_decode(payload, inputs, context, converter),
            (name, payload) => node_codec::decode(name, payload, inputs, context),
        }
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        buffer: &mut Vec<u8>,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        if let Some(encoded) = node_codec::encode(node.as_ref()) {
            let (name, payload) = encoded?;
            self.frame(name, buffer)?;
            buffer.extend(payload);
            return Ok(());
        }
        let name = node.name().to_owned();
        self.frame("", buffer)?;
        self.ballista.try_encode(node, buffer, converter).map_err(|_| {
            refused(format!("`{name}` runs in the driver's process only; run this without a cluster"))
        })
    }

    fn try_decode_udf(&self, name: &str, _bytes: &[u8]) -> Result<Arc<ScalarUDF>> {
        Err(unknown("function", name))
    }

    fn try_decode_udaf(&self, name: &str, _bytes: &[u8]) -> Result<Arc<AggregateUDF>> {
        Err(unknown("aggregate function", name))
    }

    fn try_decode_udwf(&self, name: &str, _bytes: &[u8]) -> Result<Arc<WindowUDF>> {
        Err(unknown("window function", name))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::submitted::submitted;
    use arrow::datatypes::Schema;
    use datafusion::physical_plan::{displayable, empty::EmptyExec};
    use datafusion_proto::{
        physical_plan::{AsExecutionPlan, DefaultPhysicalProtoConverter},
        protobuf::PhysicalPlanNode,
    };
    use proptest::prelude::*;

    fn plan() -> Arc<dyn ExecutionPlan> {
        submitted(Arc::new(EmptyExec::new(Arc::new(Schema::empty()))), "test").unwrap()
    }

    fn sent(from: &VoxelflowCodec, to: &VoxelflowCodec) -> Result<Arc<dyn ExecutionPlan>> {
        let mut bytes = Vec::new();
        PhysicalPlanNode::try_from_physical_plan(plan(), from)?.try_encode(&mut bytes)?;
        PhysicalPlanNode::try_decode(&bytes)?.try_into_physical_plan(&TaskContext::default(), to)
    }

    #[test]
    fn a_plan_comes_as_it_was_sent() {
        let codec = VoxelflowCodec::try_new().unwrap();
        let received = sent(&codec, &codec).unwrap();
        let text = |plan: &Arc<dyn ExecutionPlan>| displayable(plan.as_ref()).indent(true).to_string();
        assert_eq!(text(&received), text(&plan()));
    }

    #[test]
    fn another_build_is_refused_by_both_names() {
        let refusal =
            sent(&VoxelflowCodec::of_build(&"a".repeat(64)), &VoxelflowCodec::of_build(&"b".repeat(64)));
        let text = refusal.unwrap_err().to_string();
        assert!(text.contains("build aaaaaaaaaaaa…") && text.contains("is build bbbbbbbbbbbb…"), "{text}");
        assert!(text.contains("from the same program"), "{text}");
    }

    #[test]
    fn an_unknown_function_is_refused_by_name() {
        let text = VoxelflowCodec::try_new().unwrap().try_decode_udf("mystery", &[]).unwrap_err().to_string();
        assert!(text.contains("no function `mystery`"), "{text}");
    }

    proptest! {
        #[test]
        fn damaged_nodes_are_refused(at in any::<prop::sample::Index>(), cut in any::<bool>()) {
            let codec = VoxelflowCodec::of_build(&"a".repeat(64));
            let mut bytes = Vec::new();
            let converter = DefaultPhysicalProtoConverter {};
            codec.try_encode(plan(), &mut bytes, &converter).unwrap();
            let at = at.index(bytes.len());
            if cut { bytes.truncate(at) } else { bytes[at] ^= 0x80 }
            let inputs: Vec<_> = plan().children().into_iter().cloned().collect();
            prop_assert!(codec.try_decode(&bytes, &inputs, &TaskContext::default(), &converter).is_err());
        }
    }
}
