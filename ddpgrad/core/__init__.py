"""What everything else stands on: the Tensor, its size and modes, errors, environment, rank-local state."""
