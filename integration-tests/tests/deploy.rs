//! The files of `deploy/`, run where that needs no cluster, and read against the real command line where it does.

use crate::program::{Ended, files_below, program, root};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

fn deploy() -> PathBuf {
    root().join("deploy")
}

fn binary() -> PathBuf {
    program("voxelflow").get_program().into()
}

#[test]
fn the_slurm_script_runs_a_pipeline_with_what_was_granted() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("one.vf");
    fs::write(&file, "SELECT $x + 1 AS answer;").unwrap();
    let script = deploy().join("slurm/voxelflow.sbatch");
    let ended: Ended = Command::new("bash")
        .arg(&script)
        .args([file.as_os_str(), folder.path().join("out").as_os_str()])
        .args(["--set", "x=41"])
        .envs([("SLURM_CPUS_PER_TASK", "2"), ("SLURM_MEM_PER_NODE", "2048")])
        .env("VOXELFLOW", binary())
        .output()
        .unwrap()
        .into();
    assert!(ended.expect_code(0).stdout.contains("42"));
    assert_eq!(Command::new("bash").arg(&script).output().unwrap().status.code(), Some(2));
}

/// Slurm's commands as they are on a cluster whose nodes are all this machine.
fn slurm(folder: &Path) -> String {
    let command = |name: &str, script: &str| {
        let path = folder.join(name);
        fs::write(&path, format!("#!/bin/bash\n{script}\n")).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    command(
        "srun",
        "while [[ \"$1\" == --* ]]; do [[ \"$1\" == --nodes=* ]] && nodes=${1#--nodes=}; shift; done\n\
         trap 'kill $(jobs -p) 2> /dev/null; wait; exit 143' TERM\n\
         for _ in $(seq \"$nodes\"); do \"$@\" & done\nwait",
    );
    command("scontrol", "[ \"$1 $2\" = 'show hostnames' ] && echo \"$3\"");
    format!("{}:{}", folder.display(), std::env::var("PATH").unwrap())
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn cluster_script(folder: &Path, nodes: usize, target: &Path, arguments: &[&str]) -> Ended {
    Command::new("bash")
        .arg(deploy().join("slurm/cluster.sbatch"))
        .args([target.as_os_str(), folder.join("out").as_os_str()])
        .args(arguments)
        .current_dir(root())
        .env("PATH", slurm(folder))
        .env("VOXELFLOW", binary())
        .env("VOXELFLOW_PORT", free_port().to_string())
        .env("SLURM_JOB_NUM_NODES", nodes.to_string())
        .envs([
            ("SLURM_CPUS_PER_TASK", "1"),
            ("SLURM_MEM_PER_NODE", "2048"),
            ("SLURMD_NODENAME", "localhost"),
        ])
        .env("SLURM_JOB_NODELIST", "localhost")
        .output()
        .unwrap()
        .into()
}

/// What a script has left in a folder for temporary files, and processes that it has left.
fn leftovers(folder: &Path) -> Vec<String> {
    let keys = files_below(&folder.join("out")).into_iter().filter(|name| name.contains("cluster-key"));
    let mine = folder.display().to_string();
    let running = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let command = fs::read(entry.ok()?.path().join("cmdline")).ok()?;
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        (command.contains(&mine) && !command.contains("cargo")).then_some(command)
    });
    keys.chain(running).collect()
}

#[test]
fn the_slurm_cluster_script_runs_a_pipeline_on_executors() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("one.vf");
    let rows = root().join("examples/data/ds003_sub-01_mc.nii.gz");
    let text = format!(
        "CREATE EXTERNAL TABLE bold STORED AS NIFTI LOCATION '{}' OPTIONS (mask 'none');
         SELECT DISTINCT $x + 41 AS answer FROM bold;",
        rows.display()
    );
    fs::write(&file, text).unwrap();
    let ended = cluster_script(folder.path(), 2, &file, &["--set", "x=1"]).expect_code(0);
    assert!(ended.stdout.contains("| 42 "), "{}{}", ended.stdout, ended.stderr);
    assert_eq!(leftovers(folder.path()), Vec::<String>::new());
    let usage = Command::new("bash").arg(deploy().join("slurm/cluster.sbatch")).output().unwrap();
    assert_eq!(usage.status.code(), Some(2));
}

#[test]
fn the_slurm_cluster_script_runs_a_driver_program_on_agents() {
    let folder = tempfile::tempdir().unwrap();
    let verbs = PathBuf::from(program("verbs").get_program());
    let ended = cluster_script(folder.path(), 1, &verbs, &[]).expect_code(0);
    assert!(ended.stdout.contains("count: 1000"), "{}{}", ended.stdout, ended.stderr);
    assert_eq!(leftovers(folder.path()), Vec::<String>::new());
}

