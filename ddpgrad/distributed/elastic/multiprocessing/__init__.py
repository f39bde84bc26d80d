"""`torch.distributed.elastic.multiprocessing`."""
