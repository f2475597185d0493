//! `voxelflow plan FILE`.

use crate::{
    Result, Session,
    flags::FileFlags,
    pipeline::{PipelineFile, plan_text},
};

pub(super) async fn plan(flags: FileFlags) -> Result<()> {
    let variables = flags.set.iter().cloned().collect();
    let file = PipelineFile::read(&flags.file, &variables)?;
    let session = Session::builder().out(&flags.out).memory_limit(flags.memory.bytes()).build()?;
    crate::output::say(format_args!("{}", plan_text(&file, &session, &flags.out).await?));
    Ok(())
}
