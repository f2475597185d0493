//! Arrows between crates run one way: a crate depends only on crates that stand before it.

use serde::Deserialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
};

/// Lowest first. A crate may use the crates of its own duty that stand before it, and of another duty
/// only what `ALLOWED_ACROSS` lists.
const LAYERS: &[(&str, &str)] = &[
    ("engine", "voxelflow-macros"),
    ("engine", "voxelflow-dataset"),
    ("engine", "voxelflow-pipeline"),
    ("ml", "voxelflow-sync"),
    ("engine", "voxelflow-cluster"),
    ("ml", "voxelflow-stage"),
    ("ml", "voxelflow-signal"),
    ("ml", "voxelflow-cuda"),
    ("ml", "voxelflow-ridge"),
    ("ml", "voxelflow-encoding"),
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

/// Uses of another duty: the cluster's own channels have the credentials and the encryption of `sync`; operators
/// turn stages into plan nodes; tables carry the grid that stages read,
/// find masks, and tell the engine's ledger what they have met; data with planted truth answer to designs; reports show models. The composition root and what stands outside see everything.
const ALLOWED_ACROSS: &[(&str, &[&str])] = &[
    ("voxelflow-cluster", &["voxelflow-sync"]),
    ("voxelflow-operators", &["voxelflow-dataset"]),
    ("voxelflow-tables", &["voxelflow-dataset", "voxelflow-stage", "voxelflow-signal"]),
    ("voxelflow-synth", &["voxelflow-stage", "voxelflow-signal"]),
    ("voxelflow-report", &["voxelflow-stage"]),
];

/// Heavy libraries and the only crates that may name them.
const NAMED_ONLY_BY: &[(&str, &[&str])] = &[
    ("burn", &["voxelflow-nn"]),
    ("faer", &["voxelflow-ridge", "voxelflow-encoding"]),
    ("cudarc", &["voxelflow-cuda"]),
    (
        "datafusion",
        &[
            "voxelflow-dataset",
            "voxelflow-pipeline",
            "voxelflow-cluster",
            "voxelflow-operators",
            "voxelflow-tables",
            "voxelflow",
            // Its test programs have gang functions of their own.
            "voxelflow-integration-tests",
        ],
    ),
    // Strangers speak its protocol.
    ("ballista-core", &["voxelflow-cluster", "voxelflow-integration-tests"]),
    ("ballista-scheduler", &["voxelflow-cluster"]),
    ("ballista-executor", &["voxelflow-cluster"]),
];

/// Crates that must compile without those libraries, directly or through others.
const LIGHT: &[&str] = &[
    "voxelflow-formats",
    "voxelflow-signal",
    "voxelflow-cuda",
    "voxelflow-ridge",
    "voxelflow-sync",
    "voxelflow-stage",
    "voxelflow-storage",
];

/// Two versions of one of these cannot exchange batches, stores or plans.
const ONE_VERSION: &[&str] = &["arrow", "arrow-array", "parquet", "object_store", "datafusion", "burn"];

/// The part of `cargo metadata` that is looked at. (The crate `cargo_metadata` would change the features of
/// `serde_json` for the whole tree, and so compile it twice: for the program and for the tests.)
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_members: Vec<String>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<NodeDependency>,
}

#[derive(Deserialize)]
struct NodeDependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Deserialize)]
struct DependencyKind {
    kind: Option<String>,
}

fn metadata() -> Metadata {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .output()
        .expect("cargo metadata");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("the metadata of this cargo")
}

impl Metadata {
    fn name(&self, id: &str) -> &str {
        self.packages.iter().find(|p| p.id == id).map(|p| p.name.as_str()).expect("a package of the graph")
    }
}

/// Workspace package → names of its direct dependencies (not of its tests).
fn direct(metadata: &Metadata) -> BTreeMap<String, BTreeSet<String>> {
    let members = metadata.packages.iter().filter(|p| metadata.workspace_members.contains(&p.id));
    let of = |package: &Package| {
        let used = package.dependencies.iter().filter(|d| d.kind.as_deref() != Some("dev"));
        used.map(|d| d.name.clone()).collect()
    };
    members.map(|p| (p.name.clone(), of(p))).collect()
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
            let across =
                ALLOWED_ACROSS.iter().find(|(n, _)| n == name).map_or(&[][..], |(_, allowed)| allowed);
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
    let node = |id: &str| metadata.resolve.nodes.iter().find(|n| n.id == id).expect("node of the graph");
    for light in LIGHT {
        let own = metadata.packages.iter().find(|p| p.name == *light).expect("a package of the workspace");
        let (mut seen, mut open) = (BTreeSet::new(), vec![own.id.as_str()]);
        while let Some(id) = open.pop() {
            if seen.insert(id) {
                let used = node(id).deps.iter().filter(|d| d.dep_kinds.iter().any(|k| k.kind.is_none()));
                open.extend(used.map(|d| d.pkg.as_str()));
            }
        }
        for heavy in ["datafusion", "burn"] {
            assert!(!seen.iter().any(|id| metadata.name(id) == heavy), "{light} reaches {heavy}");
        }
    }
}

#[test]
fn one_version_of_what_is_exchanged() {
    let metadata = metadata();
    for library in ONE_VERSION {
        let versions: Vec<String> =
            metadata.packages.iter().filter(|p| p.name == *library).map(|p| p.version.clone()).collect();
        assert_eq!(versions.len(), 1, "{library} is in the tree {} times: {versions:?}", versions.len());
    }
}
