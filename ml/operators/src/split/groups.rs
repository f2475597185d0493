//! The table of groups: every group once, with its part.

use super::{
    SPLIT, SplitNode,
    assignment::{Division, Group, Part, assign},
};
use crate::Error;
use arrow::{
    array::{ArrayRef, AsArray, StringArray, UInt32Array},
    compute::{cast, concat_batches, take_record_batch},
    datatypes::{DataType, Field, Schema, SchemaRef},
    record_batch::RecordBatch,
};
use datafusion::{
    common::plan_err,
    error::Result,
    physical_plan::{Distribution, SendableRecordBatchStream, stream::RecordBatchStreamAdapter},
};
use futures::{TryStreamExt, stream};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt, sync::Arc};
use voxelflow_dataset::{
    NodeCodec,
    nodes::unary::{self, UnaryOperator, UnaryTask},
};
use voxelflow_stage::key_in;

/// Gives every group its part. Its rows are few, one for each group and stratum, and come in one partition.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct AssignGroups {
    /// Names and positions of the columns that make a group.
    by: Vec<(String, usize)>,
    /// Those of the columns that are to be as frequent in every part.
    stratify: Vec<(String, usize)>,
    division: Division,
    seed: u64,
}

inventory::submit! {
    NodeCodec {
        name: AssignGroups::NAME,
        encode: unary::encode::<AssignGroups>,
        decode: unary::decode::<AssignGroups>,
    }
}

impl AssignGroups {
    pub fn try_new(groups: &SchemaRef, node: &SplitNode) -> Result<Self> {
        let places = |names: &[String]| {
            let place = |name: &String| Ok((name.clone(), groups.index_of(name)?));
            names.iter().map(place).collect::<Result<Vec<_>>>()
        };
        Ok(Self {
            by: places(&node.by)?,
            stratify: places(&node.stratify)?,
            division: node.division,
            seed: node.seed,
        })
    }

    /// Each group once and its part.
    fn assigned(&self, rows: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
        let (values, strata) = (texts(rows, &self.by)?, texts(rows, &self.stratify)?);
        // Of each group its strata, of which it must have one, and a row of each.
        let mut known: BTreeMap<Vec<String>, BTreeMap<Vec<String>, usize>> = BTreeMap::new();
        for row in 0..rows.num_rows() {
            let group = self.values(&values, &self.by, row, None)?;
            let stratum = self.values(&strata, &self.stratify, row, Some(&group))?;
            known.entry(group).or_default().insert(stratum, row);
        }
        if let Some((group, strata)) = known.iter().find(|(_, strata)| strata.len() > 1) {
            return Err(self.several(group, strata.keys()).into());
        }
        let each = known.into_iter().flat_map(|(values, strata)| {
            strata
                .into_iter()
                .map(move |(stratum, row)| (row as u32, Group { values: values.clone(), stratum }))
        });
        let (first, groups): (Vec<u32>, Vec<Group>) = each.unzip();
        // A table without rows has no groups, and nothing to complain of: it may be one that is checked only.
        let parts = if groups.is_empty() { Vec::new() } else { assign(&groups, self.division, self.seed)? };
        let by: Vec<usize> = self.by.iter().map(|(_, at)| *at).collect();
        let mut columns =
            take_record_batch(&rows.project(&by)?, &UInt32Array::from(first))?.columns().to_vec();
        columns.push(column(self.division, &parts));
        Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
    }

    fn several<'a>(&self, group: &[String], strata: impl Iterator<Item = &'a Vec<String>>) -> Error {
        let names: Vec<&str> = self.stratify.iter().map(|(name, _)| name.as_str()).collect();
        let strata: Vec<String> = strata.map(|stratum| stratum.join(", ")).collect();
        let reason = format!(
            "{} has several values of {}: {}; stratify by what a group has once",
            self.label(group),
            names.join(", "),
            strata.join("; ")
        );
        Error::Split { reason }
    }

    fn label(&self, values: &[String]) -> String {
        let named = self.by.iter().zip(values).map(|((name, _), value)| format!("{name} {value}"));
        named.collect::<Vec<_>>().join(", ")
    }

    /// The values of a row; `group` is whose they are, unless they are the group's own.
    fn values(
        &self,
        columns: &[ArrayRef],
        names: &[(String, usize)],
        row: usize,
        group: Option<&Vec<String>>,
    ) -> Result<Vec<String>> {
        let value = |(column, (name, _)): (&ArrayRef, &(String, usize))| match key_in(column.as_string(), row)
        {
            Some(value) => Ok(value.to_owned()),
            None => {
                let reason = match group {
                    Some(group) => {
                        format!("`{name}` of {} is null or empty; leave such rows out", self.label(group))
                    }
                    None => format!(
                        "`{name}` is null or empty in some rows, which belong to nobody then; give it a value, or leave \
                         such rows out with WHERE {name} <> ''"
                    ),
                };
                Err(Error::Split { reason }.into())
            }
        };
        columns.iter().zip(names).map(value).collect()
    }
}

fn texts(rows: &RecordBatch, names: &[(String, usize)]) -> Result<Vec<ArrayRef>> {
    names.iter().map(|(_, at)| Ok(cast(rows.column(*at), &DataType::Utf8)?)).collect()
}

fn column(division: Division, parts: &[Part]) -> ArrayRef {
    match division {
        Division::Folds(_) => Arc::new(UInt32Array::from_iter_values(parts.iter().map(|part| match part {
            Part::Fold(number) => *number,
            _ => 0,
        }))),
        Division::Shares { .. } => {
            Arc::new(StringArray::from_iter_values(parts.iter().map(|part| match part {
                Part::Test => "test",
                Part::Validation => "validation",
                _ => "train",
            })))
        }
    }
}

impl UnaryOperator for AssignGroups {
    const NAME: &'static str = "AssignGroupsExec";

    fn check(&self, input: &SchemaRef) -> Result<()> {
        let fits = |(name, at): &(String, usize)| input.fields().get(*at).is_some_and(|f| f.name() == name);
        match self.by.iter().chain(&self.stratify).find(|column| !fits(column)) {
            Some((name, at)) => plan_err!("column {at} of the groups of {SPLIT} is not `{name}`"),
            None => Ok(()),
        }
    }
    fn schema(&self, input: &SchemaRef) -> SchemaRef {
        let by = self.by.iter().map(|(_, at)| Arc::clone(&input.fields()[*at]));
        let (name, data_type) = self.division.column();
        let part = Arc::new(Field::new(name, data_type, false));
        Arc::new(Schema::new(by.chain([part]).collect::<Vec<_>>()))
    }
    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.by.iter().map(|(name, _)| name.as_str()).collect();
        write!(f, "by {}, {}, seed {}", names.join(", "), self.division, self.seed)
    }
    fn distribution(&self) -> Distribution {
        Distribution::SinglePartition
    }
    fn run(&self, task: UnaryTask) -> Result<SendableRecordBatchStream> {
        let (operator, schema, input) = (self.clone(), Arc::clone(&task.schema), task.input.schema());
        let assigned = async move {
            let batches: Vec<RecordBatch> = task.rows.try_collect().await?;
            operator.assigned(&concat_batches(&input, &batches)?, &schema)
        };
        Ok(Box::pin(RecordBatchStreamAdapter::new(task.schema, stream::once(assigned))))
    }
}
