//! voxelflow-tables
