//! voxelflow-storage
