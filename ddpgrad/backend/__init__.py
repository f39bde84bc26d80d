"""Where bytes live and what computes on them: devices, element types, kernels by name."""
