//! voxelflow-formats
