//! `voxelflow run FILE`.

use crate::{
    Result,
    flags::RunFlags,
    pipeline::{self, PipelineFile, RunOptions, summary_table},
    progress::ProgressStyleKind,
};

pub(super) async fn run(flags: RunFlags, json: bool) -> Result<()> {
    let variables = flags.file.set.iter().cloned().collect();
    let file = PipelineFile::read(&flags.file.file, &variables)?;
    let options = RunOptions {
        out: flags.file.out,
        fresh: flags.fresh,
        progress: ProgressStyleKind::detect(json),
        memory_limit: flags.file.memory.bytes(),
        cluster: flags.cluster,
    };
    let outcomes = pipeline::run(&file, &options).await?;
    if json {
        for outcome in &outcomes {
            println!(
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
    println!("{}", summary_table(&outcomes)?);
    println!("everything lies in {}", options.out.display());
    Ok(())
}
