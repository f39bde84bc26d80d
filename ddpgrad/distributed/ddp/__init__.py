"""Data parallelism: buckets, the reducer, DistributedDataParallel, sharded optimizer state."""
