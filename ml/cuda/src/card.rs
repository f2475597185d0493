//! One card of this machine.

use crate::{
    Error, Result,
    error::During,
    kernels,
    launch::MOST_SHARED,
    libraries::{self, Part},
};
use cudarc::{
    cublas::{CudaBlas, sys::cublasSetWorkspace_v2},
    driver::{
        CudaContext, CudaEvent, CudaFunction, CudaModule, CudaSlice, CudaStream, DevicePtr, DeviceRepr,
        ValidAsZeroBits,
        sys::{
            CUdevice_attribute, CUmemAccess_flags, CUmemAccessDesc, CUmemLocation, CUmemLocationType,
            CUresult, cuDeviceCanAccessPeer, cuDeviceGetMemPool, cuMemPoolSetAccess,
        },
    },
    nvrtc::Ptx,
};
use std::sync::{Arc, Mutex};

/// Kernels of our own, by what they are for: each set is compiled when the first of it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Set {
    Series,
    Images,
}

const IMAGES: &str = concat!(
    include_str!("kernels/common.cu"),
    include_str!("kernels/image_tiles.cu"),
    include_str!("kernels/image_around.cu"),
    include_str!("kernels/image_hopper.cu"),
    include_str!("kernels/image_patches.cu"),
    include_str!("kernels/image_strips.cu"),
);
const SERIES: &str = concat!(
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
    modules: Mutex<[Option<Arc<CudaModule>>; 2]>,
    workspace: CudaSlice<u8>,
    name: String,
    multiprocessors: usize,
    most_shared: usize,
    capability: (i32, i32),
}

impl Card {
    /// Opens card `ordinal`, counted from 0. It takes about half a second, once a process.
    ///
    /// # Errors
    /// No driver, no such card or too old a one, no cuBLAS: all the user's ([`Error::is_input`]); a card that fails.
    pub fn open(ordinal: usize) -> Result<Self> {
        Self::check(&[ordinal])?;
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
        let most_shared = context
            .attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
            .during("opening")?;
        let card = Self {
            context,
            stream,
            copies,
            blas,
            modules: Mutex::new([None, None]),
            workspace,
            name,
            multiprocessors: usize::try_from(multiprocessors).unwrap_or(1).max(1),
            most_shared: usize::try_from(most_shared).unwrap_or(0).max(MOST_SHARED),
            capability,
        };
        card.give_workspace()?;
        Ok(card)
    }

    /// Opens several cards, in this order.
    ///
    /// # Errors
    /// As [`Self::open`]; all that are not there are named.
    pub fn open_all(ordinals: &[usize]) -> Result<Vec<Arc<Self>>> {
        Self::check(ordinals)?;
        ordinals.iter().map(|ordinal| Self::open(*ordinal).map(Arc::new)).collect()
    }

    /// Whether this machine has these cards.
    fn check(ordinals: &[usize]) -> Result<()> {
        let found = Self::count()?;
        let missing: Vec<String> =
            ordinals.iter().filter(|ordinal| **ordinal >= found).map(|n| format!("cuda:{n}")).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let found = match found {
            0 => "no card".to_owned(),
            1 => "1 card, cuda:0".to_owned(),
            n => format!("{n} cards, cuda:0 to cuda:{}", n - 1),
        };
        Err(Error::NoCard { missing: missing.join(" and no "), found })
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

    /// Its number and name.
    pub(crate) fn describe(&self) -> String {
        format!("cuda:{} ({})", self.context.ordinal(), self.name)
    }

    /// Major and minor number of what it can do; 9.0 is Hopper.
    pub fn capability(&self) -> (i32, i32) {
        self.capability
    }

    /// How many multiprocessors it has.
    pub fn multiprocessors(&self) -> usize {
        self.multiprocessors
    }

    /// Bytes of shared memory that a block can have.
    pub(crate) fn most_shared(&self) -> usize {
        self.most_shared
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

    /// An event that orders streams, without a time.
    pub(crate) fn event(&self) -> Result<CudaEvent> {
        self.context.new_event(None).during("an event")
    }

    /// Lets `reader` copy from this card's memory without the host, if the cards are connected; true if they are, or are
    /// one card.
    pub(crate) fn lend_memory(&self, reader: &Self) -> Result<bool> {
        if self.context.ordinal() == reader.context.ordinal() {
            return Ok(true);
        }
        let what = "connecting cards";
        let mut can = 0;
        let mut pool = std::ptr::null_mut();
        let access = CUmemAccessDesc {
            location: CUmemLocation {
                type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
                id: reader.context.cu_device(),
            },
            flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        self.context.bind_to_thread().during(what)?;
        // SAFETY: the driver is open, and all pointers are to variables of this function.
        unsafe {
            let (owner, reader) = (self.context.cu_device(), reader.context.cu_device());
            cuDeviceCanAccessPeer(&mut can, reader, owner).result().during(what)?;
            // Memory that is taken without a pool is copied by the host.
            if can == 0 || !self.context.has_async_alloc() {
                return Ok(false);
            }
            cuDeviceGetMemPool(&mut pool, owner).result().during(what)?;
            cuMemPoolSetAccess(pool, &access, 1).result().during(what)?;
        }
        Ok(true)
    }

    /// Compiles our kernels for series, or reads them from the cache, and loads them; afterwards they are there.
    ///
    /// # Errors
    /// No NVRTC on this machine, or a card that fails.
    pub fn warm_up(&self) -> Result<()> {
        self.module(Set::Series).map(drop)
    }

    /// As [`Self::warm_up`], the kernels for images ([`crate::image`]).
    ///
    /// # Errors
    /// As [`Self::warm_up`].
    pub fn warm_up_images(&self) -> Result<()> {
        self.module(Set::Images).map(drop)
    }

    /// One of our kernels for series.
    ///
    /// # Errors
    /// As [`Self::warm_up`].
    pub fn kernel(&self, name: &str) -> Result<CudaFunction> {
        self.kernel_of(Set::Series, name)
    }

    pub(crate) fn kernel_of(&self, set: Set, name: &str) -> Result<CudaFunction> {
        let module = self.module(set)?;
        module.load_function(name).map_err(|e| Error::failed("a kernel", format!("{name}: {:?}", e.0)))
    }

    fn module(&self, set: Set) -> Result<Arc<CudaModule>> {
        let mut kept = self.modules.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let kept = &mut kept[set as usize];
        if let Some(module) = kept.as_ref() {
            return Ok(module.clone());
        }
        let source = if set == Set::Series { SERIES } else { IMAGES };
        let image = kernels::compiled(source, self.capability, kernels::cache_folder().as_deref())?;
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
