//! voxelflow-nn
