"""Writes pickles as PyTorch's `weights_only` reader takes them: protocol 2, a closed set of opcodes.

Plain data has the forms that PyTorch itself writes. Any other object has the form that Python's pickle gives it;
such a file can be written, and is read only where the reader allows its classes.
"""

from __future__ import annotations

import copyreg
import struct
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable
from types import BuiltinFunctionType, FunctionType
from typing import Any

from ..backend.device import Device
from ..backend.dtype import DType
from ..core.attributes import Attributes
from ..core.errors import CheckpointError
from ..core.size import Layout, Size, strided
from ..core.storage import TypedStorage, UntypedStorage
from ..core.tensor import Tensor, wrap
from ..nn.parameter import Parameter
from ..version import TorchVersion
from .safe_globals import layer_place, module_of

Place = tuple[Any, ...]  # the keys and indices that lead to a part of an object
NO_HOOKS = b"ccollections\nOrderedDict\n)R"
_PACKAGE = __name__.partition(".")[0]
_BATCH = 1000  # items between a mark and the opcode that takes them, as in Python's pickle


def in_words(where: Place) -> str:
    """`obj['a'][0]`: a part of an object as errors name it."""
    return "obj" + "".join(f"[{key!r}]" for key in where)


class Writer:
    """Makes a pickle of an object.

    tensor: writes down a tensor or a storage, given this writer, the tensor and its place; what it returns goes into the
    stream, and may be bytes that are only known once all has been seen.
    """

    def __init__(self, tensor: Callable[[Any, Place], bytearray]) -> None:
        self._tensor = tensor
        self._out: list[bytes | bytearray] = [b"\x80\x02"]
        self._memo: dict[Any, int] = {}
        self._alive: list[Any] = []  # addresses are only unique while their owners live
        self._inside: set[int] = set()  # tuples that are being written

    def write(self, obj: Any) -> list[bytes | bytearray]:
        """The stream's pieces, to be joined."""
        try:
            self._value(obj, ())
        except RecursionError:
            raise CheckpointError("the object cannot be written: it is nested too deeply") from None
        self._out.append(b".")
        return self._out

    def _value(self, obj: Any, where: Place) -> None:
        kind = type(obj)
        if kind in _CONSTANTS:
            self._out.append(number(obj))
            return
        key = (kind, obj) if kind in (str, bytes) else id(obj)
        known = self._memo.get(key)
        if known is not None:
            self._out.append(b"h%c" % known if known < 256 else b"j" + struct.pack("<L", known))
            return
        if isinstance(obj, Tensor) and (plain_tensor(kind) or of_the_user(kind)):
            if obj.layout is not strided:
                self._sparse(obj, where)
            else:
                self._out.append(self._tensor(obj, where))
                if obj.__dict__ or not plain_tensor(kind):
                    self._value(_state_of(obj), where)
                    self._out.append(b"tR")
        elif kind in (TypedStorage, UntypedStorage):
            self._out.append(self._tensor(obj, where))
        elif kind in _FORMS:
            _FORMS[kind](self, obj, where)
            if kind in _MUTABLE:
                return
        elif isinstance(obj, (type, FunctionType, BuiltinFunctionType)):
            self._name_of(obj, where)
        else:
            self._reduced(obj, where)
            return
        self._remember(obj, key)

    def _remember(self, obj: Any, key: Any = None) -> None:
        n = len(self._memo)
        self._memo[id(obj) if key is None else key] = n
        self._alive.append(obj)
        self._out.append(b"q%c" % n if n < 256 else b"r" + struct.pack("<L", n))

    def _sparse(self, obj: Tensor, where: Place) -> None:
        """A sparse tensor, as `_rebuild_sparse_tensor` of its layout, its parts and its size makes it again."""
        array, parameter = obj._array, isinstance(obj, Parameter)
        if parameter:
            self._out.append(b"ctorch._utils\n_rebuild_parameter\n")
        self._out.append(b"ctorch._utils\n_rebuild_sparse_tensor\n")
        self._layout(obj.layout, where)
        self._out.append(b"(")
        self._out += [self._tensor(wrap(part), where) for part in array.parts().values()]
        size = b"ctorch\nSize\n" + numbers(array.shape) + b"\x85R"
        coalesced = number(array.coalesced) if array.layout == "sparse_coo" else b""
        self._out.append(size + coalesced + b"t\x86R")
        if parameter:
            self._out.append(number(obj.requires_grad) + NO_HOOKS + b"\x87R")

    # -- plain data ----------------------------------------------------------------------

    def _text(self, obj: str, where: Place) -> None:
        self._out.append(text(obj))

    def _bytes(self, obj: bytes, where: Place) -> None:
        self._out.append(b"c_codecs\nencode\n" + text(obj.decode("latin1")) + text("latin1") + b"\x86R")

    def _bytearray(self, obj: bytearray, where: Place) -> None:
        data = text(obj.decode("latin1")) + text("latin-1")
        self._out.append(b"cbuiltins\nbytearray\n" + data + b"\x86R")

    def _complex(self, obj: complex, where: Place) -> None:
        self._out.append(b"cbuiltins\ncomplex\n" + number(obj.real) + number(obj.imag) + b"\x86R")

    def _dtype(self, obj: DType, where: Place) -> None:
        self._out.append(b"ctorch\n%b\n" % obj.name.encode())

    def _device(self, obj: Device, where: Place) -> None:
        self._out.append(device_of(obj))

    def _layout(self, obj: Layout, where: Place) -> None:
        self._out.append(b"ctorch.serialization\n_get_layout\n" + text(repr(obj)) + b"\x85R")

    def _size(self, obj: Size, where: Place) -> None:
        self._out.append(b"ctorch\nSize\n" + numbers(obj) + b"\x85R")

    def _tuple(self, obj: tuple[Any, ...], where: Place) -> None:
        if id(obj) in self._inside:
            raise CheckpointError(f"cannot save {in_words(where)}: it contains itself")
        self._inside.add(id(obj))
        if 0 < len(obj) <= 3:
            for i, item in enumerate(obj):
                self._value(item, (*where, i))
            self._out.append((b"\x85", b"\x86", b"\x87")[len(obj) - 1])
        elif not obj:
            self._out.append(b")")
        else:
            self._out.append(b"(")
            for i, item in enumerate(obj):
                self._value(item, (*where, i))
            self._out.append(b"t")
        self._inside.discard(id(obj))

    def _set(self, obj: Any, where: Place) -> None:
        name = type(obj).__name__.encode()
        self._out.append(b"cbuiltins\n%b\n]" % name)
        self._items(sorted(obj, key=repr), where)  # one set, one file
        self._out.append(b"\x85R")

    def _list(self, obj: list[Any], where: Place) -> None:
        self._out.append(b"]")
        self._remember(obj)
        self._items(obj, where)

    def _dict(self, obj: dict[Any, Any], where: Place) -> None:
        self._out.append(b"}")
        self._remember(obj)
        self._pairs(obj.items(), where)

    def _ordered(self, obj: OrderedDict[Any, Any], where: Place) -> None:
        self._out.append(b"ccollections\nOrderedDict\n)R")
        self._remember(obj)
        self._pairs(obj.items(), where)
        if vars(obj):  # `_metadata` of a state_dict
            self._value(vars(obj), where)
            self._out.append(b"b")

    def _items(self, items: Iterable[Any], where: Place) -> None:
        items = list(items)
        for first in range(0, len(items), _BATCH):
            self._out.append(b"(")
            for i, item in enumerate(items[first : first + _BATCH], first):
                self._value(item, (*where, i))
            self._out.append(b"e")

    def _pairs(self, items: Iterable[tuple[Any, Any]], where: Place) -> None:
        pairs = list(items)
        for first in range(0, len(pairs), _BATCH):
            self._out.append(b"(")
            for key, value in pairs[first : first + _BATCH]:
                self._value(key, where)
                self._value(value, (*where, key))
            self._out.append(b"u")

    # -- everything else -----------------------------------------------------------------

    def _name_of(self, obj: Any, where: Place) -> None:
        """A class or function, by the name under which it can be imported."""
        self._out.append(name_of(obj, where))

    def _reduced(self, obj: Any, where: Place) -> None:
        """An object as its `__reduce_ex__` takes it apart."""
        reduce = copyreg.dispatch_table.get(type(obj))
        try:
            parts: Any = reduce(obj) if reduce else obj.__reduce_ex__(2)
        except TypeError as error:  # Python's word for "cannot pickle"
            raise CheckpointError(f"cannot save {in_words(where)}: {error}") from None
        if isinstance(parts, str):
            module = getattr(obj, "__module__", "builtins")  # Ellipsis and NotImplemented have none
            self._out.append(f"c{module}\n{parts}\n".encode())
            self._remember(obj)
            return
        function, arguments = parts[:2]
        state, items, pairs = (*parts[2:5], None, None, None)[:3]
        self._alive.append(parts)
        if getattr(function, "__name__", "") == "__newobj__":
            self._value(arguments[0], where)
            self._value(tuple(arguments[1:]), where)
            self._out.append(b"\x81")
        else:
            self._value(function, where)
            self._value(arguments, where)
            self._out.append(b"R")
        self._remember(obj)
        self._items(items or (), where)
        self._pairs(pairs or (), where)
        if state is not None:
            self._value(state, where)
            self._out.append(b"b")


