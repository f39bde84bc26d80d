"""The functions of `utils.data.collate`, under the name that PyTorch programs import them by."""

from ..collate import collate, default_collate, default_collate_fn_map, default_convert

__all__ = ["collate", "default_collate", "default_collate_fn_map", "default_convert"]
