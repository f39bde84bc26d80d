"""For type checkers: `ddpgrad.onnx` is `ddpgrad.extras.onnx`, by the table in compat/aliases.py."""

from .extras.onnx import *
