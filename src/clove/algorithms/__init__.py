"""The methods: one file each, server logic only, and the local objectives they ask for."""

from __future__ import annotations

import warnings
from functools import cache
from typing import TYPE_CHECKING, Any

from clove.algorithms.base import Algorithm, Asking, Outcome, Setup
from clove.algorithms.centralized import Centralized
from clove.algorithms.cfl_s import CflS
from clove.algorithms.clove import Clove
from clove.algorithms.fedala import FedAla
from clove.algorithms.fedavg import FedAvg
from clove.algorithms.fedgwc import FedGwc
from clove.algorithms.fedpac import FedPac
from clove.algorithms.fedproto import FedProto
from clove.algorithms.fedprox import FedProx
from clove.algorithms.fesem import Fesem
from clove.algorithms.flexcfl import FlexCfl
from clove.algorithms.ifca import Ifca
from clove.algorithms.k_fed import KFed
from clove.algorithms.local import Local
from clove.algorithms.one_model import OneModel, OneModelState
from clove.algorithms.pacfl import Pacfl
from clove.algorithms.per_fedavg import PerFedAvg
from clove.errors import CloveError, CloveWarning, unknown_name

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINTS = "clove.algorithms"  # the group in which installed packages offer methods
ALGORITHMS: dict[str, type[Algorithm[Any]]] = {}


def register(algorithm: type[Algorithm[Any]]) -> type[Algorithm[Any]]:
    """Make a method known by its name; usable as a class decorator."""
    _check_whole(algorithm)
    known = ALGORITHMS.get(algorithm.name)
    if known is not None and known is not algorithm:
        raise CloveError(f"an algorithm named {algorithm.name!r} is registered already: {known}")
    ALGORITHMS[algorithm.name] = algorithm
    return algorithm


def _check_whole(algorithm: type[Algorithm[Any]]) -> None:
    """Refuse a class that lacks what every method has."""
    for name, kind, what in (("name", str, "a text"), ("state_type", type, "a dataclass")):
        if not isinstance(getattr(algorithm, name, None), kind):
            raise CloveError(f"{algorithm.__name__} has no `{name}`: give the class one, {what}")
    missing = ", ".join(sorted(algorithm.__abstractmethods__))
    if missing:
        raise CloveError(f"{algorithm.__name__} does not say what its methods {missing} do")


def find_algorithm(name: str) -> type[Algorithm[Any]]:
    """Return the method of that name: one of ours, one registered, or an installed package's."""
    _warn_of_namesakes(name)
    if name in ALGORITHMS:
        return ALGORITHMS[name]
    offered = _offered()
    if name in offered:
        return _loaded(offered[name])
    raise unknown_name("algorithm", name, known_algorithms())


def known_algorithms() -> list[str]:
    """Return the names of all methods: ours, those registered, those of installed packages."""
    return list(dict.fromkeys([*ALGORITHMS, *_offered()]))


def load_entry_points() -> None:
    """Load the methods of all installed packages, so that their objectives are known too.

    One that fails is named, and does not keep the others from being loaded.
    """
    for name, point in _offered().items():
        if name not in ALGORITHMS:
            try:
                _loaded(point)
            except CloveError as error:
                warnings.warn(str(error), CloveWarning, stacklevel=2)


def _offered() -> dict[str, EntryPoint]:
    """Return the methods that installed packages offer, by name."""
    from importlib.metadata import entry_points

    # The first of a name: whatever the order of their folders, by the package's name.
    points = sorted(entry_points(group=ENTRY_POINTS), key=_whose, reverse=True)
    return {point.name: point for point in points}


@cache  # said once
def _warn_of_namesakes(name: str) -> None:
    """Say so where an installed package offers a name that is taken."""
    from importlib.metadata import entry_points

    offers = sorted(map(_whose, entry_points(group=ENTRY_POINTS, name=name)))
    unused = offers if name in OURS else offers[1:]
    if unused:
        used = "clove's own" if name in OURS else f"that of {offers[0]}"
        warnings.warn(
            f"{name!r} is {used}, and not that of {', '.join(unused)}, which needs another name",
            CloveWarning,
            stacklevel=3,
        )


def _whose(point: EntryPoint) -> str:
    return "a package" if point.dist is None else f"package {point.dist.name!r}"


def _loaded(point: EntryPoint) -> type[Algorithm[Any]]:
    what = f"algorithm {point.name!r} of {_whose(point)} ({point.value})"
    try:
        found = point.load()
    except Exception as error:  # a package of somebody else's can fail in any way
        raise CloveError(f"{what} cannot be loaded: {type(error).__name__}: {error}") from error
    if not (isinstance(found, type) and issubclass(found, Algorithm)):
        raise CloveError(f"{what} is no clove.algorithms.Algorithm, but {found!r}")
    try:
        _check_whole(found)
    except CloveError as error:
        raise CloveError(f"{what}: {error}") from None
    if found.name != point.name:
        raise CloveError(f"{what} calls itself {found.name!r}: entry point and name must agree")
    return register(found)


for _algorithm in (  # in the order of tables: clusters, models of one's own, one model, references
    Clove,
    Ifca,
    CflS,
    Fesem,
    FlexCfl,
    Pacfl,
    KFed,
    FedGwc,
    FedProto,
    FedAla,
    FedPac,
    FedAvg,
    FedProx,
    PerFedAvg,
    Local,
    Centralized,
):
    register(_algorithm)

OURS = frozenset(ALGORITHMS)

__all__ = [
    "ALGORITHMS",
    "ENTRY_POINTS",
    "Algorithm",
    "Asking",
    "Centralized",
    "CflS",
    "Clove",
    "FedAla",
    "FedAvg",
    "FedGwc",
    "FedPac",
    "FedProto",
    "FedProx",
    "Fesem",
    "FlexCfl",
    "Ifca",
    "KFed",
    "Local",
    "OneModel",
    "OneModelState",
    "Outcome",
    "Pacfl",
    "PerFedAvg",
    "Setup",
    "find_algorithm",
    "known_algorithms",
    "load_entry_points",
    "register",
]
