"""Values as JSON and back, for messages from where others can write: reading one never runs its writer's code.

Beside what JSON has there are tuples, bytes, host tensors, numbers that are not finite, and dataclasses and enums of
the modules that a Vocabulary lists. A dataclass is made by its own constructor, which checks it. What can't be data,
such as a kernel's spec with its functions, is sent as a reference, and the reader looks it up in what it has itself.
"""

from __future__ import annotations

import base64
import importlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any

from memory.tensor import flat_bytes

MAX_DIMENSIONS = 64
"""Of a tensor, as torch has it."""


class NotPlain(ValueError):
    """Something that can't be sent as plain data, or a message that is not plain data."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What messages may speak of.

    modules: import paths of the modules whose dataclasses and enums are known. programs: functions that an order may
    name, as "module:function". referred: for a value that is sent as a reference, its kind and what names it, as JSON;
    None for other values. resolved: from kind and name to the value. completed: from a dataclass and its fields as they
    were read to those that it is made of. Both raise an error, of any kind, for what is not here.
    """

    modules: frozenset[str]
    programs: frozenset[str]
    referred: Callable[[object], tuple[str, Any] | None] = lambda value: None
    resolved: Callable[[str, Any], object] = lambda kind, name: _unknown(f"a reference to a {kind}")
    completed: Callable[[type, dict[str, Any]], dict[str, Any]] = lambda kind, given: given

    def program_name(self, program: Callable[..., Any]) -> str:
        """Return what an order calls a program. ValueError for one that orders may not name."""
        name = f"{program.__module__}:{program.__qualname__}"
        if name not in self.programs:
            raise NotPlain(f"{name} is no program that the ranks of a launcher's world know")
        return name

    def program(self, name: object) -> Callable[..., Any]:
        """Return the program of that name. ValueError for any other."""
        if not isinstance(name, str) or name not in self.programs:
            raise NotPlain(f"{_short(name)} is no program that the ranks of a launcher's world know")
        module, _, function = name.partition(":")
        found: Callable[..., Any] = getattr(importlib.import_module(module), function)
        return found

    def written(self, value: object) -> str:
        """Return a value as JSON. NotPlain for what can't be sent."""
        try:
            return json.dumps(self._plain(value), allow_nan=False)
        except RecursionError:
            raise NotPlain("what is nested so deeply can't be sent") from None

    def read(self, text: str | bytes) -> Any:
        """Return the value of written(). NotPlain for anything else."""
        try:
            return self._restored(json.loads(text))
        except NotPlain:
            raise
        except Exception as error:  # a constructor says in its own way that its arguments make no sense
            raise NotPlain(f"a message is not plain data: {_short(str(error))}") from error

    def _plain(self, value: object) -> Any:
        reference = self.referred(value)
        if reference is not None:
            return {"reference": list(reference)}
        if isinstance(value, Enum):
            return {"enum": [self._named(type(value)), self._plain(value.value)]}
        if value is None or isinstance(value, (bool, int, str)):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {"float": str(value)}
        if isinstance(value, bytes):
            return {"bytes": _encoded(value)}
        if isinstance(value, list):
            return [self._plain(one) for one in value]
        if isinstance(value, tuple):
            return {"tuple": [self._plain(one) for one in value]}
        if isinstance(value, Mapping):
            return {"dict": [[self._plain(key), self._plain(one)] for key, one in value.items()]}
        if is_dataclass(value) and not isinstance(value, type):
            given = {member.name: self._plain(getattr(value, member.name)) for member in fields(value) if member.init}
            return {"dataclass": [self._named(type(value)), given]}
        return _plain_tensor(value)

    def _restored(self, data: Any) -> Any:
        if isinstance(data, list):
            return [self._restored(one) for one in data]
        if not isinstance(data, dict):
            return data
        if len(data) != 1:
            _unknown("an object of several keys")
        ((kind, content),) = data.items()
        match kind, content:
            case "reference", [str(what), name]:
                return _asked(self.resolved, what, name)
            case "enum", [str(name), value]:
                return self._type(name, Enum)(self._restored(value))
            case "float", "nan" | "inf" | "-inf":
                return float(content)
            case "bytes", str():
                return base64.b64decode(content, validate=True)
            case "tuple", list():
                return tuple(self._restored(one) for one in content)
            case "dict", list():
                return {self._restored(key): self._restored(value) for key, value in content}
            case "dataclass", [str(name), dict(given)]:
                made = self._type(name, object)
                read = {key: self._restored(value) for key, value in given.items()}
                return made(**_asked(self.completed, made, read))
            case "tensor", [str(dtype), list(shape), str(text)]:
                return _tensor(dtype, shape, text)
        return _unknown(f"an object {_short(kind)}")

    def _named(self, kind: type) -> str:
        if kind.__module__ not in self.modules:
            raise NotPlain(f"a {kind.__module__}.{kind.__qualname__} can't be sent to ranks of a launcher's world")
        return f"{kind.__module__}:{kind.__qualname__}"

    def _type(self, name: str, base: type) -> Any:
        """The dataclass, or the enum, of a listed module that defines it."""
        module, _, of = name.partition(":")
        found = getattr(importlib.import_module(module), of, None) if module in self.modules else None
        known = isinstance(found, type) and found.__module__ == module
        if not known or not (is_dataclass(found) if base is object else issubclass(found, base)):  # type: ignore[arg-type]
            _unknown(f"a value of {_short(name)}")
        return found


def _asked(own: Callable[[Any, Any], Any], what: Any, given: Any) -> Any:
    """What a vocabulary's own function gives. NotPlain in that function's words."""
    try:
        return own(what, given)
    except Exception as error:
        raise NotPlain(str(error) or type(error).__name__) from error


def _plain_tensor(value: object) -> Any:
    import torch

    if not isinstance(value, torch.Tensor):
        raise NotPlain(f"a {type(value).__name__} can't be sent to ranks of a launcher's world")
    content = flat_bytes(value.cpu()).numpy().tobytes()
    return {"tensor": [str(value.dtype).removeprefix("torch."), list(value.shape), _encoded(content)]}


def _tensor(dtype: str, shape: list[Any], text: str) -> Any:
    import torch

    kind: Any = getattr(torch, dtype, None)
    counts = len(shape) <= MAX_DIMENSIONS and all(type(count) is int and count >= 0 for count in shape)
    if not isinstance(kind, torch.dtype) or not counts:
        _unknown(f"a tensor of {_short(dtype)} {_short(shape)}")
    content = base64.b64decode(text, validate=True)
    if len(content) != math.prod(shape) * kind.itemsize:
        _unknown(f"a tensor of {_short(shape)} in {len(content)} bytes")
    if not content:
        return torch.empty(shape, dtype=kind)
    return torch.frombuffer(bytearray(content), dtype=torch.uint8).view(kind).reshape(shape)


def _encoded(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def _unknown(what: str) -> Any:
    raise NotPlain(f"a message has {what}, which is not plain data")


def _short(value: object) -> str:
    return repr(value)[:80]
