//! How plan nodes travel to another process: every node writes and reads itself, beside its definition.
//!
//! A codec holds settings only; the inputs of a node travel as nodes of their own. Whoever sends a plan finds
//! the codec by [`encode`], whoever receives it by the node's name.

use arrow::{
    datatypes::{Schema, SchemaRef},
    ipc::{
        reader::StreamReader,
        writer::{IpcWriteOptions, StreamWriter},
    },
};
use datafusion::{
    error::{DataFusionError, Result},
    execution::TaskContext,
    physical_plan::ExecutionPlan,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::DeserializeOwned};
use std::sync::Arc;

/// Reads a node: its bytes, its inputs, and the session that it will run in.
pub type DecodeNode = fn(&[u8], &[Arc<dyn ExecutionPlan>], &TaskContext) -> Result<Arc<dyn ExecutionPlan>>;

/// How one kind of node travels. Registered with `inventory::submit!`.
#[derive(Debug)]
pub struct NodeCodec {
    /// The node's [`ExecutionPlan::name`].
    pub name: &'static str,
    /// Its settings in bytes; nothing when it is another kind of node.
    pub encode: fn(&dyn ExecutionPlan) -> Option<Result<Vec<u8>>>,
    /// The node again.
    pub decode: DecodeNode,
}

inventory::collect!(NodeCodec);

/// All codecs of this build.
pub fn codecs() -> impl Iterator<Item = &'static NodeCodec> {
    inventory::iter::<NodeCodec>()
}

/// The name and the settings of `node`; nothing when no codec knows it.
pub fn encode(node: &dyn ExecutionPlan) -> Option<Result<(&'static str, Vec<u8>)>> {
    codecs().find_map(|codec| Some((codec.encode)(node)?.map(|bytes| (codec.name, bytes))))
}

/// The node called `name` from its settings.
///
/// # Errors
/// A name that this build does not know, or bytes that are not such a node's settings.
pub fn decode(
    name: &str,
    bytes: &[u8],
    inputs: &[Arc<dyn ExecutionPlan>],
    context: &TaskContext,
) -> Result<Arc<dyn ExecutionPlan>> {
    let Some(codec) = codecs().find(|codec| codec.name == name) else {
        let mut known: Vec<&str> = codecs().map(|codec| codec.name).collect();
        known.sort_unstable();
        let known = known.join(", ");
        return Err(DataFusionError::Plan(format!(
            "this build has no plan node `{name}`: run the same build everywhere (it knows {known})"
        )));
    };
    (codec.decode)(bytes, inputs, context)
}

/// Settings as bytes.
///
/// # Errors
/// Settings that JSON cannot hold.
pub fn write_settings<T: Serialize>(node: &str, settings: &T) -> Result<Vec<u8>> {
    serde_json::to_vec(settings).map_err(|e| DataFusionError::Plan(format!("{node} cannot be sent: {e}")))
}

/// Settings from bytes.
///
/// # Errors
/// Bytes that [`write_settings`] has not written.
pub fn read_settings<T: DeserializeOwned>(node: &str, bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes).map_err(|e| damaged(node, &e.to_string()))
}

/// The error of a node that was not received as it was sent.
pub(crate) fn damaged(node: &str, reason: &str) -> DataFusionError {
    DataFusionError::Plan(format!("{node} was received damaged: {reason}"))
}

/// The one input of a unary node that is read.
///
/// # Errors
/// Not exactly one.
pub fn one_input(node: &str, inputs: &[Arc<dyn ExecutionPlan>]) -> Result<Arc<dyn ExecutionPlan>> {
    match inputs {
        [input] => Ok(Arc::clone(input)),
        _ => Err(DataFusionError::Plan(format!("{node} was received with {} inputs, not one", inputs.len()))),
    }
}

/// A schema within settings, in Arrow's IPC format: metadata and all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireSchema(pub SchemaRef);

impl Serialize for WireSchema {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let write = |schema: &Schema| {
            StreamWriter::try_new_with_options(Vec::new(), schema, IpcWriteOptions::default())?.into_inner()
        };
        let bytes = write(&self.0).map_err(serde::ser::Error::custom)?;
        serializer.serialize_str(&bytes.iter().map(|b| format!("{b:02x}")).collect::<String>())
    }
}

impl<'de> Deserialize<'de> for WireSchema {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        let text = String::deserialize(deserializer)?;
        let digit = |d: &u8| char::from(*d).to_digit(16).ok_or_else(|| D::Error::custom("no schema"));
        let pair = |pair: &[u8]| match pair {
            [high, low] => Ok((digit(high)? << 4 | digit(low)?) as u8),
            _ => Err(D::Error::custom("half a byte of a schema")),
        };
        let bytes = text.as_bytes().chunks(2).map(pair).collect::<Result<Vec<u8>, _>>()?;
        let reader = StreamReader::try_new(bytes.as_slice(), None).map_err(D::Error::custom)?;
        Ok(Self(reader.schema()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use arrow::datatypes::{DataType, Field};
    use proptest::prelude::*;

    #[test]
    fn a_schema_travels_with_its_metadata() {
        let item = Arc::new(Field::new("item", DataType::Float32, false));
        let series = Field::new("series", DataType::FixedSizeList(item, 284), true)
            .with_metadata([("unit".into(), "µV".into())].into());
        let schema = Schema::new_with_metadata(vec![series], [("grid".into(), "{}".into())].into());
        let wire = WireSchema(Arc::new(schema));
        let bytes = write_settings("Node", &wire).unwrap();
        assert_eq!(read_settings::<WireSchema>("Node", &bytes).unwrap(), wire);
    }

    #[test]
    fn a_node_of_another_build_is_refused_by_name() {
        let context = TaskContext::default();
        let refusal = decode("AstralExec", b"{}", &[], &context).unwrap_err().to_string();
        assert!(refusal.contains("no plan node `AstralExec`") && refusal.contains("same build"), "{refusal}");
    }

    proptest! {
        #[test]
        fn what_no_node_has_written_is_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let context = TaskContext::default();
            for codec in codecs() {
                prop_assert!(decode(codec.name, &bytes, &[], &context).is_err());
            }
        }

        #[test]
        fn what_is_no_schema_is_refused(text in "[0-9a-fx]{0,120}") {
            let json = serde_json::to_vec(&text).unwrap();
            prop_assert!(read_settings::<WireSchema>("Node", &json).is_err());
        }
    }
}
