"""Questions and answers as Flower's records, and back, without a line for any field of theirs.

A record dictionary has three records. `tensors` holds parameters and the like, as raw bytes;
`numbers` holds arrays of numbers, eight bytes each; these two are what is counted as payload.
`form` holds one JSON text: how the parts make up the whole, and all plain settings.

Nothing is unpickled, and no name the sender wrote is imported: the reader builds classes that the
field it is reading may hold, and refuses values of another type than the field's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from itertools import chain
from math import prod
from types import NoneType, UnionType
from typing import Any, Literal, Protocol, Union, get_args, get_origin, get_type_hints

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from torch import Tensor

from clove.errors import CloveError
from clove.federation.parameters import Parameters
from clove.federation.questions import Seeded
from clove.federation.registry import REGISTRIES, described, made

FORM, NUMBERS, TENSORS = "form", "numbers", "tensors"
NUMBER_BYTES = 8
RAW = "clove.raw"  # bytes as they are in memory, so that their length says whether they are all
PLAIN = (NoneType, bool, int, float, str)
DTYPES = {
    "float16": torch.float16,
    "float32": torch.float32,
    "float64": torch.float64,
    "int64": torch.int64,
    "int32": torch.int32,
    "uint8": torch.uint8,
    "bool": torch.bool,
}
SHORT = ("float16", "float32", "int32")  # numbers of arrays that keep their type and size
NUMPY_KINDS: dict[str, type[np.generic]] = {"i": np.int64, "f": np.float64, "b": np.bool_}
DEEPEST = 20
CPU = torch.device("cpu")


class Misread(CloveError):
    """A message that is not what it should be."""


class Sent(Protocol):
    """Stands in a question for a stack of models, of which only a part is sent."""

    def unfold(self, held: Mapping[str, Parameters]) -> Parameters:
        """Return the stack, from what was sent and what the client holds already."""
        ...


# --------------------------------------------------------------------------------------- writing


@dataclass
class Writer:
    """Turns values into records; the same tensor is turned into bytes once."""

    _ready: dict[int, tuple[Tensor, Array]] = field(default_factory=dict)

    def records(self, value: Any, without: frozenset[str] = frozenset()) -> RecordDict:
        """Return a value as records; `without` names fields of it that the receiver knows."""
        numbers: dict[str, Any] = {}
        tensors: dict[str, Array] = {}
        form = self._form(value, "", numbers, tensors, without)
        arrays = ArrayRecord()
        for name, array in tensors.items():  # so that they stay the same ones, and are hashed once
            arrays[name] = array
        return RecordDict(
            {
                FORM: ConfigRecord({FORM: json.dumps(form)}),
                NUMBERS: MetricRecord(numbers),
                TENSORS: arrays,
            }
        )

    def _form(
        self,
        value: Any,
        path: str,
        numbers: dict[str, Any],
        tensors: dict[str, Array],
        without: frozenset[str] = frozenset(),
    ) -> Any:
        def inner(key: Any, one: Any) -> Any:
            return self._form(one, f"{path}/{key}", numbers, tensors)

        if isinstance(value, PLAIN):
            return value
        if isinstance(value, Tensor):
            tensors[path] = self._array(value)
            return {"tensor": path}
        if isinstance(value, np.ndarray) and value.dtype.name in SHORT:
            tensors[path] = _as_array(torch.from_numpy(value))
            return {"array": path}
        if isinstance(value, np.ndarray | np.generic):
            return _numbers_form(np.asarray(value), path, numbers)
        if isinstance(value, Mapping):
            return {"map": {key: inner(key, one) for key, one in value.items()}}
        if isinstance(value, list | tuple | frozenset):
            items = sorted(value) if isinstance(value, frozenset) else value
            return {"list": [inner(place, one) for place, one in enumerate(items)]}
        if callable(value):
            kind, name, options = described(value)
            own = {n: inner(n, o) for n, o in options.items()}
            return {"function": kind, "name": name, "with": own}
        if is_dataclass(value) and not isinstance(value, type):
            own = {f.name: getattr(value, f.name) for f in fields(value) if f.name not in without}
            if isinstance(value, Seeded):  # its integers travel in place of models
                own = {name: np.int64(one) for name, one in own.items()}
            return {"is": type(value).__name__, "with": {n: inner(n, o) for n, o in own.items()}}
        raise CloveError(f"a value of type {type(value).__name__} cannot be sent, at {path}")

    def _array(self, tensor: Tensor) -> Array:
        known = self._ready.get(id(tensor))
        if known is None:
            known = self._ready[id(tensor)] = (tensor, _as_array(tensor))
        return known[1]


def _as_array(tensor: Tensor) -> Array:
    kind = str(tensor.dtype).removeprefix("torch.")
    if kind not in DTYPES:
        raise CloveError(f"tensors of type {kind} cannot be sent over Flower")
    array = tensor.detach().cpu().contiguous().numpy()
    return Array(dtype=kind, shape=tuple(array.shape), stype=RAW, data=array.tobytes())


def _numbers_form(array: np.ndarray[Any, Any], path: str, numbers: dict[str, Any]) -> Any:
    kind = "i" if array.dtype.kind == "u" else array.dtype.kind
    if kind not in NUMPY_KINDS:
        raise CloveError(f"an array of type {array.dtype} cannot be sent, at {path}")
    if array.size:
        numbers[path] = array.astype(np.float64 if kind == "f" else np.int64).ravel().tolist()
    return {"numbers": path, "kind": kind, "shape": list(array.shape)}


def payload(content: RecordDict) -> int:
    """Return how many bytes of parameters and numbers records hold."""
    tensors = chain.from_iterable(one.values() for one in content.array_records.values())
    numbers = chain.from_iterable(one.values() for one in content.metric_records.values())
    many = sum(len(value) if isinstance(value, list) else 1 for value in numbers)
    return sum(len(array.data) for array in tensors) + NUMBER_BYTES * many


# --------------------------------------------------------------------------------------- reading


@dataclass(frozen=True)
class Reader:
    """Turns records back into values of the type asked for, or says what is wrong with them.

    `stand_ins` are classes that may stand for a stack of parameters, `held` the stacks a client
    holds already, by name. `know_functions` registers all functions that a message may name; it is
    called where one is named that is not known yet.
    """

    device: torch.device = CPU
    stand_ins: tuple[type[Sent], ...] = ()
    held: Mapping[str, Parameters] = field(default_factory=dict)
    know_functions: Callable[[], None] = lambda: None

    def value(self, content: RecordDict, kind: Any, given: Mapping[str, Any] | None = None) -> Any:
        """Return the value; `given` are fields of it that were not sent."""
        try:
            form = json.loads(str(content.config_records[FORM][FORM]))
            numbers = dict(content.metric_records[NUMBERS])
            tensors = dict(content.array_records[TENSORS])
        except (KeyError, ValueError, RecursionError) as error:
            raise Misread(f"its records are not those of a message of clove: {error!r}") from None
        try:
            return _Reading(self, numbers, tensors).value(form, kind, "", given or {})
        except CloveError:
            raise
        except Exception as error:  # whatever a forged form leads to is the sender's fault
            raise Misread(f"it cannot be read: {type(error).__name__}: {error}") from error


@dataclass(frozen=True)
class _Reading:
    """Reads one message; what it takes of it is gone, so that nothing small can unfold to much."""

    reader: Reader
    numbers: dict[str, Any]
    tensors: dict[str, Array]

    def value(self, form: Any, kind: Any, path: str, given: Mapping[str, Any] | None = None) -> Any:
        if path.count("/") > DEEPEST:
            raise Misread("it is nested too deeply")
        kinds = list(_alternatives(kind))
        if not isinstance(form, dict):
            return _plain(form, kinds, path)
        readers: dict[str, Callable[[Any, list[Any], str], Any]] = {
            "map": self._map,
            "list": self._list,
            "tensor": self._tensor,
            "array": self._array,
            "numbers": self._numbers,
            "function": self._function,
        }
        if "is" in form:
            return self._part(form, kinds, path, given or {})
        for tag, read in readers.items():
            if tag in form:
                return read(form, kinds, path)
        raise Misread(f"{path or 'it'} has no form that is known")

    def _part(self, form: Any, kinds: list[Any], path: str, given: Mapping[str, Any]) -> Any:
        classes: list[type] = [k for k in kinds if isinstance(k, type) and is_dataclass(k)]
        if any(get_origin(one) is not None and _is_stack(one) for one in kinds):
            classes += self.reader.stand_ins
        known = {one.__name__: one for one in classes}
        if form["is"] not in known:
            raise Misread(f"{path or 'it'} is {form['is']!r}, not one of {', '.join(known)}")
        found = self._made(known[form["is"]], form.get("with"), path, given)
        return found.unfold(self.reader.held) if hasattr(found, "unfold") else found

    def _made(self, part: type, own: Any, path: str, given: Mapping[str, Any]) -> Any:
        hints = get_type_hints(part)
        known = {f.name for f in fields(part)} - given.keys()
        if not isinstance(own, dict) or not own.keys() <= known:
            raise Misread(f"{part.__name__} has fields not known here: is it another clove?")
        values = {n: self.value(one, hints[n], f"{path}/{n}") for n, one in own.items()}
        try:
            return part(**values, **given)
        except TypeError as error:
            raise Misread(f"{part.__name__} is not complete: {error}") from None

    def _map(self, form: Any, kinds: list[Any], path: str) -> Any:
        kind = _first(kinds, (Mapping, dict), path)
        inner = get_args(kind)[1] if get_args(kind) else Any
        if not isinstance(form["map"], dict):
            raise Misread(f"{path} is no map")
        return {key: self.value(one, inner, f"{path}/{key}") for key, one in form["map"].items()}

    def _list(self, form: Any, kinds: list[Any], path: str) -> Any:
        kind = _first(kinds, (tuple, list, frozenset), path)
        inner = get_args(kind)[0] if get_args(kind) else Any
        if not isinstance(form["list"], list):
            raise Misread(f"{path} is no list")
        items = [self.value(one, inner, f"{path}/{at}") for at, one in enumerate(form["list"])]
        return items if kind is Any else (get_origin(kind) or kind)(items)

    def _tensor(self, form: Any, kinds: list[Any], path: str) -> Tensor:
        _first(kinds, (Tensor,), path)
        array = self.tensors.pop(form["tensor"], None)
        if array is None:
            raise Misread(f"the tensor {path} is missing")
        return _as_tensor(array, path).to(self.reader.device)

    def _numbers(self, form: Any, kinds: list[Any], path: str) -> Any:
        kind, shape = form.get("kind"), form.get("shape")
        if kind not in NUMPY_KINDS or not _is_shape(shape):
            raise Misread(f"the numbers {path} have no type or shape")
        found = self.numbers.pop(form["numbers"], [])
        found = found if isinstance(found, list) else [found]
        if len(found) != prod(shape):
            raise Misread(f"{path} holds {len(found)} numbers, not {prod(shape)}")
        array = np.array(found, dtype=NUMPY_KINDS[kind]).reshape(shape)
        if int in kinds and array.shape == () and kind == "i":
            return int(array)
        return _of_type(array, kinds, path)

    def _array(self, form: Any, kinds: list[Any], path: str) -> Any:
        array = self.tensors.pop(form["array"], None)
        if array is None:
            raise Misread(f"the array {path} is missing")
        return _of_type(_as_tensor(array, path).numpy(), kinds, path)

    def _function(self, form: Any, kinds: list[Any], path: str) -> Any:
        """Return a function that is registered here, of the kind the field is for."""
        protocols = [one.__name__.lower() for one in kinds if getattr(one, "_is_protocol", False)]
        fitting = REGISTRIES.keys() & protocols or REGISTRIES.keys()
        kind, name, options = form["function"], form.get("name"), form.get("with")
        if not protocols or kind not in fitting:
            raise Misread(f"{path} is no place for {kind!r}")
        if not isinstance(name, str) or not isinstance(options, dict):
            raise Misread(f"the function {path} has no name or options")
        plain = {n: self.value(one, Any, f"{path}/{n}") for n, one in options.items()}
        if name not in REGISTRIES[kind]:
            self.reader.know_functions()
        return made(kind, name, plain)


def _alternatives(kind: Any) -> Iterator[Any]:
    if get_origin(kind) in (Union, UnionType):
        for one in get_args(kind):
            yield from _alternatives(one)
    else:
        yield kind


def _plain(value: Any, kinds: list[Any], path: str) -> Any:
    """Return a plain value if its field may hold it; whole numbers may stand for fractions."""
    if isinstance(value, list):
        raise Misread(f"{path or 'it'} has no form that is known")
    for kind in kinds:
        if kind is Any or (get_origin(kind) is Literal and value in get_args(kind)):
            return value
        if kind in PLAIN and type(value) is kind:
            return value
    if float in kinds and type(value) is int:
        return float(value)
    raise Misread(f"{path or 'it'} is {str(value)[:40]!r}, which is not of the right type")


def _first(kinds: list[Any], wanted: tuple[type, ...], path: str) -> Any:
    """Return the alternative of a wanted kind."""
    for kind in kinds:
        origin = get_origin(kind) or kind
        if kind is Any or (isinstance(origin, type) and issubclass(origin, wanted)):
            return kind
    raise Misread(f"{path or 'it'} has a value of the wrong kind")


def _of_type(array: np.ndarray[Any, Any], kinds: list[Any], path: str) -> Any:
    """Return an array if its field may hold numbers of its type."""
    wanted = _first(kinds, (np.ndarray,), path)
    if wanted is not Any and get_args(wanted):
        expected = get_args(get_args(wanted)[1])[0]
        if expected is not Any and not issubclass(array.dtype.type, expected):
            raise Misread(f"{path} holds {array.dtype}, not {expected.__name__}")
    return array


def _is_stack(kind: Any) -> bool:
    return get_args(kind)[-1:] == (Tensor,)


def _is_shape(shape: Any) -> bool:
    return isinstance(shape, list | tuple) and all(type(n) is int and n >= 0 for n in shape)


def _as_tensor(array: Array, path: str) -> Tensor:
    if array.stype != RAW or array.dtype not in DTYPES or not _is_shape(array.shape):
        raise Misread(f"the tensor {path} has no type or shape that is known")
    dtype = DTYPES[array.dtype]
    if len(array.data) != prod(array.shape) * dtype.itemsize:
        raise Misread(f"the tensor {path} has {len(array.data)} bytes, its shape {array.shape}")
    if not array.data:
        return torch.zeros(array.shape, dtype=dtype)
    return torch.frombuffer(bytearray(array.data), dtype=dtype).reshape(array.shape)
