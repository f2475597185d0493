//! `voxelflow run FILE`.

use crate::{
    Result,
    flags::RunFlags,
    pipeline::{self, PipelineFile, RunOptions, summary_table},
    progress::ProgressStyleKind,
};
use voxelflow_dataset::build_id;

pub(super) async fn run(flags: RunFlags, json: bool) -> Result<()> {
    let variables = flags.file.set.iter().cloned().collect();
    let file = PipelineFile::read(&flags.file.file, &variables)?;
    let options = RunOptions {
        out: flags.file.out,
        fresh: flags.fresh,
        keep_results: flags.keep_results,
        progress: ProgressStyleKind::detect(json),
        memory_limit: flags.file.memory.bytes(),
        cluster: flags.cluster,
    };
    let outcomes = pipeline::run(&file, &options).await?;
    if json {
        for outcome in &outcomes {
            say!(
                "{}",
                serde_json::json!({
                    "statement": outcome.title,
                    "note": outcome.note.text(),
                    "result": outcome.record,
                })
            );
        }
        return Ok(());
    }
    say!("{}", summary_table(&outcomes)?);
    let other = outcomes.iter().any(|outcome| outcome.note.other_build().is_some());
    if other {
        say!("this is build {}; --keep-results keeps what other builds have made", &build_id()?[..12]);
    }
    say!("everything lies in {}", options.out.display());
    Ok(())
}
