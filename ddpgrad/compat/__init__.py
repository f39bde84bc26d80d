"""PyTorch's other names: switches, pass-throughs, absent parts, former places of what lies elsewhere here."""
