//! Sessions and tables of series for the tests.

use crate::line_stage::LineKind;
use arrow::{
    array::{ArrayRef, FixedSizeListArray, Float32Array, StringArray, UInt32Array},
    buffer::NullBuffer,
    datatypes::{DataType, Field, Schema},
    record_batch::RecordBatch,
};
use datafusion::{datasource::MemTable, error::DataFusionError, logical_expr::LogicalPlan, prelude::*};
use serde_json::Value;
use std::{path::PathBuf, sync::Arc};
use tempfile::TempDir;
use voxelflow_dataset::{EngineConfig, StageError, StagePlanner, TrainRequest, session_context};
use voxelflow_operators::{Error, StageCatalog, extension_planners};
use voxelflow_stage::StageKind;

/// Points of every series.
pub const T: usize = 6;

/// A session with the stage `line`, and a folder for its models.
pub struct Bench {
    pub context: SessionContext,
    pub catalog: StageCatalog,
    pub folder: TempDir,
}

/// Voxels `voxels` of a subject: multiples of one wave, and a little of their own and of the subject's.
pub fn series(subject: Option<&str>, voxels: std::ops::Range<u32>) -> RecordBatch {
    let own: usize = subject.unwrap_or_default().bytes().map(usize::from).sum();
    let value = |voxel: u32, t: usize| {
        let wave = [0.0, 1.0, 2.0, 1.0, 0.0, -1.0][t];
        let noise = (voxel as usize * 31 + t * 17) % 11 + (own * (t + 1)) % 13;
        wave * (voxel % 7 + 1) as f32 / 4.0 + noise as f32 / 100.0
    };
    let values: Vec<f32> = voxels.clone().flat_map(|v| (0..T).map(move |t| value(v, t))).collect();
    with_values(subject, voxels, values, None)
}

pub fn with_values(
    subject: Option<&str>,
    voxels: std::ops::Range<u32>,
    values: Vec<f32>,
    nulls: Option<NullBuffer>,
) -> RecordBatch {
    let item = Arc::new(Field::new_list_field(DataType::Float32, true));
    let n = voxels.len();
    let lists = FixedSizeListArray::new(item, T as i32, Arc::new(Float32Array::from(values)), nulls);
    let schema = Schema::new(vec![
        Field::new("subject", DataType::Utf8, true),
        Field::new("voxel", DataType::UInt32, false),
        Field::new("series", arrow::array::Array::data_type(&lists).clone(), true),
    ]);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from(vec![subject; n])),
        Arc::new(UInt32Array::from_iter_values(voxels)),
        Arc::new(lists),
    ];
    RecordBatch::try_new(Arc::new(schema), columns).unwrap()
}

impl Bench {
    pub fn new() -> Self {
        let config = EngineConfig { target_partitions: Some(3), ..EngineConfig::default() };
        Self::with(session_context(extension_planners(), &config).unwrap())
    }

    pub fn with(context: SessionContext) -> Self {
        Self::of(context, vec![Arc::new(LineKind)])
    }

    /// A session with these stages.
    pub fn of(context: SessionContext, kinds: Vec<Arc<dyn StageKind>>) -> Self {
        let catalog = StageCatalog::new(kinds);
        for function in catalog.model_functions().into_iter().chain(catalog.series_functions()) {
            context.register_udf(function.as_ref().clone());
        }
        catalog.prepare(context.state_ref().write().config_mut());
        Self { context, catalog, folder: TempDir::new().unwrap() }
    }

    /// Registers `name` with a partition for each list of batches.
    pub fn table(&self, name: &str, partitions: Vec<Vec<RecordBatch>>) {
        let schema = partitions.iter().flatten().next().unwrap().schema();
        let table = MemTable::try_new(schema, partitions).unwrap();
        self.context.register_table(name, Arc::new(table)).unwrap();
    }

    pub async fn plan_of(&self, query: &str) -> LogicalPlan {
        self.context.sql(query).await.unwrap().into_unoptimized_plan()
    }

    pub fn model(&self) -> PathBuf {
        self.folder.path().join("models").join("m")
    }

    pub async fn request(&self, train: &str, validation: Option<&str>, settings: Value) -> TrainRequest {
        let validation = match validation {
            Some(query) => Some(self.plan_of(query).await),
            None => None,
        };
        TrainRequest {
            model: "m".into(),
            folder: self.model(),
            stage: "line".into(),
            options: Default::default(),
            settings: settings.as_object().cloned().unwrap(),
            train: self.plan_of(train).await,
            validation,
            features: None,
        }
    }

    pub async fn run(&self, request: TrainRequest) -> Result<Vec<RecordBatch>, DataFusionError> {
        let plan = self.catalog.plan_train(request).unwrap();
        self.context.execute_logical_plan(plan).await?.collect().await
    }

    pub async fn train(&self, train: &str, settings: Value) -> Result<Vec<RecordBatch>, DataFusionError> {
        let request = self.request(train, None, settings).await;
        self.run(request).await
    }

    /// Files and folders of rows in the session's folder for temporary files.
    pub fn spooled(&self) -> usize {
        let folders = self.context.runtime_env().disk_manager.temp_dir_paths();
        folders.iter().map(|folder| std::fs::read_dir(folder).map_or(0, Iterator::count)).sum()
    }

    /// Names in the folder of the models, also hidden ones.
    pub fn left_behind(&self) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.folder.path().join("models")) else { return Vec::new() };
        let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    pub fn file(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.model().join(name)).unwrap()
    }

    pub fn json(&self, name: &str) -> Value {
        serde_json::from_slice(&self.file(name)).unwrap()
    }
}

/// Our error inside DataFusion's.
pub fn ours(error: &DataFusionError) -> &Error {
    let DataFusionError::External(inner) = error.find_root() else { panic!("not ours: {error:?}") };
    inner.downcast_ref::<Error>().unwrap_or_else(|| panic!("not ours: {inner:?}"))
}

pub fn refused(planned: Result<LogicalPlan, StageError>) -> StageError {
    planned.expect_err("should have been refused")
}
