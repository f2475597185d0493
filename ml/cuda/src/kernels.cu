// Kernels; see the modules that launch them.
