//! The files of `deploy/` that can be run without their cluster.

use crate::program::{program, root};
use std::process::Command;

#[test]
fn the_slurm_script_runs_a_pipeline_with_what_was_granted() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("one.vf");
    std::fs::write(&file, "SELECT $x + 1 AS answer;").unwrap();
    let script = root().join("deploy/slurm/voxelflow.sbatch");
    let binary = program("voxelflow").get_program().to_owned();
    let ended = Command::new("bash")
        .arg(&script)
        .args([file.as_os_str(), folder.path().join("out").as_os_str()])
        .args(["--set", "x=41"])
        .envs([("SLURM_CPUS_PER_TASK", "2"), ("SLURM_MEM_PER_NODE", "2048")])
        .env("VOXELFLOW", binary)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(
        ended.status.success() && said.contains("42"),
        "{said}{}",
        String::from_utf8_lossy(&ended.stderr)
    );
    assert_eq!(Command::new("bash").arg(&script).output().unwrap().status.code(), Some(2));
}
