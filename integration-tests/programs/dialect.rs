//! Asks one process and two executors what golden files say, and fails where an answer is another one.
//!
//! The arguments are golden files. Each has tables, queries with the rows that a reference tool gives, and queries that
//! are refused at a column of their only line. `{here}` in a query is the golden file's folder.

#[path = "query_fuzz/answer.rs"]
#[allow(dead_code)]
mod answer;

use answer::Answer;
use serde::Deserialize;
use std::path::Path;
use voxelflow::{Error, Result, Session};

#[derive(Deserialize)]
struct Golden {
    /// Files and folders that are tables as they are.
    #[serde(default)]
    files: Vec<Files>,
    #[serde(default)]
    tables: Vec<Table>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Files {
    name: String,
    /// Below the golden file.
    path: String,
}

#[derive(Deserialize)]
struct Table {
    name: String,
    query: String,
}

#[derive(Deserialize)]
struct Case {
    query: String,
    #[serde(default)]
    rows: Option<Vec<Vec<String>>>,
    #[serde(default)]
    ordered: bool,
    #[serde(default)]
    refused_at: Option<usize>,
    /// Words of the refusal.
    #[serde(default)]
    says: Vec<String>,
}

#[voxelflow::main]
async fn main(here: Session) -> Result<()> {
    let folder = std::env::temp_dir().join(format!("voxelflow-dialect-{}", std::process::id()));
    let executors =
        Session::builder().out(folder.join("out")).executors(2).slots(2).partitions(3).start().await?;
    let places = [("one process", here), ("two executors", executors)];
    let (mut asked, mut wrong) = (0, Vec::new());
    for file in std::env::args().skip(1) {
        let text = std::fs::read_to_string(&file).map_err(|e| Error::io(Path::new(&file), e))?;
        let here =
            std::path::absolute(Path::new(&file).parent().unwrap_or(Path::new("."))).unwrap_or_default();
        let text = text.replace("{here}", &here.display().to_string());
        let golden: Golden = serde_json::from_str(&text).map_err(|e| Error::input(&file, e))?;
        know(&golden, Path::new(&file), &folder, &places).await?;
        for case in &golden.cases {
            for (place, session) in &places {
                asked += 1;
                if let Err(why) = case.agrees(&run(session, &case.query).await) {
                    wrong.push(format!("{place}: {}\n{why}\n", case.query));
                }
            }
        }
    }
    let _ = std::fs::remove_dir_all(&folder);
    println!("{}\n{asked} answers, {} wrong", wrong.join("\n"), wrong.len());
    match wrong.len() {
        0 => Ok(()),
        some => Err(Error::input("dialect", format!("{some} answers are wrong"))),
    }
}

type Places = [(&'static str, Session); 2];

/// Makes the tables of a golden file known everywhere.
async fn know(golden: &Golden, file: &Path, folder: &Path, places: &Places) -> Result<()> {
    let beside = file.parent().unwrap_or(Path::new("."));
    for Files { name, path } in &golden.files {
        let path = std::path::absolute(beside.join(path)).map_err(|e| Error::io(file, e))?;
        tell(name, &path.display().to_string(), places).await?;
    }
    for Table { name, query } in &golden.tables {
        let location = folder.join(name).display().to_string();
        places[0].1.sql(query).await?.repartition(2).write_parquet(&location).await?;
        tell(name, &location, places).await?;
    }
    Ok(())
}

async fn tell(name: &str, location: &str, places: &Places) -> Result<()> {
    let table = format!("CREATE OR REPLACE EXTERNAL TABLE {name} STORED AS PARQUET LOCATION '{location}'");
    for (_, session) in places {
        session.sql(&table).await?.collect().await?;
    }
    Ok(())
}

async fn run(session: &Session, query: &str) -> Answer {
    let (session, query) = (session.clone(), query.to_owned());
    let work = async move {
        let rows = session.sql(&query).await?.collect().await?;
        Ok::<_, voxelflow::dataset::Error>(answer::rows(&rows))
    };
    match tokio::spawn(work).await {
        Err(e) => Err(format!("panicked: {e}")),
        Ok(answer) => answer.map_err(|e| e.to_string()),
    }
}

/// What a refusal must not have: it is a tree of the parser, or an accident.
const NOT_PLAIN: [&str; 7] = ["Some(", "Ident {", "span:", "Internal error", "panicked", "bug", "backtrace"];

impl Case {
    fn agrees(&self, answer: &Answer) -> Result<(), String> {
        match (answer, &self.rows) {
            (Ok(rows), Some(known)) => {
                let same = match self.ordered {
                    true => rows == known,
                    false => answer::comparable(rows) == answer::comparable(known),
                };
                let shown = || {
                    format!(
                        "  gives {}\n  instead of {}",
                        answer::shown(answer),
                        answer::shown(&Ok(known.clone()))
                    )
                };
                if same { Ok(()) } else { Err(shown()) }
            }
            (Ok(_), None) => Err(format!("  gives {}\n  instead of refusing it", answer::shown(answer))),
            (Err(e), Some(_)) => Err(format!("  is refused: {e}")),
            (Err(e), None) => self.is_refused_as(e),
        }
    }

    fn is_refused_as(&self, error: &str) -> Result<(), String> {
        if let Some(sign) = NOT_PLAIN.iter().find(|sign| error.contains(**sign)) {
            return Err(format!("  is refused in no plain words (`{sign}`): {error}"));
        }
        if let Some(missing) = self.says.iter().find(|words| !error.contains(words.as_str())) {
            return Err(format!("  is refused without `{missing}`: {error}"));
        }
        let Some(column) = self.refused_at else { return Ok(()) };
        let caret = error.lines().last().and_then(|line| line.find('^'));
        // Behind the number of the line: ` 1 | `.
        match caret {
            Some(at) if at == column + 4 => Ok(()),
            _ => Err(format!("  is not refused at column {column}: {error}")),
        }
    }
}
