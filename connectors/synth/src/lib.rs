//! voxelflow-synth
