"""New tensors: of given values, from data, of random numbers; and exchange with other libraries."""
