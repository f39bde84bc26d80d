"""Names that PyTorch has elsewhere: switches, pass-throughs, absent parts, aliases of modules."""
