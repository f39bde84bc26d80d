"""A folder for Python's path: its modules replace those of PyTorch."""
