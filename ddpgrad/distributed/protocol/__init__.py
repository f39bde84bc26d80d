"""What all ranks agree on: signatures compared before data moves, plain data, and the order of sums."""
