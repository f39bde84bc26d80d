"""The base of all other packages: the Tensor, its size and modes, errors, environment, state of a rank."""
