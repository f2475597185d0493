//! Slices of numbers as the bytes of the wire, which are little-endian: where memory is little-endian too they are
//! the same bytes, and no value is touched.

use half::bf16;

#[cfg(target_endian = "little")]
pub(super) fn put_f32<E>(values: &[f32], mut put: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
    put(bytemuck::cast_slice(values))
}

#[cfg(not(target_endian = "little"))]
pub(super) fn put_f32<E>(values: &[f32], mut put: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
    values.iter().try_for_each(|value| put(&value.to_le_bytes()))
}

#[cfg(target_endian = "little")]
pub(super) fn put_bf16<E>(values: &[bf16], mut put: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
    put(bytemuck::cast_slice(values))
}

#[cfg(not(target_endian = "little"))]
pub(super) fn put_bf16<E>(values: &[bf16], mut put: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
    values.iter().try_for_each(|value| put(&value.to_le_bytes()))
}

pub(super) fn take_f32<E>(
    values: &mut [f32],
    take: impl FnOnce(&mut [u8]) -> Result<(), E>,
) -> Result<(), E> {
    take(bytemuck::cast_slice_mut(values))?;
    if cfg!(target_endian = "big") {
        values.iter_mut().for_each(|value| *value = f32::from_bits(value.to_bits().swap_bytes()));
    }
    Ok(())
}

pub(super) fn take_bf16<E>(
    values: &mut [bf16],
    take: impl FnOnce(&mut [u8]) -> Result<(), E>,
) -> Result<(), E> {
    take(bytemuck::cast_slice_mut(values))?;
    if cfg!(target_endian = "big") {
        values.iter_mut().for_each(|value| *value = bf16::from_bits(value.to_bits().swap_bytes()));
    }
    Ok(())
}
