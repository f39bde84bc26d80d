"""`torch.hub`: refused by name, since it runs code and unpickles files from the network."""

from __future__ import annotations

from typing import Any, NoReturn


def _refuse(name: str) -> NoReturn:
    raise NotImplementedError(
        f"torch.hub.{name}: ddpgrad downloads no code and no pickled weights. Download the weights as safetensors, and "
        "read them with ddpgrad.safetensors.load_file into a model built from ddpgrad.nn"
    )


def load(repo_or_dir: str, model: str, *args: Any, **kwargs: Any) -> NoReturn:
    """Refused."""
    _refuse("load")


def load_state_dict_from_url(url: str, *args: Any, **kwargs: Any) -> NoReturn:
    """Refused."""
    _refuse("load_state_dict_from_url")


def list(github: str, *args: Any, **kwargs: Any) -> NoReturn:
    """Refused."""
    _refuse("list")


def download_url_to_file(url: str, dst: str, *args: Any, **kwargs: Any) -> NoReturn:
    """Refused."""
    _refuse("download_url_to_file")


__all__ = ["download_url_to_file", "list", "load", "load_state_dict_from_url"]
