//! The report as a browser shows it: headless Chromium draws it to a screenshot and gives its document back.
//!
//! The browser is `$VOXELFLOW_CHROMIUM`, or one of its usual names on the path. Where there is none, the tests
//! say that they are skipped; with `CI` set, they fail.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod sample;

use std::{
    collections::HashSet,
    fs::File,
    io::BufReader,
    path::{Path, PathBuf},
    process::{Command, Output},
};

const WIDTH: usize = 1280;
const HEIGHT: usize = 4000;

fn browser() -> Option<PathBuf> {
    let named = std::env::var_os("VOXELFLOW_CHROMIUM").filter(|v| !v.is_empty()).map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let found = named.or_else(|| {
        std::env::split_paths(&path)
            .flat_map(|folder| names.map(|name| folder.join(name)))
            .find(|file| file.is_file())
    });
    if found.is_none() {
        assert!(
            std::env::var_os("CI").is_none_or(|v| v.is_empty()),
            "no Chromium on the path and CI is set: install it or name it in VOXELFLOW_CHROMIUM"
        );
        println!("skipped: no Chromium on the path; name one in VOXELFLOW_CHROMIUM");
    }
    found
}

/// Runs the browser over `page` with a profile of its own.
fn browse(browser: &Path, page: &Path, arguments: &[String]) -> Output {
    let profile = tempfile::tempdir().unwrap();
    let mut command = Command::new(browser);
    command
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args([
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--hide-scrollbars",
        ])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .args(arguments)
        .arg(format!("file://{}", page.display()));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

fn pixels(path: &Path) -> (usize, usize, Vec<[u8; 3]>) {
    let mut reader = png::Decoder::new(BufReader::new(File::open(path).unwrap())).read_info().unwrap();
    let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut bytes).unwrap();
    let channels = info.color_type.samples();
    assert!(channels >= 3, "a colour screenshot");
    let colours = bytes[..info.buffer_size()].chunks_exact(channels).map(|p| [p[0], p[1], p[2]]).collect();
    (info.width as usize, info.height as usize, colours)
}

#[test]
fn a_browser_draws_the_report() {
    let Some(browser) = browser() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (page, picture) = (folder.path().join("report.html"), folder.path().join("report.png"));
    sample::report().write(&page).unwrap();
    let arguments =
        [format!("--screenshot={}", picture.display()), format!("--window-size={WIDTH},{HEIGHT}")];
    browse(&browser, &page, &arguments);

    let (width, height, colours) = pixels(&picture);
    assert_eq!((width, height), (WIDTH, HEIGHT));
    let distinct: HashSet<_> = colours.iter().collect();
    assert!(distinct.len() > 300, "only {} colours: the page is nearly blank", distinct.len());
    // Every stretch of the page shows something, not only its top.
    for (number, stretch) in colours.chunks(WIDTH * 500).enumerate() {
        let distinct: HashSet<_> = stretch.iter().collect();
        assert!(distinct.len() > 20, "rows from {} hold {} colours", number * 500, distinct.len());
    }
}

#[test]
fn the_document_has_its_sections_and_runs_nothing_hostile() {
    let Some(browser) = browser() else { return };
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("report.html");
    sample::report().write(&page).unwrap();
    let output =
        browse(&browser, &page, &["--dump-dom".into(), format!("--window-size={WIDTH},{}", 4 * HEIGHT)]);
    let document = String::from_utf8(output.stdout).unwrap();
    for id in ["ran", "quality", "results", "models", "model-1", "maps", "map-1", "map-2", "outputs"] {
        assert!(document.contains(&format!("id=\"{id}\"")), "section {id}");
    }
    assert!(document.contains("<title>Resting state, one subject</title>"), "a script changed the title");
    assert!(!document.contains("<script>document.title"));
    // The viewer has unpacked both volumes: three canvases each, and a first reading.
    assert_eq!(document.matches("<canvas").count(), 6);
    assert!(document.contains("click or drag to move"));
    assert!(document.contains("<span>L</span><span>R</span>"));
}