/// Whether the real binary takes these arguments: everything before `--help` is parsed before help is shown.
#[track_caller]
fn assert_parses(arguments: &[String], source: &Path) {
    let ended: Ended = program("voxelflow").args(arguments).arg("--help").output().unwrap().into();
    assert_eq!(
        ended.code,
        Some(0),
        "{}: voxelflow {}\n{}",
        source.display(),
        arguments.join(" "),
        ended.stderr
    );
    let required = ended.stdout.lines().find(|line| line.starts_with("Usage:")).unwrap_or_default();
    for flag in required.split_whitespace().filter(|word| word.starts_with("--")) {
        let given = arguments.iter().any(|argument| argument == flag);
        assert!(given, "{}: voxelflow {} lacks {flag}", source.display(), arguments.join(" "));
    }
}

fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let below = deploy().join(folder);
    let names = files_below(&below).into_iter().filter(|name| name.ends_with(extension));
    let found: Vec<PathBuf> = names.map(|name| below.join(name)).collect();
    assert!(!found.is_empty(), "no {extension} in {}", below.display());
    found
}

#[test]
fn every_command_line_of_kubernetes_parses() {
    let mut seen = Vec::new();
    for file in files("kubernetes", ".yaml") {
        for line in fs::read_to_string(&file).unwrap().lines() {
            let Some(list) = line.trim().strip_prefix("args: ") else { continue };
            let arguments: Vec<String> = serde_json::from_str(list).unwrap();
            let arguments: Vec<String> =
                arguments.iter().map(|a| a.replace("$(POD_IP)", "10.0.0.7")).collect();
            assert_parses(&arguments, &file);
            seen.push(arguments[0].clone());
        }
    }
    seen.sort();
    assert_eq!(seen, ["executor", "node", "run", "scheduler"]);
}

#[test]
fn every_command_line_of_systemd_parses() {
    let text = fs::read_to_string(deploy().join("systemd/cluster.env")).unwrap();
    let settings: Vec<(String, String)> = text
        .lines()
        .filter_map(|line| line.split_once('=').filter(|_| !line.starts_with('#')))
        .map(|(name, value)| (format!("${{{name}}}"), value.to_owned()))
        .collect();
    for file in files("systemd", ".service") {
        let unit = fs::read_to_string(&file).unwrap();
        let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/local/bin/voxelflow "));
        let line = line.unwrap_or_else(|| panic!("{} starts no voxelflow", file.display()));
        let line = settings.iter().fold(line.to_owned(), |line, (name, value)| line.replace(name, value));
        assert!(!line.contains('$'), "{}: a setting is missing in cluster.env: {line}", file.display());
        assert_parses(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>(), &file);
        assert!(file.ends_with(format!("voxelflow-{}.service", line.split(' ').next().unwrap())));
    }
}

#[test]
fn manifests_are_whole_where_they_can_be_checked() {
    let folder = tempfile::tempdir().unwrap();
    for file in files("kubernetes", ".yaml") {
        fs::copy(&file, folder.path().join(file.file_name().unwrap())).unwrap();
    }
    fs::write(folder.path().join("cluster.key"), "a".repeat(64)).unwrap();
    // Offline: what `kubectl apply -k` would send.
    match Command::new("kubectl").arg("kustomize").arg(folder.path()).output() {
        Err(e) => println!("skipped: kubectl is not here ({e})"),
        Ok(built) => {
            let ended = Ended::from(built).expect_code(0);
            for kind in ["Namespace", "Secret", "Deployment", "StatefulSet", "DaemonSet", "NetworkPolicy"] {
                assert!(ended.stdout.contains(&format!("kind: {kind}\n")), "{kind} is missing");
            }
            assert!(
                !ended.stdout.contains("image: voxelflow\n"),
                "every image is named in kustomization.yaml"
            );
        }
    }
    let units = files("systemd", ".service");
    match Command::new("systemd-analyze").arg("verify").args(&units).output() {
        Err(e) => println!("skipped: systemd-analyze is not here ({e})"),
        Ok(verified) => {
            let ended = Ended::from(verified);
            // The binary is not installed here; nothing else may be said.
            let other = |line: &&str| !line.contains("/usr/local/bin/voxelflow is not executable");
            let said: Vec<&str> = ended.stderr.lines().filter(other).collect();
            assert_eq!(said, Vec::<&str>::new());
        }
    }
}
