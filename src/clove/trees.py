"""A tree of values as one safetensors file, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from clove.errors import CloveError
from clove.folders import write_atomically


def write_tree(
    path: Path, tree: Mapping[str, Any], mode: int = 0o644, *, durable: bool = True
) -> None:
    """Write nested dicts, lists, dataclasses, tensors, arrays and plain values, atomically."""
    tensors: dict[str, Tensor] = {}
    outline = json.dumps(_outline(tree, "", tensors))
    write_atomically(path, save(tensors, metadata={"tree": outline}), mode, durable=durable)


def read_tree(path: Path) -> dict[str, Any]:
    """Read what `write_tree` wrote; dataclasses come back as dicts."""
    try:
        with safe_open(path, framework="pt") as file:
            outline = json.loads((file.metadata() or {})["tree"])
            tree: dict[str, Any] = _filled(outline, file)
            return tree
    except FileNotFoundError:
        raise CloveError(f"there is no file {path}") from None
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise CloveError(f"{path} is damaged or is not a checkpoint: {error}") from None


def _outline(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """Return the tree as JSON, tensors and arrays replaced by references into `tensors`."""
    if is_dataclass(value) and not isinstance(value, type):
        value = {f.name: getattr(value, f.name) for f in fields(value)}
    if isinstance(value, Mapping):
        return {
            "dict": {key: _outline(one, f"{name}/{key}", tensors) for key, one in value.items()}
        }
    if isinstance(value, list | tuple):
        if all(isinstance(one, int | float | str) for one in value):
            return {"plain": list(value)}
        return {"list": [_outline(one, f"{name}/{i}", tensors) for i, one in enumerate(value)]}
    while name in tensors:  # "a/b" and "b" in "a" are two places
        name += "'"
    if isinstance(value, Tensor):
        tensors[name] = _unshared(value.detach().cpu().contiguous(), tensors)
        return {"tensor": name}
    if isinstance(value, np.ndarray):
        tensors[name] = torch.from_numpy(value.copy(order="C"))
        return {"array": name}
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return {"plain": value}
    raise TypeError(f"cannot save {type(value).__name__} at {name}")


def _unshared(tensor: Tensor, others: Mapping[str, Tensor]) -> Tensor:
    """Copy a tensor that shares memory with one stored already: the format refuses that."""
    places = {other.untyped_storage().data_ptr() for other in others.values()}
    return tensor.clone() if tensor.untyped_storage().data_ptr() in places else tensor


def _filled(outline: Mapping[str, Any], file: Any) -> Any:
    kind, value = next(iter(outline.items()))
    if kind == "dict":
        return {key: _filled(one, file) for key, one in value.items()}
    if kind == "list":
        return [_filled(one, file) for one in value]
    if kind == "tensor":
        return file.get_tensor(value)
    if kind == "array":
        return file.get_tensor(value).numpy()
    return value
