"""New tensors: of given values, from data, of random numbers; and tensors for other libraries."""