def name_of(obj: Any, where: Place) -> bytes:
    """A class or function in the stream, by the name under which it can be imported."""
    module, name = module_of(obj), obj.__qualname__
    parent = found = sys.modules.get(module)
    for part in name.split("."):
        parent, found = found, getattr(found, part, None)
    if found is not obj:
        raise CheckpointError(
            f"cannot save {in_words(where)}: {module}.{name} is no class or function of a module, so that no "
            "program could find it; save the state_dict, or define it at the top of a module"
        )
    if "." not in name:
        return f"c{layer_place(obj) or module}\n{name}\n".encode()
    # This protocol has names of one part only.
    return b"cbuiltins\ngetattr\n" + name_of(parent, where) + text(obj.__name__) + b"\x86R"


def _state_of(obj: Tensor) -> Any:
    """What a tensor is made again with, besides its elements: attributes, those in slots of the user's classes too."""
    kinds = _users(type(obj))
    if any("__getstate__" in vars(kind) for kind in kinds):
        return obj.__getstate__()
    slots = {name: getattr(obj, name) for kind in kinds for name in slots_of(kind) if hasattr(obj, name)}
    return (dict(obj.__dict__), slots) if slots else dict(obj.__dict__)


def slots_of(kind: type) -> tuple[str, ...]:
    """The slots that a class declares itself."""
    slots = vars(kind).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _users(kind: type) -> list[type]:
    return [k for k in kind.__mro__ if k.__module__.partition(".")[0] not in (_PACKAGE, "torch", "builtins")]


