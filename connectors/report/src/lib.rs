//! voxelflow-report
