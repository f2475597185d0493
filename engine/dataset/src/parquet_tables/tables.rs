//! From locations to tables.

use super::{
    locations::resolve,
    partitions::{Values, note, typed},
};
use arrow::datatypes::{DataType, Schema};
use async_trait::async_trait;
use datafusion::{
    catalog::{DynamicFileCatalog, Session, TableProvider, TableProviderFactory, UrlTableFactory},
    common::plan_err,
    datasource::{
        dynamic_file::DynamicListTableFactory,
        file_format::FileFormat,
        listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableConfigExt, ListingTableUrl},
        listing_table_factory::ListingTableFactory,
    },
    error::{DataFusionError, Result},
    execution::{SessionState, session_state::SessionStateBuilder},
    logical_expr::CreateExternalTable,
    prelude::SessionContext,
};
use futures::TryStreamExt;
use object_store::ObjectMeta;
use std::{collections::HashMap, sync::Arc};

/// What files of Parquet are called; Hive's have no ending.
const ENDINGS: [&str; 4] = [".parquet", ".parq", ".pq", ""];

/// `CREATE EXTERNAL TABLE … STORED AS PARQUET`, `CSV`, `JSON`, `ARROW`.
#[derive(Debug, Default)]
pub(crate) struct FileTables {
    inner: ListingTableFactory,
}

#[async_trait]
impl TableProviderFactory for FileTables {
    async fn create(
        &self,
        state: &dyn Session,
        command: &CreateExternalTable,
    ) -> Result<Arc<dyn TableProvider>> {
        let session = session_state(state)?;
        let mut urls = Vec::new();
        for location in &command.locations {
            urls.extend(resolve(session, location).await?);
        }
        // Columns, partitions and orders that somebody has written down are DataFusion's.
        let plain = command.schema.fields().is_empty()
            && command.table_partition_cols.is_empty()
            && command.order_exprs.is_empty();
        if plain && command.file_type.eq_ignore_ascii_case("parquet") {
            let urls = urls.into_iter().map(|url| url.with_table_ref(command.name.clone())).collect();
            let format = format(session, "parquet", &command.options)?;
            return open(session, urls, format, command.definition.clone()).await;
        }
        let mut command = command.clone();
        command.locations = urls.iter().map(|url| url.as_str().to_owned()).collect();
        self.inner.create(state, &command).await
    }
}

/// The table of the Parquet files at `location`.
///
/// # Errors
/// A location without such files, files that do not go together.
pub(crate) async fn open_parquet(state: &SessionState, location: &str) -> Result<Arc<dyn TableProvider>> {
    let urls = resolve(state, location).await?;
    open(state, urls, format(state, "parquet", &HashMap::new())?, None).await
}

/// `context`, in whose queries locations stand for tables: `FROM 'runs/*.parquet'`.
pub fn with_tables_by_location(context: SessionContext) -> SessionContext {
    let tables = Arc::new(TablesByLocation::default());
    let inner = Arc::clone(context.state().catalog_list());
    let catalogs = Arc::new(DynamicFileCatalog::new(inner, Arc::clone(&tables) as Arc<dyn UrlTableFactory>));
    let session = context.session_id();
    let builder: SessionStateBuilder = context.into_state_builder();
    let context: SessionContext = builder.with_session_id(session).with_catalog_list(catalogs).build().into();
    tables.sessions.session_store().with_state(context.state_weak_ref());
    context
}

#[derive(Debug, Default)]
struct TablesByLocation {
    /// DataFusion's, for the sessions that it knows.
    sessions: DynamicListTableFactory,
}

#[async_trait]
impl UrlTableFactory for TablesByLocation {
    /// None for what is not there: then it may be a table's name.
    async fn try_new(&self, location: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let session = self.sessions.session_store().get_session().upgrade();
        let session = session.and_then(|session| session_state(&*session.read()).ok().cloned());
        let Some(state) = session else { return plan_err!("the session has ended") };
        let is_glob = location.contains(['*', '?', '[']);
        let urls = match resolve(&state, location).await {
            Ok(urls) => urls,
            Err(e) if is_glob => return Err(e),
            Err(_) => return Ok(None),
        };
        let Some(file) = first(&state, &urls).await else { return Ok(None) };
        let path = file.location.as_ref();
        if ENDINGS[..3].iter().any(|ending| path.ends_with(ending)) {
            return open(&state, urls, format(&state, "parquet", &HashMap::new())?, None).await.map(Some);
        }
        let Ok(config) = ListingTableConfig::new_with_multi_paths(urls).infer_options(&state).await else {
            return Ok(None);
        };
        let config = config.infer_partitions_from_path(&state).await?.infer_schema(&state).await?;
        Ok(Some(Arc::new(ListingTable::try_new(config)?)))
    }
}