def of_the_user(kind: type) -> bool:
    """True for a class of tensors that a program has made, unless it says itself how it is taken apart."""
    methods = ("__reduce_ex__", "__reduce__", "full_tensor")
    kinds = _users(kind)
    return bool(kinds) and not any(name in vars(k) for k in kinds for name in methods)


def plain_tensor(kind: type) -> bool:
    """True for the classes of tensors that files know; an object of another class is taken apart as any object."""
    ours = kind is Tensor or kind.__module__.partition(".")[0] in (_PACKAGE, "torch")
    return ours and not hasattr(kind, "materialize") and not hasattr(kind, "full_tensor")


def text(value: str) -> bytes:
    """A string in the stream."""
    data = value.encode("utf-8", "surrogatepass")
    if len(data) > 0xFFFFFFFF:
        raise CheckpointError(
            "the object cannot be written: a string of more than 4 GiB; put it into a tensor"
        )
    return b"X" + struct.pack("<L", len(data)) + data


def device_of(value: Device) -> bytes:
    """A device in the stream."""
    index = b"\x85" if value.index is None else number(value.index) + b"\x86"
    return b"ctorch\ndevice\n" + text(value.type) + index + b"R"


def number(value: Any) -> bytes:
    """None, a bool, an int or a float in the stream."""
    if value is None:
        return b"N"
    if value is True or value is False:
        return b"\x88" if value else b"\x89"
    if type(value) is float:
        return b"G" + struct.pack(">d", value)
    if 0 <= value < 256:
        return b"K%c" % value
    if 0 <= value < 65536:
        return b"M" + struct.pack("<H", value)
    if -(1 << 31) <= value < 1 << 31:
        return b"J" + struct.pack("<l", value)
    data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a%c" % len(data) + data if len(data) < 256 else b"\x8b" + struct.pack("<L", len(data)) + data


