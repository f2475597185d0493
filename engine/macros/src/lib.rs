//! The attribute that makes a function a driver program: `#[voxelflow::main]`.
//!
//! (`voxelflow::function!` is a declarative macro and lives with the functions it registers, in the dataset
//! crate.)

mod driver_main;

use proc_macro::TokenStream;

/// Makes `async fn main(session: Session) -> Result<()>` the `main` of a driver program.
///
/// The program reads its command line (`--out`, `--cluster`, …), gets a `Session`, runs the function on a
/// runtime of its own, prints an error with its cause, and exits with 0 when done, 1 when the job failed and
/// 2 when the input was wrong.
///
/// ```text
/// use voxelflow::prelude::*;
///
/// #[voxelflow::main]
/// async fn main(session: Session) -> Result<()> {
///     println!("{} rows", session.read_parquet("rows.parquet").await?.count().await?);
///     Ok(())
/// }
/// ```
#[proc_macro_attribute]
pub fn main(attributes: TokenStream, item: TokenStream) -> TokenStream {
    driver_main::expand(attributes.into(), item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}