fn session_state(state: &dyn Session) -> Result<&SessionState> {
    let state = state.as_any().downcast_ref::<SessionState>();
    state.ok_or_else(|| DataFusionError::Internal("a session of another kind".into()))
}

fn format(
    state: &SessionState,
    name: &str,
    options: &HashMap<String, String>,
) -> Result<Arc<dyn FileFormat>> {
    match state.get_file_format_factory(name) {
        Some(factory) => factory.create(state, options),
        None => plan_err!("there is no file format `{name}`"),
    }
}

async fn first(state: &SessionState, urls: &[ListingTableUrl]) -> Option<ObjectMeta> {
    let url = urls.first()?;
    let store = state.runtime_env().object_store(url).ok()?;
    url.list_all_files(state, store.as_ref(), "").await.ok()?.try_next().await.ok()?
}

/// The table of Parquet files at `urls`, whose statement was `definition`.
async fn open(
    state: &SessionState,
    urls: Vec<ListingTableUrl>,
    format: Arc<dyn FileFormat>,
    definition: Option<String>,
) -> Result<Arc<dyn TableProvider>> {
    let Some(url) = urls.first().cloned() else { return plan_err!("there is no location") };
    let store = state.runtime_env().object_store(&url)?;
    let mut options = ListingOptions::new(format);
    let mut files: Vec<ObjectMeta> = Vec::new();
    if urls.len() == 1 && url.is_collection() {
        let all: Vec<ObjectMeta> = url.list_all_files(state, store.as_ref(), "").await?.try_collect().await?;
        let ends = |file: &ObjectMeta, ending: &str| {
            let name = file.location.filename().unwrap_or_default();
            if ending.is_empty() { !name.contains('.') } else { name.ends_with(ending) }
        };
        let ending = ENDINGS.into_iter().find(|ending| all.iter().any(|file| ends(file, ending)));
        let Some(ending) = ending else { return plan_err!("no Parquet files in this folder: {url}") };
        options = options.with_file_extension(ending);
        files = all.into_iter().filter(|file| ends(file, ending)).collect();
    } else {
        options = options.with_file_extension("");
    }
    let names = if files.is_empty() { Vec::new() } else { options.infer_partitions(state, &url).await? };
    let text = || DataType::Dictionary(Box::new(DataType::UInt16), Box::new(DataType::Utf8));
    options = options.with_table_partition_cols(names.iter().map(|name| (name.clone(), text())).collect());
    let schema = match urls.as_slice() {
        [url] => options.infer_schema(state, url).await?,
        // Each is a file.
        urls => {
            let mut all = Vec::with_capacity(urls.len());
            for url in urls {
                all.extend(
                    url.list_all_files(state, store.as_ref(), "").await?.try_collect::<Vec<_>>().await?,
                );
            }
            options.format.infer_schema(state, &store, &all).await?
        }
    };
    // Some writers repeat in their files what the names of folders say.
    let kept = schema.fields().iter().filter(|field| !names.contains(field.name())).cloned();
    let kept = Schema::new_with_metadata(kept.collect::<Vec<_>>(), schema.metadata().clone());
    let config = ListingTableConfig::new_with_multi_paths(urls).with_listing_options(options);
    let table = ListingTable::try_new(config.with_schema(Arc::new(kept)))?.with_definition(definition);
    if names.is_empty() {
        return Ok(Arc::new(table));
    }
    let mut values = Values::new();
    for file in &files {
        let below = url.strip_prefix(&file.location).into_iter().flatten().collect::<Vec<_>>().join("/");
        note(&mut values, &names, &below);
    }
    typed(table, &names, &values)
}