def numbers(values: Iterable[int]) -> bytes:
    """A tuple of ints in the stream."""
    return b"(" + b"".join(map(number, values)) + b"t"


STRIDED = b"ctorch.serialization\n_get_layout\n" + text("torch.strided") + b"\x85R"


def of_meta(tensor: Tensor, where: Place) -> bytes:
    """A tensor on meta in the pickle: its dtype, sizes and steps."""
    out = b"(" + dtype_name(tensor) + numbers(tuple(tensor.shape)) + numbers(tensor.stride())
    out += number(tensor.requires_grad and not isinstance(tensor, Parameter))
    return rebuilt(tensor, b"_rebuild_meta_tensor_no_storage", out, where)


def of_wrapper(tensor: Tensor, where: Place) -> bytes:
    """A tensor of a class that answers for it, which has no memory of its own: what `_make_wrapper_subclass` is given."""
    out = (
        b"("
        + name_of(type(tensor), where)
        + dtype_name(tensor)
        + numbers(tensor.shape)
        + numbers(tensor.stride())
    )
    out += number(tensor.storage_offset()) + STRIDED + device_of(tensor.device) + number(tensor.requires_grad)
    return rebuilt(tensor, b"_rebuild_wrapper_subclass", out, where)


def dtype_name(tensor: Tensor) -> bytes:
    return f"ctorch\n{tensor.dtype.name}\n".encode()


def rebuilt(tensor: Tensor, function: bytes, arguments: bytes, where: Place) -> bytes:
    """A call in the pickle that makes `tensor` again; of one with attributes all but them and the end, as `Writer` adds them."""
    function, arguments = b"ctorch._utils\n" + function + b"\n", arguments + b"t"
    users = not plain_tensor(type(tensor))
    if users or not isinstance(tensor, Parameter):
        if users or tensor.__dict__:
            kind = name_of(type(tensor), where) if users else b"ctorch\nTensor\n"
            return b"ctorch._tensor\n_rebuild_from_type_v2\n(" + function + kind + arguments
        return function + arguments + b"R"
    more = number(tensor.requires_grad) + NO_HOOKS
    if tensor.__dict__:
        return b"ctorch._utils\n_rebuild_parameter_with_state\n(" + function + arguments + b"R" + more
    return b"ctorch._utils\n_rebuild_parameter\n" + function + arguments + b"R" + more + b"\x87R"


_CONSTANTS = frozenset({type(None), bool, int, float})
_MUTABLE = frozenset({list, dict, OrderedDict})  # remembered before their items, which may lead back to them
_FORMS: dict[type, Callable[[Writer, Any, Place], None]] = {
    str: Writer._text,
    TorchVersion: Writer._text,
    bytes: Writer._bytes,
    bytearray: Writer._bytearray,
    complex: Writer._complex,
    DType: Writer._dtype,
    Device: Writer._device,
    Layout: Writer._layout,
    Attributes: lambda writer, obj, where: writer._dict(dict(obj), where),
    Size: Writer._size,
    tuple: Writer._tuple,
    set: Writer._set,
    frozenset: Writer._set,
    list: Writer._list,
    dict: Writer._dict,
    OrderedDict: Writer._ordered,
}
