//! What is particular to HTTP: it is read only, and servers differ in what they can.

use object_store::ObjectStoreExt;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use voxelflow_storage::{StoreRegistry, publish_object};

/// Python's own file server, which gives whole files only; it ends with this value.
struct Server {
    child: Child,
    url: String,
}

impl Server {
    fn of(folder: &std::path::Path) -> Self {
        let mut child = Command::new("python3")
            .args(["-u", "-m", "http.server", "--bind", "127.0.0.1", "0"])
            .current_dir(folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let (_, rest) = line.split_once('(').expect("`Serving HTTP on … (http://…/) ...`");
        let url = rest.split_once("/)").unwrap().0.to_owned();
        Self { child, url }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn a_simple_server_gives_whole_files_and_says_what_it_cannot() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a b.txt"), "0123456789").unwrap();
    let server = Server::of(folder.path());
    let file = StoreRegistry::default().resolve(&format!("{}/a%20b.txt", server.url)).unwrap();
    assert_eq!(file.store.head(&file.path).await.unwrap().size, 10);
    assert_eq!(file.store.get(&file.path).await.unwrap().bytes().await.unwrap(), "0123456789");
    let part = file.store.get_range(&file.path, 2..4).await.unwrap_err();
    assert!(part.to_string().contains("copy the file first"), "{part}");
    let listed = file.store.list_with_delimiter(None).await.unwrap_err();
    assert!(listed.to_string().contains("name the file"), "{listed}");
    let written = publish_object(file.store.as_ref(), &file.path, &b"new"[..]).await.unwrap_err();
    assert!(written.to_string().contains("read only") && written.is_input(), "{written}");
    assert!(file.store.delete(&file.path).await.is_err());
    assert_eq!(std::fs::read_to_string(folder.path().join("a b.txt")).unwrap(), "0123456789");
}
