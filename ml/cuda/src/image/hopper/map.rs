//! What the copy engine is told of an array.

use crate::{Error, Precision, Result, Values, memory::Memory};
use cudarc::driver::sys::{
    CUresult, CUtensorMap, CUtensorMapDataType, CUtensorMapFloatOOBfill, CUtensorMapInterleave,
    CUtensorMapL2promotion, CUtensorMapSwizzle, cuTensorMapEncodeTiled,
};

/// The values of `precision`, those of float32 rounded to 10 bits of mantissa on the way.
pub(super) fn rounded(precision: Precision) -> CUtensorMapDataType {
    match precision {
        Precision::Bf16 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        _ => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_TFLOAT32,
    }
}

/// Values as they are.
pub(super) fn plain(values: Values) -> CUtensorMapDataType {
    match values {
        Values::Bf16 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        _ => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
    }
}

/// The driver's description of an array of `sizes`, innermost first, without gaps, of which boxes are copied.
pub(super) fn map(
    memory: &Memory,
    kind: CUtensorMapDataType,
    sizes: &[usize],
    of_box: &[usize],
) -> Result<[u64; 16]> {
    let rank = sizes.len();
    let (mut dimensions, mut strides, mut boxes, ones) = ([1u64; 5], [0u64; 5], [1u32; 5], [1u32; 5]);
    let mut bytes = memory.kind().size() as u64;
    for i in 0..rank {
        dimensions[i] = sizes[i] as u64;
        boxes[i] = of_box[i] as u32;
        bytes *= dimensions[i];
        strides[i] = bytes;
    }
    let mut found = CUtensorMap { opaque: [0; 16] };
    // SAFETY: all pointers are to arrays of at least `rank` values, which live until it returns.
    let result = unsafe {
        cuTensorMapEncodeTiled(
            &raw mut found,
            kind,
            rank as u32,
            memory.at(0) as *mut _,
            dimensions.as_ptr(),
            strides.as_ptr(),
            boxes.as_ptr(),
            ones.as_ptr(),
            CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
            CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    };
    if result != CUresult::CUDA_SUCCESS {
        let reason = format!("{result:?} for an array of {sizes:?} in boxes of {of_box:?}");
        return Err(Error::failed("describing an image", reason));
    }
    Ok(found.opaque)
}
