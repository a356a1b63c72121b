"""What a network is, as far as anything kept on its behalf depends on it.

`aces.networks.fingerprint` covers the weights. Two networks of the same weights can compute
different things: a Python attribute differs (a temperature, a switch), a buffer that is not saved, a
hook, the code of a class, or something that this code reads: a constant beside it, a function it
calls, an attribute of the class. `identity` covers these too. It keys caches and scratch, so that
nothing computed for one network is ever taken for another.

Code of torch, numpy and Python itself is named only: their versions speak for it. Of other installed
packages the code of the functions and classes that are met is covered, but not what these read in
turn. What code writes into files, or decides by the time of day, is beyond any identity.
"""

import collections
import dis
import functools
import sys
import sysconfig
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from aces.extension import source_file
from aces.files import digest, digest_of
from aces.networks.files import fingerprint

# Of nn.Module's own attributes, those that say nothing about what a network computes in eval mode,
# or that are described in another way.
_OWN = frozenset(vars(nn.Module()))
_INSTALLED = tuple({sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib")})
# Instances of Python's own classes that hold values of others; the rest are loggers, locks, files.
_HOLDERS = frozenset({"builtins", "collections", "enum", "functools", "types"})
_DEEPEST = 80  # levels of values within values
_NO_VALUES = frozenset(  # members of every class, which no code computes with
    {"__dict__", "__weakref__", "__module__", "__doc__", "__firstlineno__", "__static_attributes__"}
)
_PLAIN = (type(None), bool, int, float, complex, str, bytes)


def identity(module: nn.Module) -> str:
    """sha256 (hex) of the weights, all buffers, the Python attributes, the hooks and the code of a
    network, of what the code reads, and of the version of torch.
    """
    parts: list[object] = [fingerprint(module), torch.__version__, torch.get_default_dtype()]
    parts.append(torch.get_float32_matmul_precision())
    tensors = [*module.named_parameters(), *module.named_buffers()]
    parts += [(name, _tensor(tensor)) for name, tensor in tensors]
    # A layer that is used twice is named twice: without its second place it is another network.
    modules = list(module.named_modules(remove_duplicate=False))
    seen = _Description(known={id(part) for _, part in modules})
    parts += [(name, seen.of_module(part)) for name, part in modules]
    every = (torch_module._global_forward_hooks, torch_module._global_forward_pre_hooks)
    parts += [seen.of(hook) for hooks in every for hook in hooks.values()]
    return digest_of(*parts)


def describe(value: object) -> object:
    """The value as something whose repr is the same whenever the value is."""
    return _Description().of(value)


class _Description:
    """Describes values. What was described before is named by its number: values may refer to each
    other in circles.

    known: the ids of modules that are described elsewhere.
    """

    def __init__(self, known: set[int] | None = None, depth: int = 0):
        self._known, self._depth = known or set(), depth
        self._seen: dict[int, tuple[int, object]] = {}  # by id; kept alive, so that ids stay theirs

    def of(self, value: object) -> object:
        if type(value) in _PLAIN:
            return value
        if id(value) in self._seen:
            return ("described before", self._seen[id(value)][0])
        self._seen[id(value)] = (len(self._seen), value)
        if self._depth > _DEEPEST:
            return _name(type(value))
        self._depth += 1
        try:
            return [_name(type(value)), self._content(value)]
        finally:
            self._depth -= 1

    def of_module(self, module: nn.Module) -> object:
        """The attributes, hooks and code of a module, without its weights and its parts."""
        attributes = {key: value for key, value in vars(module).items() if key not in _OWN}
        hooks = [
            (number in module._forward_pre_hooks_with_kwargs, self.of(hook))
            for number, hook in module._forward_pre_hooks.items()
        ]
        hooks += [
            (number in module._forward_hooks_with_kwargs, self.of(hook))
            for number, hook in module._forward_hooks.items()
        ]
        return [self.of(type(module)), len(module._forward_hooks), hooks, self._dict(attributes)]

    def _content(self, value: object) -> object:
        match value:
            case Tensor():
                return _tensor(value)
            case np.ndarray() if value.dtype != object:
                return digest_of(value)
            case np.ndarray():
                return [value.shape, *map(self.of, value.ravel().tolist())]
            case nn.Module() if id(value) in self._known:
                return "a part of the network"
            case nn.Module():  # one that is not registered, such as an element of a list
                state = [(name, _tensor(it)) for name, it in value.state_dict().items()]
                parts = value.named_modules(remove_duplicate=False)
                return [state, *((name, self.of_module(part)) for name, part in parts)]
            case list() | tuple() | collections.deque():
                return [self.of(each) for each in value]
            case dict() | types.MappingProxyType():
                return self._dict(value)
            case set() | frozenset():  # in no fixed order, so nothing in it is named by a number
                return sorted(map(self._apart, value))
            case type():
                return self._class(value)
            case types.FunctionType():
                return self._function(value)
            case types.MethodType():
                return [self.of(value.__func__), self.of(value.__self__)]
            case types.ModuleType():
                return value.__name__
            case functools.partial():
                return [self.of(value.func), self.of(value.args), self.of(value.keywords)]
            case property():
                return [self.of(each) for each in (value.fget, value.fset)]
            case staticmethod() | classmethod():
                return self.of(value.__func__)
            case types.BuiltinFunctionType():  # torch.relu, or a method of some object
                owner = value.__self__
                return [_name(value), None if isinstance(owner, type) else self.of(owner)]
            case torch.Generator():
                return _tensor(value.get_state())
        return self._object(value)

    def _dict(self, value) -> object:
        return [(self._apart(key), self.of(each)) for key, each in value.items()]

    def _apart(self, value: object) -> str:
        """A description that no other value has a part in."""
        return repr(_Description(self._known, self._depth + 1).of(value))

    def _object(self, value: object) -> object:
        kind = _name(type(value))
        if kind == "torch.fx.graph.Graph":
            return value.python_code("self").src  # type: ignore[attr-defined]
        library = _root(_module(type(value)))
        if kind.startswith("torch._ops.") or (_is_python(library) and library not in _HOLDERS):
            return _repr(value)
        attributes = dict(_attribute(value, "__dict__") or {})
        for base in type(value).__mro__:
            slots = base.__dict__.get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                if name not in ("__dict__", "__weakref__"):
                    attributes[name] = _attribute(value, name)
        if attributes:
            return [self.of(type(value)), self._dict(attributes)]
        return [self.of(type(value)), _repr(value)]  # torch.dtype, torch.device, numpy's functions

    def _class(self, kind: type) -> object:
        """The members of a class and of what it inherits, and the files it comes from."""
        if _is_named_only(kind):
            return _name(kind)
        own = [base for base in kind.__mro__ if not _is_named_only(base)]
        members = [
            (_name(base), name, self.of(member))
            for base in own
            for name, member in sorted(vars(base).items())
            if name not in _NO_VALUES
        ]
        return [_name(kind), members, sorted(filter(None, map(_file, own)))]

    def _function(self, function: types.FunctionType) -> object:
        if _is_named_only(function):
            return _name(function)
        return [
            _name(function),
            _file(function),
            _code(function.__code__),
            self.of(function.__defaults__),
            self.of(function.__kwdefaults__),
            [self.of(_content_of(cell)) for cell in function.__closure__ or ()],
            self.of(vars(function)),  # such as what it wraps
            [] if _is_installed(function) else self._read_by(function),
        ]

    def _read_by(self, function: types.FunctionType) -> list[object]:
        """The values beside a function that its code reads, and of modules the attributes that it
        names: constants, other functions, classes.
        """
        names = sorted(set(_names(function.__code__)))
        found: list[object] = []
        for name in sorted(set(_globals(function.__code__)) & function.__globals__.keys()):
            value = function.__globals__[name]
            found.append((name, self.of(value)))
            if isinstance(value, types.ModuleType) and not _is_named_only(value):
                members = [(each, _attribute(value, each)) for each in names]
                found += [(name, each, self.of(it)) for each, it in members if it is not None]
        return found


def _tensor(value: Tensor) -> object:
    plain = value.detach().cpu()
    plain = plain.dequantize() if plain.is_quantized else plain.to_dense()
    array = plain.resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8).numpy()
    return (str(value.dtype), tuple(value.shape), digest_of(array))


def _content_of(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return "an empty cell"


def _code(code: types.CodeType) -> object:
    """A function's code without the places of its lines."""
    constants: list[object] = []
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            constants.append(_code(each))
        elif isinstance(each, frozenset):  # its order is another one in each process
            constants.append(sorted(map(repr, each)))
        else:
            constants.append(repr(each))
    return (code.co_code, code.co_names, constants)


def _names(code: types.CodeType) -> Iterator[str]:
    """The names of globals and attributes in a code, and in the functions that it makes."""
    yield from code.co_names
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from _names(each)


@functools.lru_cache(maxsize=4096)
def _globals(code: types.CodeType) -> tuple[str, ...]:
    """The globals that a code reads, and the functions that it makes. An attribute may have the name
    of a global that the code has nothing to do with.
    """
    read = [it.argval for it in dis.get_instructions(code) if it.opname in _READS]
    inner = [_globals(each) for each in code.co_consts if isinstance(each, types.CodeType)]
    return tuple(read) + sum(inner, ())


_READS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})


