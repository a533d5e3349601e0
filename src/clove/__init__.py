"""clove: clustered, personalised federated learning by loss vector embeddings.

>>> import clove
>>> result = clove.run(dataset="digits", mixing="label-skew-1", algorithm="clove", rounds=5)
>>> result.ari
1.0
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clove import flower
    from clove.algorithms import register
    from clove.data import ClientData
    from clove.errors import CloveError, CloveWarning
    from clove.runs import Newcomer, Result, Settings, load, resume, run
    from clove.runs.compare import compare
    from clove.serving.client import newcomer
    from clove.tasks import Task, classification, reconstruction, regression

__version__ = "0.1.0"

# Loaded when first used: torch and scikit-learn take seconds to import.
_HOMES = {
    "ClientData": "clove.data",
    "CloveError": "clove.errors",
    "CloveWarning": "clove.errors",
    "Newcomer": "clove.runs",
    "Result": "clove.runs",
    "Settings": "clove.runs",
    "Task": "clove.tasks",
    "classification": "clove.tasks",
    "compare": "clove.runs.compare",
    "load": "clove.runs",
    "newcomer": "clove.serving.client",
    "reconstruction": "clove.tasks",
    "register": "clove.algorithms",
    "regression": "clove.tasks",
    "resume": "clove.runs",
    "run": "clove.runs",
}
__all__ = [
    "ClientData",
    "CloveError",
    "CloveWarning",
    "Newcomer",
    "Result",
    "Settings",
    "Task",
    "classification",
    "compare",
    "flower",
    "load",
    "newcomer",
    "reconstruction",
    "register",
    "regression",
    "resume",
    "run",
]


def __getattr__(name: str) -> Any:
    if name == "flower":  # a part of the package, and not in it until imported
        return import_module("clove.flower")
    if name not in _HOMES:
        raise AttributeError(f"module 'clove' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
