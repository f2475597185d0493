//! Arrows between crates run one way: a crate depends only on crates that stand before it.

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, PackageId};
use std::collections::{BTreeMap, BTreeSet};

/// Lowest first. A crate may use the crates of its own duty that stand before it, and of another duty
/// only what `ALLOWED_ACROSS` lists.
const LAYERS: &[(&str, &str)] = &[
    ("engine", "voxelflow-macros"),
    ("engine", "voxelflow-dataset"),
    ("engine", "voxelflow-pipeline"),
    ("ml", "voxelflow-sync"),
    ("ml", "voxelflow-stage"),
    ("ml", "voxelflow-signal"),
    ("ml", "voxelflow-nn"),
    ("ml", "voxelflow-operators"),
    ("connectors", "voxelflow-formats"),
    ("connectors", "voxelflow-storage"),
    ("connectors", "voxelflow-tables"),
    ("connectors", "voxelflow-synth"),
    ("connectors", "voxelflow-report"),
    ("composition", "voxelflow"),
    ("outside", "voxelflow-examples"),
    ("outside", "voxelflow-integration-tests"),
];

/// Uses of another duty: operators turn stages into plan nodes; tables carry the grid that stages read
/// and find masks; reports show models. The composition root and what stands outside see everything.
const ALLOWED_ACROSS: &[(&str, &[&str])] = &[
    ("voxelflow-operators", &["voxelflow-dataset"]),
    ("voxelflow-tables", &["voxelflow-stage", "voxelflow-signal"]),
    ("voxelflow-synth", &["voxelflow-stage"]),
    ("voxelflow-report", &["voxelflow-stage"]),
];

/// Heavy libraries and the only crates that may name them.
const NAMED_ONLY_BY: &[(&str, &[&str])] = &[
    ("burn", &["voxelflow-nn"]),
    (
        "datafusion",
        &["voxelflow-dataset", "voxelflow-pipeline", "voxelflow-operators", "voxelflow-tables", "voxelflow"],
    ),
];

/// Crates that must compile without those libraries, directly or through others.
const LIGHT: &[&str] =
    &["voxelflow-formats", "voxelflow-signal", "voxelflow-sync", "voxelflow-stage", "voxelflow-storage"];

/// Two versions of one of these cannot exchange batches, stores or plans.
const ONE_VERSION: &[&str] = &["arrow", "arrow-array", "parquet", "object_store", "datafusion", "burn"];

fn metadata() -> Metadata {
    MetadataCommand::new().other_options(vec!["--locked".into()]).exec().expect("cargo metadata")
}

/// Workspace package → names of its direct dependencies (not of its tests).
fn direct(metadata: &Metadata) -> BTreeMap<String, BTreeSet<String>> {
    let of = |package: &cargo_metadata::Package| {
        let normal = package.dependencies.iter().filter(|d| d.kind != DependencyKind::Development);
        normal.map(|d| d.name.clone()).collect()
    };
    metadata.workspace_packages().into_iter().map(|p| (p.name.to_string(), of(p))).collect()
}

#[test]
fn arrows_run_one_way() {
    let metadata = metadata();
    let direct = direct(&metadata);
    let place = |name: &str| LAYERS.iter().position(|(_, n)| *n == name);
    let mut wrong = Vec::new();
    for (name, dependencies) in &direct {
        let Some(own) = place(name) else {
            wrong.push(format!("{name} has no place in LAYERS"));
            continue;
        };
        for dependency in dependencies {
            let Some(other) = place(dependency) else { continue };
            let duty = LAYERS[own].0;
            let across = ALLOWED_ACROSS.iter().find(|(n, _)| n == name).map_or(&[][..], |(_, allowed)| allowed);
            let allowed = duty == "composition"
                || duty == "outside"
                || LAYERS[other].0 == duty
                || across.contains(&dependency.as_str());
            if other >= own || !allowed {
                wrong.push(format!("{name} must not depend on {dependency}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(direct.len(), LAYERS.len(), "LAYERS names a crate that is not there");
}

#[test]
fn heavy_libraries_are_named_where_they_belong() {
    let direct = direct(&metadata());
    for (library, only) in NAMED_ONLY_BY {
        for (name, dependencies) in &direct {
            let named = dependencies.iter().any(|d| d == library || d.starts_with(&format!("{library}-")));
            assert!(!named || only.contains(&name.as_str()), "{name} must not name {library}");
        }
    }
}

#[test]
fn light_crates_stay_light() {
    let metadata = metadata();
    let resolve = metadata.resolve.as_ref().expect("resolved graph");
    let name = |id: &PackageId| metadata[id].name.to_string();
    for light in LIGHT {
        let mut seen = BTreeSet::new();
        let mut open: Vec<&PackageId> =
            resolve.nodes.iter().map(|n| &n.id).filter(|id| name(id) == *light).collect();
        while let Some(id) = open.pop() {
            if !seen.insert(id) {
                continue;
            }
            let node = resolve.nodes.iter().find(|n| n.id == *id).expect("node of the graph");
            let normal = |d: &&cargo_metadata::NodeDep| {
                d.dep_kinds.iter().any(|k| k.kind == DependencyKind::Normal)
            };
            open.extend(node.deps.iter().filter(normal).map(|d| &d.pkg));
        }
        for heavy in ["datafusion", "burn"] {
            assert!(!seen.iter().any(|id| name(id) == heavy), "{light} reaches {heavy}");
        }
    }
}

#[test]
fn one_version_of_what_is_exchanged() {
    let metadata = metadata();
    for library in ONE_VERSION {
        let versions: Vec<String> = metadata
            .packages
            .iter()
            .filter(|p| p.name.as_str() == *library)
            .map(|p| p.version.to_string())
            .collect();
        assert_eq!(versions.len(), 1, "{library} is in the tree {} times: {versions:?}", versions.len());
    }
}
