//! How an application's binary is started as one of its parts: the command lines of `voxelflow scheduler` and
//! `voxelflow executor`, which every driver program answers.

use super::{grant::Grant, message::Role};
use crate::local_cluster::THREADS;
use std::{net::IpAddr, path::Path, process::Command};

/// Bytes of stack of threads: plans are deep, and so is the recursion over them.
const STACK_BYTES: usize = 32 << 20;

/// Where and within what a part runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    pub binary: &'a Path,
    /// The machine's address, under which the others reach it.
    pub address: IpAddr,
    pub grant: &'a Grant,
    /// The file of the application's key.
    pub key: &'a Path,
    /// Its folder for shuffled rows.
    pub work_dir: &'a Path,
    pub public: bool,
}

/// The command that starts `role` there.
pub(crate) fn command(role: &Role, place: &Place<'_>) -> Command {
    let Place { binary, address, grant, key, work_dir, public } = *place;
    let mut command = Command::new(binary);
    command.env("RUST_MIN_STACK", STACK_BYTES.to_string());
    command.args([&role.to_string(), "--child", "--bind", &address.to_string()]);
    command.arg("--cluster-key").arg(key);
    if public {
        command.arg("--public");
    }
    match role {
        Role::Scheduler => {
            command.args(["--port", "0"]);
        }
        Role::Executor { scheduler } => {
            let cores = grant.resources.cores.to_string();
            command.args(["--scheduler", &format!("df://{scheduler}"), "--slots", &cores]);
            command.args(["--memory-mib", &grant.resources.memory_mib.to_string()]);
            command.args(["--cards", &grant.resources.cards.to_string()]).arg("--work-dir").arg(work_dir);
            let cards: Vec<String> = grant.cards.iter().map(usize::to_string).collect();
            // Kernels see what was granted, not what the machine has.
            command.env(THREADS, &cores).env("CUDA_VISIBLE_DEVICES", cards.join(","));
        }
    }
    command
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::node::grant::Resources;

    fn arguments(role: &Role) -> (String, Vec<(String, String)>) {
        let grant = Grant { resources: Resources { cores: 3, memory_mib: 700, cards: 2 }, cards: vec![1, 3] };
        let place = Place {
            binary: Path::new("/cache/b"),
            address: "10.0.0.7".parse().unwrap(),
            grant: &grant,
            key: Path::new("/work/key"),
            work_dir: Path::new("/work/shuffle"),
            public: false,
        };
        let command = command(role, &place);
        let text = |s: &std::ffi::OsStr| s.to_str().unwrap().to_owned();
        let all = command.get_args().map(text).collect::<Vec<_>>().join(" ");
        (all, command.get_envs().filter_map(|(k, v)| Some((text(k), text(v?)))).collect())
    }

    #[test]
    fn an_executor_is_limited_to_its_grant() {
        let (arguments, environment) =
            arguments(&Role::Executor { scheduler: "10.0.0.1:50050".parse().unwrap() });
        let expected = "executor --child --bind 10.0.0.7 --cluster-key /work/key --scheduler df://10.0.0.1:50050 \
                        --slots 3 --memory-mib 700 --cards 2 --work-dir /work/shuffle";
        assert_eq!(arguments, expected);
        let of = |name: &str| environment.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str());
        assert_eq!(of("CUDA_VISIBLE_DEVICES"), Some("1,3"));
        assert_eq!(of("RAYON_NUM_THREADS"), Some("3"));
    }

    #[test]
    fn a_scheduler_takes_any_free_port() {
        let (arguments, _) = arguments(&Role::Scheduler);
        assert_eq!(arguments, "scheduler --child --bind 10.0.0.7 --cluster-key /work/key --port 0");
    }
}
