//! What a convolution on the CPU is to burn: which tensors are there, and what its backward pass keeps.

use burn::{
    backend::{
        Autodiff, Flex,
        autodiff::{
            NodeId,
            checkpoint::{base::Checkpointer, strategy::NoCheckpointing},
            grads::Gradients,
            ops::{Backward, Ops, OpsKind},
        },
        flex::FlexTensor,
        tensor::FloatTensor,
    },
    tensor::{DType, Tensor},
};
use std::fmt::Debug;

/// A convolution with bias, followed by `max(y, 0)` if so asked, of tensors that lie in memory.
pub(super) trait CpuConvolution: Copy + Debug + Send + Sync + 'static {
    /// Whether `max(y, 0)` follows.
    fn relu(self) -> bool;
    /// The output.
    fn forward(self, x: &FlexTensor, weight: &FlexTensor, bias: &FlexTensor) -> FlexTensor;
    /// The gradients of x, the weights and the bias, x's only if it is wanted. `y`: the output, if a ReLU made it.
    fn gradients(
        self,
        of: [&FlexTensor; 3],
        y: Option<&FlexTensor>,
        wants_x: bool,
    ) -> [Option<FlexTensor>; 3];
}

/// The output of `convolution`, if the tensors are on the CPU; otherwise nothing.
pub(super) fn apply<const D: usize>(
    convolution: impl CpuConvolution,
    x: &Tensor<D>,
    weight: &Tensor<D>,
    bias: &Tensor<1>,
) -> Option<Tensor<D>> {
    if !matches!(x.dtype(), DType::F32 | DType::F64) {
        return None;
    }
    if x.is_autodiff() {
        let x = x.clone().try_into_primitive::<Autodiff<Flex>>().ok()?;
        let weight = weight.clone().autodiff().try_into_primitive::<Autodiff<Flex>>().ok()?;
        let bias = bias.clone().autodiff().try_into_primitive::<Autodiff<Flex>>().ok()?;
        Some(Tensor::from_primitive::<Autodiff<Flex>>(differentiable(convolution, x, weight, bias)))
    } else {
        let x = x.clone().try_into_primitive::<Flex>().ok()?;
        let weight = weight.clone().try_into_primitive::<Flex>().ok()?;
        let bias = bias.clone().try_into_primitive::<Flex>().ok()?;
        Some(Tensor::from_primitive::<Flex>(convolution.forward(&x, &weight, &bias)))
    }
}

type Tracked = FloatTensor<Autodiff<Flex>>;

fn differentiable<C: CpuConvolution>(convolution: C, x: Tracked, weight: Tracked, bias: Tracked) -> Tracked {
    let nodes = [x.node(), weight.node(), bias.node()];
    let forward = || convolution.forward(x.primitive(), weight.primitive(), bias.primitive());
    match Differentiated(convolution).prepare::<NoCheckpointing>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(mut prep) => {
            let (kept_x, kept_weight) = (prep.checkpoint(&x), prep.checkpoint(&weight));
            let y = forward();
            prep.finish((kept_x, kept_weight, convolution.relu().then(|| y.clone())), y)
        }
        OpsKind::UnTracked(prep) => prep.finish(forward()),
    }
}

#[derive(Clone, Copy, Debug)]
struct Differentiated<C>(C);

impl<C: CpuConvolution> Backward<Flex, 3> for Differentiated<C> {
    /// Where x and the weights are kept, and with a ReLU the output.
    type State = (NodeId, NodeId, Option<FlexTensor>);

    fn backward(self, ops: Ops<Self::State, 3>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let [for_x, for_weight, for_bias] = ops.parents;
        let dy = grads.consume::<Flex>(&ops.node);
        let (x, weight, y) = ops.state;
        let x: FlexTensor = checkpointer.retrieve_node_output(x);
        let weight: FlexTensor = checkpointer.retrieve_node_output(weight);
        let [dx, dw, db] = self.0.gradients([&x, &weight, &dy], y.as_ref(), for_x.is_some());
        for (node, gradient) in [(for_x, dx), (for_weight, dw), (for_bias, db)] {
            if let (Some(node), Some(gradient)) = (node, gradient) {
                grads.register::<Flex>(node.id, gradient);
            }
        }
    }
}
