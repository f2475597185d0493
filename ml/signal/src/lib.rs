//! voxelflow-signal