def _attribute(value: object, name: str) -> Any:
    """None where there is none, and where asking for it fails, in whatever way."""
    try:
        return getattr(value, name, None)
    except Exception:
        return None


def _repr(value: object) -> str:
    """What a value says of itself; an address is no part of it."""
    try:
        text = repr(value)
    except Exception:
        return _name(type(value))
    return text if " at 0x" not in text else str(getattr(value, "__qualname__", ""))


def _is_named_only(thing: object) -> bool:
    root = _root(thing.__name__ if isinstance(thing, types.ModuleType) else _module(thing))
    return root in ("torch", "numpy") or _is_python(root)


@functools.cache
def _is_python(root: str) -> bool:
    """Whether a module is Python's own; a file of the user's may have the same name."""
    file = getattr(sys.modules.get(root), "__file__", None)
    return root in sys.stdlib_module_names and (file is None or file.startswith(_INSTALLED))


def _root(name: str) -> str:
    return name.partition(".")[0]


def _is_installed(function: types.FunctionType) -> bool:
    return function.__code__.co_filename.startswith(_INSTALLED)


def _file(thing: object) -> str | None:
    file = source_file(thing)
    return None if file is None else _digest(file, file.stat().st_mtime_ns, file.stat().st_size)


@functools.lru_cache(maxsize=512)
def _digest(file: Path, changed: int, size: int) -> str:
    return digest(file)


def _module(thing: object) -> str:
    return str(getattr(thing, "__module__", None) or "")


def _name(thing: object) -> str:
    return f"{_module(thing)}.{getattr(thing, '__qualname__', thing)}"
