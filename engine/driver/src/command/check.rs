//! `voxelflow check FILE`.

use crate::{
    Result, Session,
    flags::CheckFlags,
    pipeline::{self, PipelineFile, Place},
};

pub(super) async fn check(flags: CheckFlags) -> Result<()> {
    let CheckFlags { file: flags, cluster } = flags;
    let place = if cluster.is_some() { Place::Elsewhere } else { Place::Here };
    let variables = flags.set.iter().cloned().collect();
    let file = PipelineFile::read(&flags.file, &variables)?;
    let session = Session::builder().out(&flags.out).build()?;
    let checked = pipeline::check(&file, &session, &flags.out, place).await?;
    let all = file.statements.len();
    let rest = match all - checked {
        0 => String::new(),
        n => format!("; {n} more can only be checked once what they read has been written"),
    };
    say!("{}: {checked} of {all} statements checked, no faults{rest}", file.name);
    Ok(())
}
