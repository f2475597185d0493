//! Eigendecompositions of symmetric matrices, by cuSOLVER.

use super::{Matrix, wrong};
use crate::{Card, During, Part as Library, Result, find};
use cudarc::{
    cusolver::{
        result as solver,
        safe::DnHandle,
        sys::{
            cublasFillMode_t, cudaDataType, cusolverDnParams_t, cusolverDnXsyevd,
            cusolverDnXsyevd_bufferSize, cusolverEigMode_t,
        },
    },
    driver::DevicePtr,
};

/// Decomposes the symmetric matrix whose lower triangle is in `a`: gives its eigenvalues, ascending, and leaves the
/// eigenvectors in the columns of `a`. `None`: it did not converge.
///
/// # Errors
/// A card without room for the workspace ([`eigen_workspace`]), or that fails; no cuSOLVER on this machine.
pub fn eigen(card: &Card, a: &mut Matrix) -> Result<Option<Vec<f64>>> {
    let solver = Solver::open(card)?;
    let [on_card, on_host] = solver.workspace(card, a)?;
    let values = card.zeros::<f64>(a.rows, "eigenvalues")?;
    let info = card.zeros::<i32>(1, "eigenvalues")?;
    let work = card.zeros::<u8>(on_card, "the eigendecomposition's workspace")?;
    let mut host = vec![0u8; on_host];
    // SAFETY: sizes are those that cuSOLVER asked for; everything lives until the stream is waited for below.
    let status = unsafe {
        cusolverDnXsyevd(
            solver.handle.cu(),
            solver.parameters,
            cusolverEigMode_t::CUSOLVER_EIG_MODE_VECTOR,
            cublasFillMode_t::CUBLAS_FILL_MODE_LOWER,
            a.rows as i64,
            F64,
            a.column(card, 0) as *mut _,
            a.rows as i64,
            F64,
            values.device_ptr(card.stream()).0 as *mut _,
            F64,
            work.device_ptr(card.stream()).0 as *mut _,
            on_card,
            host.as_mut_ptr().cast(),
            on_host,
            info.device_ptr(card.stream()).0 as *mut i32,
        )
    };
    status.result().during(SOLVER)?;
    let failed = card.stream().clone_dtoh(&info).during(SOLVER)?;
    let found = card.stream().clone_dtoh(&values).during(SOLVER)?;
    card.wait()?;
    Ok((failed == [0]).then_some(found))
}

/// Bytes that [`eigen`] needs on the card, beside a matrix of `size` rows.
///
/// # Errors
/// No cuSOLVER on this machine; a card that fails.
pub fn eigen_workspace(card: &Card, size: usize) -> Result<usize> {
    // What is asked for depends on the shape alone: the matrix is not looked at.
    let a = Matrix { values: card.zeros(1, "eigenvalues")?, rows: size, columns: size };
    Solver::open(card)?.workspace(card, &a).map(|[on_card, _]| on_card)
}

const SOLVER: &str = "an eigendecomposition on the card";
const F64: cudaDataType = cudaDataType::CUDA_R_64F;

/// cuSOLVER on the card's computing stream.
struct Solver {
    handle: DnHandle,
    parameters: cusolverDnParams_t,
}

impl Drop for Solver {
    fn drop(&mut self) {
        // SAFETY: made in `open`, and destroyed only here.
        let _ = unsafe { solver::dn_destroy_params(self.parameters) };
    }
}

impl Solver {
    fn open(card: &Card) -> Result<Self> {
        find(Library::Cusolver)?;
        let handle = DnHandle::new(card.stream().clone()).during(SOLVER)?;
        Ok(Self { handle, parameters: solver::dn_create_params().during(SOLVER)? })
    }

    /// Bytes on the card and in this machine's memory.
    fn workspace(&self, card: &Card, a: &Matrix) -> Result<[usize; 2]> {
        if a.rows != a.columns {
            return wrong(SOLVER, format!("{} × {} is not square", a.rows, a.columns));
        }
        let (mut on_card, mut on_host) = (0, 0);
        // SAFETY: both sizes are written; what the pointers point to is not looked at.
        let status = unsafe {
            cusolverDnXsyevd_bufferSize(
                self.handle.cu(),
                self.parameters,
                cusolverEigMode_t::CUSOLVER_EIG_MODE_VECTOR,
                cublasFillMode_t::CUBLAS_FILL_MODE_LOWER,
                a.rows as i64,
                F64,
                a.column(card, 0) as *const _,
                a.rows as i64,
                F64,
                a.column(card, 0) as *const _,
                F64,
                &mut on_card,
                &mut on_host,
            )
        };
        status.result().during(SOLVER)?;
        Ok([on_card, on_host])
    }
}
