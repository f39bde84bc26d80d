"""What programs set around `save` and `load`: the order of bytes, how files are mapped, where storages belong."""

from __future__ import annotations

import enum
import mmap
import sys
from collections.abc import Callable
from typing import Any

from ..backend.device import Device

Tagger = Callable[[Any], str | None]
Restorer = Callable[[Any, str], Any]

_packages: list[tuple[int, Tagger, Restorer]] = []


class LoadEndianness(enum.Enum):
    """The order of bytes in files that do not say theirs."""

    NATIVE = 1
    LITTLE = 2
    BIG = 3


_options: dict[str, Any] = {"endianness": None, "mmap": mmap.MAP_PRIVATE, "crc32": True, "skips": False}


def get_default_load_endianness() -> LoadEndianness | None:
    """What `set_default_load_endianness` was given last."""
    return _options["endianness"]


def set_default_load_endianness(endianness: LoadEndianness | None) -> None:
    """The order of bytes in files that do not say theirs; None is the machine's. TypeError for what is no LoadEndianness."""
    if endianness is not None and not isinstance(endianness, LoadEndianness):
        raise TypeError(
            f"Invalid argument type in function set_default_load_endianness: {type(endianness).__name__}"
        )
    _options["endianness"] = endianness


def unmarked_order() -> str:
    """'little' or 'big': the order of bytes in files that do not say theirs."""
    chosen = get_default_load_endianness()
    return sys.byteorder if chosen in (None, LoadEndianness.NATIVE) else chosen.name.lower()


class _Restores:
    """An option set at once; as a context manager it is put back at the end of the block."""

    _option: str

    def __init__(self, value: Any) -> None:
        self._before = _options[self._option]
        _options[self._option] = value

    def __enter__(self) -> _Restores:
        return self

    def __exit__(self, *error: object) -> None:
        _options[self._option] = self._before


class set_default_mmap_options(_Restores):
    """How `load(mmap=True)` maps files: `mmap.MAP_PRIVATE`, or `mmap.MAP_SHARED` to write into the file."""

    _option = "mmap"

    def __init__(self, flags: int) -> None:
        if flags not in (mmap.MAP_PRIVATE, mmap.MAP_SHARED):
            raise ValueError(
                "Invalid argument in function set_default_mmap_options, expected mmap.MAP_PRIVATE or "
                f"mmap.MAP_SHARED, but got {flags}"
            )
        super().__init__(flags)


def get_default_mmap_options() -> int:
    """`mmap.MAP_PRIVATE`, or what `set_default_mmap_options` was given."""
    return _options["mmap"]


def set_crc32_options(compute_crc32: bool) -> None:
    """Accepted: files get checksums in any case, and `load` compares them."""
    _options["crc32"] = compute_crc32


def get_crc32_options() -> bool:
    """What `set_crc32_options` was given, True by default."""
    return _options["crc32"]


class skip_data(_Restores):
    """A block in which `save` writes zeros in place of elements, and `load` leaves them as memory happens to be."""

    _option = "skips"

    def __init__(self) -> None:
        super().__init__(_options["skips"])

    def __enter__(self) -> skip_data:
        _options["skips"] = True
        return self


def skips_data() -> bool:
    """Whether this is within `skip_data`."""
    return _options["skips"]


def register_package(priority: int, tagger: Tagger, deserializer: Restorer) -> None:
    """Name, and find again, the place of storages.

    tagger: a storage -> the name that files have for its place, or None. deserializer: a storage and the name that a
    file has for its place -> the storage there, or None. The lowest priority is asked first; the devices of this
    package, by their names, are asked last.
    """
    _packages.append((priority, tagger, deserializer))
    _packages.sort(key=lambda package: package[0])


def location_tag(storage: Any) -> str:
    """The name that files have for the place of `storage`."""
    return next((tag for _, tagger, _ in _packages if (tag := tagger(storage))), str(storage.device))


def default_restore_location(storage: Any, location: str) -> Any:
    """`storage` where `location` says; RuntimeError for a place that nobody knows."""
    for _, _, deserializer in _packages:
        if (restored := deserializer(storage, location)) is not None:
            return restored
    try:
        return storage.untyped().to(device=Device(location))
    except ValueError:
        raise RuntimeError(
            f"don't know how to restore data location of {type(storage).__name__} (tagged with {location})"
        ) from None


def registered() -> bool:
    """Whether anybody names places."""
    return bool(_packages)
