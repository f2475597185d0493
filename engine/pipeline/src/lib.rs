//! voxelflow-pipeline
