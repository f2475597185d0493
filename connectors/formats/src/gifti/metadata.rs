//! Names and values that a file or an array carries.

use crate::Result;
use crate::xml::Xml;

/// Names and values in the file's order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    entries: Vec<(String, String)>,
}

impl Metadata {
    /// The value of `name`, the first if there are several.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.entries.iter().find(|(known, _)| known == name).map(|(_, value)| &value[..])
    }

    /// All names with their values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.entries.iter().map(|(name, value)| (&name[..], &value[..]))
    }

    /// Reads `MetaData`, which was entered.
    pub(crate) fn read(xml: &mut Xml) -> Result<Self> {
        let mut entries = Vec::new();
        while let Some(child) = xml.child()? {
            if child.name != "MD" {
                xml.skip()?;
                continue;
            }
            let (mut name, mut value) = (None, String::new());
            while let Some(part) = xml.child()? {
                match &part.name[..] {
                    "Name" => name = Some(xml.text("Name")?.trim().to_owned()),
                    "Value" => value = xml.text("Value")?.trim().to_owned(),
                    _ => xml.skip()?,
                }
            }
            let name = name.ok_or_else(|| xml.fault("MD", "it has no Name".into()))?;
            entries.push((name, value));
        }
        Ok(Self { entries })
    }
}
