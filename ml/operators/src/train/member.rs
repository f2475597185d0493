//! Ranks and parameter shards as nodes of a plan: they hold no rows, they show what the gang is made of.

use arrow::datatypes::Schema;
use datafusion::{
    common::{DFSchema, DFSchemaRef, tree_node::TreeNodeRecursion},
    error::Result,
    execution::TaskContext,
    logical_expr::{Expr, LogicalPlan, UserDefinedLogicalNodeCore},
    physical_expr::{EquivalenceProperties, PhysicalExpr},
    physical_plan::{
        DisplayAs, DisplayFormatType, EmptyRecordBatchStream, ExecutionPlan, Partitioning, PlanProperties,
        SendableRecordBatchStream,
        execution_plan::{Boundedness, EmissionType, SchedulingType},
    },
};
use std::{
    fmt,
    ops::Range,
    sync::{Arc, LazyLock},
};

/// A member of a gang.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd)]
pub enum GangMember {
    /// A replica that trains.
    Rank {
        /// Its number.
        rank: usize,
        /// Ranks of the gang.
        world: usize,
        /// Whether gradients go around a ring.
        ring: bool,
    },
    /// A shard of the parameter service.
    ParameterShard {
        /// Its number.
        shard: usize,
        /// First parameter.
        start: usize,
        /// One past its last parameter.
        end: usize,
    },
}

static NO_COLUMNS: LazyLock<DFSchemaRef> = LazyLock::new(|| Arc::new(DFSchema::empty()));

impl GangMember {
    pub(super) fn shard(shard: usize, range: Range<usize>) -> Self {
        Self::ParameterShard { shard, start: range.start, end: range.end }
    }
}

impl fmt::Display for GangMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rank { rank, world, ring: false } => write!(f, "Rank {rank}: rows {rank}/{world}"),
            Self::Rank { rank, world, ring: true } => {
                write!(f, "Rank {rank}: rows {rank}/{world}, sends to rank {}", (rank + 1) % world.max(&1))
            }
            Self::ParameterShard { shard, start, end } => {
                write!(f, "ParameterShard {shard}: parameters [{start}..{end})")
            }
        }
    }
}

impl UserDefinedLogicalNodeCore for GangMember {
    fn name(&self) -> &str {
        match self {
            Self::Rank { .. } => "Rank",
            Self::ParameterShard { .. } => "ParameterShard",
        }
    }
    fn inputs(&self) -> Vec<&LogicalPlan> {
        Vec::new()
    }
    fn schema(&self) -> &DFSchemaRef {
        &NO_COLUMNS
    }
    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }
    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{self}")
    }
    fn with_exprs_and_inputs(&self, _exprs: Vec<Expr>, _inputs: Vec<LogicalPlan>) -> Result<Self> {
        Ok(self.clone())
    }
    fn necessary_children_exprs(&self, _output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        Some(Vec::new())
    }
}

/// A [`GangMember`] in a physical plan; yields no rows. [`TrainExec`](crate::TrainExec) starts the member itself.
#[derive(Debug)]
pub struct GangMemberExec {
    member: GangMember,
    properties: Arc<PlanProperties>,
}

impl GangMemberExec {
    /// Shows `member`.
    pub fn new(member: GangMember) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::new(Schema::empty())),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let properties = Arc::new(properties.with_scheduling_type(SchedulingType::Cooperative));
        Self { member, properties }
    }
}

impl DisplayAs for GangMemberExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}", self.member)
    }
}

impl ExecutionPlan for GangMemberExec {
    fn name(&self) -> &str {
        self.member.name()
    }
    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }
    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }
    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }
    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }
    fn execute(&self, _partition: usize, _context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        Ok(Box::pin(EmptyRecordBatchStream::new(self.schema())))
    }
}
