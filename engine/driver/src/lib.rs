//! voxelflow
