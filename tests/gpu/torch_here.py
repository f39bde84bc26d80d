"""PyTorch, where it is installed and can use the device, with float32 that is multiplied as float32."""

import importlib
import sys
from importlib.util import find_spec
from typing import Any


def pytorch(device: str) -> Any:
    """The module, or None with a line that says why: not installed, without CUDA, or on the stand-in."""
    if device == "cuda" and "fakecuda" in sys.modules:
        reason = "the GPU is a stand-in, which PyTorch does not know"
    elif find_spec("torch") is None:
        reason = "PyTorch is not installed"
    else:
        torch = importlib.import_module("torch")
        if device == "cpu" or torch.cuda.is_available():
            torch.backends.cudnn.allow_tf32 = False  # as is its default for products
            print(f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}", flush=True)
            return torch
        reason = f"PyTorch {torch.__version__} finds no GPU"
    print(f"left out: PyTorch's figures ({reason})", flush=True)
    return None


def wait(torch: Any, device: str) -> None:
    """Until the device has done what it was given."""
    if device == "cuda":
        torch.cuda.synchronize()
