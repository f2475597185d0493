//! voxelflow-operators
