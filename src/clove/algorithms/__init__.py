"""The methods: one file each, server logic only, and the local objectives they ask for."""

from __future__ import annotations

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
from clove.errors import CloveError, unknown_name

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINTS = "clove.algorithms"  # the group in which installed packages offer methods
ALGORITHMS: dict[str, type[Algorithm[Any]]] = {}


def register(algorithm: type[Algorithm[Any]]) -> type[Algorithm[Any]]:
    """Make a method known by its name; usable as a class decorator."""
    known = ALGORITHMS.get(algorithm.name)
    if known is not None and known is not algorithm:
        raise CloveError(f"an algorithm named {algorithm.name!r} is registered already: {known}")
    ALGORITHMS[algorithm.name] = algorithm
    return algorithm


def find_algorithm(name: str) -> type[Algorithm[Any]]:
    """Return the method of that name: one of ours, one registered, or an installed package's."""
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
    """Load the methods of all installed packages, so that their objectives are known too."""
    for name, point in _offered().items():
        if name not in ALGORITHMS:
            _loaded(point)


def _offered() -> dict[str, EntryPoint]:
    """Return the methods that installed packages offer, by name."""
    from importlib.metadata import entry_points  # not needed for methods of our own

    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}


def _loaded(point: EntryPoint) -> type[Algorithm[Any]]:
    package = "a package" if point.dist is None else f"package {point.dist.name!r}"
    what = f"algorithm {point.name!r} of {package} ({point.value})"
    try:
        found = point.load()
    except Exception as error:  # a package of somebody else's can fail in any way
        raise CloveError(f"{what} cannot be loaded: {type(error).__name__}: {error}") from error
    if not (isinstance(found, type) and issubclass(found, Algorithm)):
        raise CloveError(f"{what} is no clove.algorithms.Algorithm, but {found!r}")
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
