//! Keys that are found in the environment and in profiles open the real server.

use crate::{child, servers};
use object_store::ObjectStoreExt;
use voxelflow_storage::StoreRegistry;

/// Writes and reads by what the environment says.
fn works() {
    let location = StoreRegistry::default().resolve("s3://tests/environment/x").unwrap();
    let written = async {
        location.store.put(&location.path, "here".into()).await?;
        location.store.get(&location.path).await?.bytes().await
    };
    assert_eq!(tokio::runtime::Runtime::new().unwrap().block_on(written).unwrap(), "here");
}

#[test]
fn keys_of_the_environment() {
    if child::is_child() {
        return works();
    }
    let Some(server) = servers::s3() else { return };
    let variables = [
        ("AWS_ACCESS_KEY_ID", servers::ACCESS_KEY),
        ("AWS_SECRET_ACCESS_KEY", servers::SECRET_KEY),
        ("AWS_ENDPOINT_URL", &server.endpoint),
    ];
    child::run("environment::keys_of_the_environment", &variables);
}

#[test]
fn a_profile_with_keys_and_endpoint() {
    if child::is_child() {
        return works();
    }
    let Some(server) = servers::s3() else { return };
    let home = tempfile::tempdir().unwrap();
    let (id, secret) = (servers::ACCESS_KEY, servers::SECRET_KEY);
    let keys = format!("[lab]\naws_access_key_id = {id}\naws_secret_access_key = {secret}\n");
    let config =
        format!("[profile lab]\nregion = eu-central-1\ns3 =\n  endpoint_url = {}\n", server.endpoint);
    std::fs::create_dir(home.path().join(".aws")).unwrap();
    std::fs::write(home.path().join(".aws/credentials"), keys).unwrap();
    std::fs::write(home.path().join(".aws/config"), config).unwrap();
    let variables = [("HOME", home.path().to_str().unwrap()), ("AWS_PROFILE", "lab")];
    child::run("environment::a_profile_with_keys_and_endpoint", &variables);
}
