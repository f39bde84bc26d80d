"""A folder that is put on the path of Python: its modules stand in for PyTorch's."""
