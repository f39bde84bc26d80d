"""`torch.distributed.elastic`: restarts are ddprun's; here are the names that scripts import."""
