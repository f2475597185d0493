//! A test that needs an environment of its own runs itself again in it.

use std::process::Command;

const MARK: &str = "VOXELFLOW_TEST_CHILD";

/// True in the process that [`run`] has started.
pub fn is_child() -> bool {
    std::env::var_os(MARK).is_some()
}

/// Runs the test `name` of this program again with `variables`, and without what the environment says of stores.
pub fn run(name: &str, variables: &[(&str, &str)]) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture"]);
    for (variable, _) in std::env::vars_os() {
        let variable = variable.to_string_lossy().into_owned();
        if variable.starts_with("AWS_") || variable.starts_with("HADOOP_") {
            command.env_remove(variable);
        }
    }
    let output = command.env(MARK, "1").envs(variables.iter().copied()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}\n{errors}");
}
