"""The former name of the downloads of `torch.hub`, which ddpgrad refuses."""

from __future__ import annotations

from tqdm.auto import tqdm

from ..hub import load_state_dict_from_url as load_url

__all__ = ["load_url", "tqdm"]
