//! How much memory this process may have: the machine's, or less where a control group says so, as in a container.
//!
//! ```text
//!   /proc/meminfo                      MemTotal
//!   /proc/self/cgroup                  0::/a/b          version 2 ─► a/b/memory.max, a/memory.max, memory.max
//!                                      9:memory:/a/b    version 1 ─► memory/a/b/memory.limit_in_bytes, …
//! ```
//! A group has no more than the groups that it is in, so the least counts. Within a container the path may be the host's,
//! of which only the container's own group is mounted, at the top: what is not there says nothing.

use std::{
    fs,
    path::{Component, Path},
};

/// Where systems mount control groups; those of version 2 lie in `unified` where both versions are in use.
const MOUNTED_AT: &str = "/sys/fs/cgroup";

/// Bytes that this process may have at most; `None` where the system does not say.
pub fn memory_of_process() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total(&text));
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    machine.into_iter().chain(limit(&groups, Path::new(MOUNTED_AT))).min()
}

/// The memory of `/proc/meminfo`, in bytes.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The least limit of the groups of `/proc/self/cgroup`, which are mounted at `root`, in bytes.
fn limit(groups: &str, root: &Path) -> Option<u64> {
    let limits = groups.lines().flat_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            return Vec::new();
        };
        match controllers {
            "" => ["", "unified"].map(|at| along(&root.join(at), path, "memory.max")).concat(),
            some if some.split(',').any(|controller| controller == "memory") => {
                along(&root.join("memory"), path, "memory.limit_in_bytes")
            }
            _ => Vec::new(),
        }
    });
    limits.min()
}

/// The limits in the files `name` of the group `path` and of all that it is in. One without a limit says `max`.
fn along(mounted: &Path, path: &str, name: &str) -> Vec<u64> {
    let mut folder = mounted.to_owned();
    let mut folders = vec![folder.clone()];
    for part in Path::new(path).components() {
        match part {
            Component::Normal(part) => folder.push(part),
            Component::RootDir | Component::CurDir => continue,
            // A group outside what is mounted.
            Component::ParentDir | Component::Prefix(_) => break,
        }
        folders.push(folder.clone());
    }
    let read = |folder: &std::path::PathBuf| fs::read_to_string(folder.join(name)).ok()?.trim().parse().ok();
    folders.iter().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const GIB: u64 = 1 << 30;

    fn mounted(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn the_machine_says_how_much_it_has() {
        let text = "MemTotal:       24571620 kB\nMemFree:         1003456 kB\n";
        assert_eq!(total(text), Some(24_571_620 * 1024));
        assert_eq!(total("MemFree: 1 kB\n"), None);
        assert!(memory_of_process().is_some_and(|bytes| bytes > 0));
    }

    #[test]
    fn the_least_limit_on_the_way_to_a_group_counts() {
        let two = mounted(&[
            ("a/b/memory.max", "max\n"),
            ("a/memory.max", "4294967296\n"),
            ("memory.max", "9663676416\n"),
            ("other/memory.max", "1\n"),
        ]);
        assert_eq!(limit("0::/a/b\n", two.path()), Some(4 * GIB));
        assert_eq!(limit("0::/\n", two.path()), Some(9 * GIB));
        // The host's path, of which a container sees nothing, and a group beside what is mounted.
        assert_eq!(limit("0::/kubepods/pod1\n", two.path()), Some(9 * GIB));
        assert_eq!(limit("0::/../other\n", two.path()), Some(9 * GIB));
        let none = mounted(&[("a/memory.max", "max\n")]);
        assert_eq!(limit("0::/a\n", none.path()), None);
        assert_eq!(limit("", none.path()), None);
    }

    #[test]
    fn groups_of_version_1_and_of_both_are_known() {
        let one = mounted(&[
            ("memory/docker/c/memory.limit_in_bytes", "2147483648\n"),
            ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("cpu/docker/c/memory.limit_in_bytes", "1\n"),
        ]);
        let groups = "12:cpu,cpuacct:/docker/c\n4:memory:/docker/c\n1:name=systemd:/docker/c\n";
        assert_eq!(limit(groups, one.path()), Some(2 * GIB));
        let both = mounted(&[
            ("unified/a/memory.max", "3221225472\n"),
            ("memory/a/memory.limit_in_bytes", "5368709120\n"),
        ]);
        assert_eq!(limit("4:memory:/a\n0::/a\n", both.path()), Some(3 * GIB));
    }
}
