"""What a network is, as far as anything kept on its behalf depends on it.

`aces.networks.fingerprint` covers the weights. Two networks of the same weights can compute
different things: a Python attribute differs (a temperature, a switch), a buffer that is not saved, a
hook, or the code of a class. `identity` covers these too. It keys caches and scratch, so that
nothing computed for one network is ever taken for another.
"""

import functools
import types
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn

from aces.extension import source_file
from aces.files import digest, digest_of
from aces.networks.files import fingerprint

# Of nn.Module's own attributes, those that say nothing about what a network computes in eval mode,
# or that are described in another way.
_OWN = frozenset(vars(nn.Module())) - {"_forward_hooks", "_forward_pre_hooks"}
_DEEPEST = 12  # levels of attributes within attributes


def identity(module: nn.Module) -> str:
    """sha256 (hex) of the weights, all buffers, the Python attributes, the hooks and the code of a
    network, and of the version of torch.
    """
    parts: list[object] = [fingerprint(module), torch.__version__]
    tensors = [*module.named_parameters(), *module.named_buffers()]
    parts += [(name, describe(tensor)) for name, tensor in tensors]
    classes = set()
    for name, part in module.named_modules():
        classes.add(type(part))
        attributes = {key: value for key, value in vars(part).items() if key not in _OWN}
        parts.append((name, _name(type(part)), describe(attributes)))
    parts += sorted(_code_of_class(each) for each in classes)
    return digest_of(*parts)


def describe(value: object, depth: int = 0) -> object:
    """The value as something whose repr is the same whenever the value is."""
    if depth > _DEEPEST:
        return _name(type(value))
    inner = functools.partial(describe, depth=depth + 1)
    match value:
        case None | bool() | int() | float() | complex() | str() | bytes():
            return value
        case Tensor():
            array = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
            return (str(value.dtype), tuple(value.shape), digest_of(array))
        case np.ndarray() if value.dtype != object:
            return digest_of(value)
        case list() | tuple():
            return [_name(type(value)), *map(inner, value)]
        case dict():
            return [_name(type(value)), *((repr(inner(k)), inner(v)) for k, v in value.items())]
        case set() | frozenset():
            return sorted(repr(inner(each)) for each in value)
        case nn.Module():
            return _name(type(value))  # a part of the network, described on its own
        case type():
            return _code_of_class(value)
        case types.FunctionType():
            cells = [inner(cell.cell_contents) for cell in value.__closure__ or () if _filled(cell)]
            return [
                _name(value),
                _file(value),
                _code(value.__code__),
                inner(value.__defaults__),
                cells,
            ]
        case types.MethodType():
            return [inner(value.__func__), _name(type(value.__self__))]
        case functools.partial():
            return [inner(value.func), inner(value.args), inner(value.keywords)]
    attributes = getattr(value, "__dict__", None)
    if isinstance(attributes, dict):
        return [_code_of_class(type(value)), inner(attributes)]
    # torch.dtype, torch.device, enumerations, pathlib paths; an address is no part of a value
    text = repr(value)
    return [_name(type(value)), text if " at 0x" not in text else ""]


def _filled(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _code_of_class(kind: type) -> str:
    """The code of a class and of what it inherits, as it is loaded, and the files it comes from.

    Classes of torch, numpy and Python itself are named only: their versions speak for them.
    """
    own = [base for base in kind.__mro__ if not base.__module__.startswith(_LIBRARIES)]
    functions = [
        (name, _code(function.__code__))
        for base in own
        for name, member in sorted(vars(base).items())
        for function in _functions(member)
    ]
    return digest_of(_name(kind), functions, sorted(filter(None, map(_file, own))))


_LIBRARIES = ("torch.", "builtins", "collections", "abc", "typing", "numpy", "enum")


def _functions(member: object) -> Iterator[types.FunctionType]:
    """The functions behind a member of a class."""
    if isinstance(member, (staticmethod, classmethod)):
        member = member.__func__
    for each in (member.fget, member.fset) if isinstance(member, property) else (member,):
        if isinstance(each, types.FunctionType):
            yield each


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


def _file(thing: object) -> str | None:
    file = source_file(thing)
    return None if file is None else digest(file)


def _name(thing: object) -> str:
    return f"{getattr(thing, '__module__', '')}.{getattr(thing, '__qualname__', thing)}"
