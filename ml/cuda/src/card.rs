//! One card of this machine.

use crate::{
    Error, Result,
    error::During,
    kernels,
    libraries::{self, Part},
};
use cudarc::{
    cublas::{CudaBlas, sys::cublasSetWorkspace_v2},
    driver::{
        CudaContext, CudaFunction, CudaModule, CudaSlice, CudaStream, DevicePtr, DeviceRepr, ValidAsZeroBits,
        sys::{CUdevice_attribute, CUresult},
    },
    nvrtc::Ptx,
};
use std::sync::{Arc, Mutex};

/// Kernels of our own.
const SOURCE: &str = concat!(
    include_str!("kernels/common.cu"),
    include_str!("kernels/pooling.cu"),
    include_str!("kernels/edges.cu"),
    include_str!("kernels/hidden.cu"),
    include_str!("kernels/update.cu"),
);
/// Bytes that cuBLAS may use beside its operands: its own choice on Hopper.
const WORKSPACE: usize = 32 << 20;

/// A card: its context, a stream that computes, one that copies, a cuBLAS handle on the first, and our kernels.
///
/// Streams are ordered by hand: the bindings' tracking of who reads what is off, since it cannot be captured in graphs.
/// Who uses more than [`Card::stream`] orders them with events.
#[derive(Debug)]
pub struct Card {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    copies: Arc<CudaStream>,
    blas: CudaBlas,
    module: Mutex<Option<Arc<CudaModule>>>,
    workspace: CudaSlice<u8>,
    name: String,
    multiprocessors: usize,
    capability: (i32, i32),
}

impl Card {
    /// Opens card `ordinal`, counted from 0. It takes about half a second, once a process.
    ///
    /// # Errors
    /// No driver, no such card or too old a one, no cuBLAS: all the user's ([`Error::is_input`]); a card that fails.
    pub fn open(ordinal: usize) -> Result<Self> {
        let found = Self::count()?;
        if ordinal >= found {
            let found = match found {
                0 => "no card".to_owned(),
                1 => "1 card, cuda:0".to_owned(),
                n => format!("{n} cards, cuda:0 to cuda:{}", n - 1),
            };
            return Err(Error::NoCard { ordinal, found });
        }
        libraries::find(Part::Cublas)?;
        let context = CudaContext::new(ordinal).during("opening")?;
        // SAFETY: streams are ordered by events wherever more than one is used.
        unsafe { context.disable_event_tracking() };
        let name = context.name().during("opening")?;
        let capability = context.compute_capability().during("opening")?;
        if capability < (8, 0) {
            let found = format!("{}.{}", capability.0, capability.1);
            return Err(Error::TooOld { ordinal, name, found, needed: "8.0 (Ampere)" });
        }
        let stream = context.new_stream().during("opening")?;
        let copies = context.new_stream().during("opening")?;
        let blas = CudaBlas::new(stream.clone()).during("opening cuBLAS")?;
        // SAFETY: cuBLAS writes before it reads; the workspace lives as long as the handle.
        let workspace = unsafe { stream.alloc::<u8>(WORKSPACE) }.during("cuBLAS's workspace")?;
        let multiprocessors = context
            .attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
            .during("opening")?;
        let card = Self {
            context,
            stream,
            copies,
            blas,
            module: Mutex::new(None),
            workspace,
            name,
            multiprocessors: usize::try_from(multiprocessors).unwrap_or(1).max(1),
            capability,
        };
        card.give_workspace()?;
        Ok(card)
    }

    /// Cards of this machine.
    ///
    /// # Errors
    /// No driver on this machine.
    pub fn count() -> Result<usize> {
        libraries::find(Part::Driver)?;
        match CudaContext::device_count() {
            Err(e) if e.0 == CUresult::CUDA_ERROR_NO_DEVICE => Ok(0),
            other => Ok(usize::try_from(other.during("counting cards")?).unwrap_or(0)),
        }
    }

    /// What cuBLAS uses must not be allocated within a graph.
    fn give_workspace(&self) -> Result<()> {
        let (pointer, _) = self.workspace.device_ptr(&self.stream);
        // SAFETY: the workspace lives as long as the handle.
        let status = unsafe { cublasSetWorkspace_v2(*self.blas.handle(), pointer as *mut _, WORKSPACE) };
        status.result().during("opening cuBLAS")
    }

    /// The driver's context.
    pub fn context(&self) -> &Arc<CudaContext> {
        &self.context
    }

    /// The stream that computes; cuBLAS is on it.
    pub fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    /// A stream for copies that go on while the other computes.
    pub fn copies(&self) -> &Arc<CudaStream> {
        &self.copies
    }

    /// cuBLAS on [`Self::stream`]. Its handle is for one thread at a time.
    pub fn blas(&self) -> &CudaBlas {
        &self.blas
    }

    /// As its maker names it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Major and minor number of what it can do; 9.0 is Hopper.
    pub fn capability(&self) -> (i32, i32) {
        self.capability
    }

    /// How many multiprocessors it has.
    pub fn multiprocessors(&self) -> usize {
        self.multiprocessors
    }

    /// Bytes of its memory that are free, and all of them.
    ///
    /// # Errors
    /// A card that fails.
    pub fn memory(&self) -> Result<(usize, usize)> {
        self.context.mem_get_info().during("asking for its memory")
    }

    /// Room for `n` values, all zero.
    ///
    /// # Errors
    /// A card without room for them.
    pub fn zeros<T: DeviceRepr + ValidAsZeroBits>(
        &self,
        n: usize,
        what: &'static str,
    ) -> Result<CudaSlice<T>> {
        self.stream.alloc_zeros(n.max(1)).during(what).map_err(|e| match e {
            Error::Memory { .. } => Error::Memory { bytes: n * size_of::<T>(), what },
            other => other,
        })
    }

    /// Waits until all that was asked of it is done.
    ///
    /// # Errors
    /// What failed since it was last asked.
    pub fn wait(&self) -> Result<()> {
        self.copies.synchronize().during("copies")?;
        self.stream.synchronize().during("kernels")
    }

    /// Compiles our kernels, or reads them from the cache, and loads them; afterwards they are there.
    ///
    /// # Errors
    /// No NVRTC on this machine, or a card that fails.
    pub fn warm_up(&self) -> Result<()> {
        self.module().map(drop)
    }

    /// One of our kernels.
    ///
    /// # Errors
    /// As [`Self::warm_up`].
    pub fn kernel(&self, name: &str) -> Result<CudaFunction> {
        let module = self.module()?;
        module.load_function(name).map_err(|e| Error::failed("a kernel", format!("{name}: {:?}", e.0)))
    }

    fn module(&self) -> Result<Arc<CudaModule>> {
        let mut kept = self.module.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(module) = kept.as_ref() {
            return Ok(module.clone());
        }
        let image = kernels::compiled(SOURCE, self.capability, kernels::cache_folder().as_deref())?;
        let module = self.context.load_module(Ptx::from_binary(image)).during("loading kernels")?;
        *kept = Some(module.clone());
        Ok(module)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_a_card_says_so() {
        match Card::open(97) {
            Err(e) => assert!(e.is_input() && e.to_string().contains("device => 'cpu'"), "{e}"),
            Ok(card) => assert!(!card.name().is_empty()),
        }
    }
}
