"""All settings of a run, checked, and as a TOML file that repeats it."""

from __future__ import annotations

import json
import shlex
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from math import isfinite
from pathlib import Path, PurePath
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from clove.algorithms import ALGORITHMS, find_algorithm
from clove.data import DATASETS, MIXINGS, dataset_options, find_mixing, mixing_options
from clove.errors import CloveError, unknown_name
from clove.federation import LocalTraining, check_training
from clove.federation.engines import COMPILE, one_kernel
from clove.federation.precision import PRECISIONS
from clove.tasks import TASKS, check_model

MOST_THREADS = 1024
LAST_LINE = "engine_reason"
OWN_CLIENTS = "own-clients"  # stands in for the data set where clients were handed over in Python
OWN_NETWORK = "own-network"  # likewise for the network


# The paper's batches of 64 would be a single step a round for clients of 50 points.
DATA_DEFAULTS: dict[str, dict[str, Any]] = {"digits": {"batch_size": 10}}


@dataclass(frozen=True)
class Settings:
    """Settings of a run. Defaults of training are the paper's, but for data sets it does not use.

    `data` holds the options of the data set and the mixing, `options` those of the algorithm; in
    Python, on the command line and in files they are given like all others, by name.
    """

    dataset: str = "digits"
    mixing: str = "label-skew-1"
    algorithm: str = "clove"
    rounds: int = 100
    seed: int = 0
    data_dir: str | None = None
    checkpoint_every: int = 1
    picture: bool = True
    clients: str | None = None
    task: str = "auto"
    model: str = "auto"
    loss: str = "auto"
    optimizer: str = "adam"
    learning_rate: float = 1e-3
    batch_size: int = 64
    local_epochs: int = 1
    momentum: float = 0.0
    weight_decay: float = 0.0
    learning_rate_decay: float = 1.0
    keep_momentum: bool = False
    participation: float = 1.0
    stragglers: float = 0.0
    evaluate_every: int = 1
    engine: str = "auto"
    group_size: int = 0
    device: str = "auto"
    precision: str = "auto"
    memory: float = 0.0
    kernels: str = "auto"
    models_at_once: int = -1
    evaluation_kernel: str = "auto"
    compile: str = "auto"
    threads: int = 0
    data: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 < self.participation <= 1:
            raise CloveError(f"participation must be in (0, 1], not {self.participation}")
        for name in ("rounds", "evaluate_every", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise CloveError(f"{name} must be 1 or more, not {getattr(self, name)}")
        if self.threads > MOST_THREADS:
            raise CloveError(f"threads must be at most {MOST_THREADS}, not {self.threads}")
        for name in ("seed", "threads", "group_size", "momentum", "weight_decay", "memory"):
            if getattr(self, name) < 0:
                raise CloveError(f"{name} must not be negative, but is {getattr(self, name)}")
        for kernel in (*self.kernels.split(","), self.evaluation_kernel):
            one_kernel(kernel)
        if self.models_at_once < -1:
            raise CloveError(f"models_at_once must be -1 or more, not {self.models_at_once}")
        for name, known in (("precision", PRECISIONS), ("compile", COMPILE)):
            if getattr(self, name) not in known:
                raise unknown_name(name, getattr(self, name), known)
        if self.task not in ("auto", *TASKS):
            raise unknown_name("task", self.task, ("auto", *TASKS))
        if self.model != OWN_NETWORK:
            check_model(self.model)
        check_training(self.training)

    @property
    def training(self) -> LocalTraining:
        """How clients train."""
        return LocalTraining(
            self.optimizer,
            self.learning_rate,
            self.batch_size,
            self.local_epochs,
            self.momentum,
            self.weight_decay,
            learning_rate_decay=self.learning_rate_decay,
            keep_momentum=self.keep_momentum,
        )

    def flat(self) -> dict[str, Any]:
        """Return all settings under their own names, as `from_names` takes them."""
        return {name: getattr(self, name) for name in GENERAL} | {**self.data, **self.options}


GENERAL = [f.name for f in fields(Settings) if f.name not in ("data", "options")]
SECTIONS = {
    "run": (
        "dataset",
        "mixing",
        "algorithm",
        "rounds",
        "seed",
        "clients",
        "task",
        "model",
        "loss",
        "evaluate_every",
    ),
    "training": (
        *("optimizer", "learning_rate", "batch_size", "local_epochs"),
        *("momentum", "weight_decay", "learning_rate_decay", "keep_momentum"),
    ),
    "federation": ("participation", "stragglers"),
    "machine": (
        *("engine", "group_size", "device", "precision", "memory", "threads"),
        *("kernels", "models_at_once", "evaluation_kernel", "compile", "data_dir"),
        *("checkpoint_every", "picture"),
    ),
}


# --------------------------------------------------------------------------------- known settings


def algorithm_options(name: str) -> dict[str, tuple[Any, Any]]:
    """Return the options of an algorithm: name → (type, default)."""
    algorithm = find_algorithm(name)
    hints = get_type_hints(algorithm)
    taken = [f.name for f in fields(algorithm) if f.name in GENERAL]
    if taken:
        raise CloveError(
            f"{name} has an option called {taken[0]!r}, as a general setting is: rename it"
        )
    return {f.name: (hints[f.name], f.default) for f in fields(algorithm) if f.name != "setup"}


def data_options(dataset: str, mixing: str) -> dict[str, Any]:
    """Return the options of a data set and a mixing: name → default."""
    if dataset == OWN_CLIENTS:
        return {"client_column": "client", "label_column": "label", "split_column": "split"}
    return {**dataset_options(dataset), **mixing_options(mixing)}


def data_title(dataset: str, mixing: str) -> str:
    """Say in a heading whose data it is."""
    return "own clients" if dataset == OWN_CLIENTS else f"{dataset}, {mixing}"


def from_names(**given: Any) -> Settings:
    """Sort settings given by name into general ones and options, and check them all.

    >>> from_names(dataset="digits", algorithm="clove", probes="trained").options
    {'probes': 'trained'}
    """
    if given.get("clients") is not None:
        given = for_own_clients(given)
    general = {name: given.pop(name) for name in GENERAL if name in given}
    hints = get_type_hints(Settings)
    general = {n: checked_type(n, v, hints[n]) for n, v in general.items() if v is not None}
    general = {**DATA_DEFAULTS.get(str(general.get("dataset", Settings.dataset)), {}), **general}
    base = Settings(**general)
    _check_names(base)
    options, data = algorithm_options(base.algorithm), data_options(base.dataset, base.mixing)
    for name in given:
        if name not in options and name not in data:
            raise unknown_setting(name, base, base.algorithm, [*GENERAL, *options, *data])
    for name, value in given.items():
        # None stands for the default; but where that is a number, it may be meant as another one.
        if value is None and name in options and isinstance(options[name][1], int | float):
            raise CloveError(
                f"{name} of {base.algorithm} cannot be None: its default, which it has "
                f"where nothing is said, is {options[name][1]!r}"
            )
    return replace(
        base,
        data={n: v for n, v in given.items() if n in data and v is not None},
        options={
            n: checked_type(n, v, options[n][0])
            for n, v in given.items()
            if n in options and v is not None
        },
    )


def unknown_setting(
    name: str, settings: Settings, algorithms: str, known: Iterable[str]
) -> CloveError:
    """Make the error for a setting that a run does not have: others may, else it is misspelt."""
    own = settings.dataset == OWN_CLIENTS
    mixing, dataset = ["your own clients"] * 2 if own else [settings.mixing, settings.dataset]
    owners = {
        ("mixing", mixing): [m for m in MIXINGS if name in mixing_options(m)],
        ("data set", dataset): [d for d in DATASETS if name in dataset_options(d)],
        ("algorithm", algorithms): [
            a for a, kind in ALGORITHMS.items() if name in [f.name for f in fields(kind)]
        ],
    }
    for (kind, this), others in owners.items():
        if others:
            return CloveError(f"{name!r} is an option of {kind} {', '.join(others)}, not of {this}")
    if name in data_options(OWN_CLIENTS, "none"):
        return CloveError(f"{name!r} is an option of tables of your own clients (clients=...)")
    return unknown_name("setting", name, known)


def for_own_clients(given: dict[str, Any]) -> dict[str, Any]:
    """Return settings for clients of one's own, which take the place of data set and mixing."""
    if given.get("dataset", OWN_CLIENTS) != OWN_CLIENTS or given.get("mixing", "none") != "none":
        raise CloveError(
            "give either your own clients or a dataset with a mixing, not both; how many clients a "
            "mixing makes is set by `clusters` and `clients_per_cluster`, or by `total_clients`"
        )
    return {**given, "dataset": OWN_CLIENTS, "mixing": "none"}


def _check_names(settings: Settings) -> None:
    if settings.dataset == OWN_CLIENTS:
        return
    if settings.dataset not in DATASETS:
        raise unknown_name("dataset", settings.dataset, DATASETS)
    find_mixing(settings.mixing)


def checked_type(name: str, value: Any, kind: Any) -> Any:
    """Return a value of the type a setting has, or say what it should be."""
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise unknown_name(name, value, map(str, get_args(kind)))
        return value
    alternatives = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    kinds = [get_origin(one) or one for one in alternatives]
    if value is None and NoneType in kinds:
        return None
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, PurePath):
        value = str(value)
    if float in kinds and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, float) and not isfinite(value):
        raise CloveError(f"{name} must be a finite number, not {value}")
    if any(type(value) is one for one in kinds):
        return value
    expected = " or ".join(one.__name__ for one in kinds if one is not NoneType)
    raise CloveError(f"{name} must be {expected}, not {value!r}")


# ------------------------------------------------------------------------------------------ files


def read_settings(path: Path) -> dict[str, Any]:
    """Read settings by name from a TOML file; tables are for the eye only."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CloveError(f"there is no settings file {path}") from None
    except OSError as error:
        raise CloveError(f"cannot read the settings file {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CloveError(f"{path} is not valid TOML: {error}") from None
    content.pop("made", None)
    names: dict[str, Any] = {}
    for key, value in content.items():
        for name, one in value.items() if isinstance(value, dict) else [(key, value)]:
            if name in names:
                raise CloveError(f"{path} sets {name!r} twice")
            names[name] = one
    return names


def read_run_settings(path: Path) -> dict[str, Any]:
    """Read the settings of a run folder, which are complete: refuse a file that was cut off."""
    names = read_settings(path)
    # What a run was made with is written last.
    if LAST_LINE not in tomllib.loads(path.read_text(encoding="utf-8")).get("made", {}):
        raise CloveError(f"{path} is not complete: the folder is damaged")
    return names


def write_settings(settings: Settings, made: Mapping[str, Any]) -> str:
    """Return settings as TOML, complete: what was not set stands there with its default."""
    sections = {
        title: {name: getattr(settings, name) for name in names}
        for title, names in SECTIONS.items()
    }
    defaults = {n: default for n, (_, default) in algorithm_options(settings.algorithm).items()}
    sections["data"] = {**data_options(settings.dataset, settings.mixing), **settings.data}
    sections["algorithm"] = {**defaults, **settings.options}
    sections["made"] = dict(made)
    blocks = [_table(title, values) for title, values in sections.items() if values]
    return "\n".join(blocks)


def _table(title: str, values: Mapping[str, Any]) -> str:
    lines = [f"[{title}]"]
    for name, value in values.items():
        lines.append(f"{name} = {_toml(value)}" if value is not None else f"# {name} is not set")
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    """Write one value. The standard library reads TOML but does not write it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    # Of JSON's strings, TOML reads all but a bare DEL and pairs of surrogates.
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


# ---------------------------------------------------------------------------------------- command


def command(settings: Settings) -> str | None:
    """Return the command that makes such a run: what differs from the defaults, but the machine's.

    None where no command does: clients or a network handed over in Python, clients elsewhere.

    >>> command(from_names(algorithm="ifca", rounds=20, learning_rate=0.01))
    'clove run --dataset digits --mixing label-skew-1 --algorithm ifca --rounds 20 --seed 0 \
--set learning_rate=0.01'
    """
    own = settings.dataset == OWN_CLIENTS
    handed_over = settings.model == OWN_NETWORK or (own and settings.clients is None)
    if handed_over or settings.engine == "flower":
        return None
    whose = ("clients",) if own else ("dataset", "mixing")
    words = ["clove", "run"]
    for name in (*whose, "algorithm", "rounds", "seed", "data_dir"):
        if getattr(settings, name) is not None:
            words += [f"--{name.replace('_', '-')}", str(getattr(settings, name))]
    for name, value in _unusual(settings).items():
        words += ["--set", f"{name}={_one_word(value)}"]
    return shlex.join(words)


def _unusual(settings: Settings) -> dict[str, Any]:
    """Return the settings that are not as they would be by default."""
    usual = Settings(**DATA_DEFAULTS.get(settings.dataset, {}))
    names = ("task", "model", "loss", "evaluate_every", *SECTIONS["training"])
    general = {n: getattr(settings, n) for n in (*names, *SECTIONS["federation"])}
    found = {name: value for name, value in general.items() if value != getattr(usual, name)}
    options = {n: default for n, (_, default) in algorithm_options(settings.algorithm).items()}
    defaults = {**data_options(settings.dataset, settings.mixing), **options}
    given = {**defaults, **settings.data, **settings.options}  # in the order of the defaults
    # Compared as they are written: a default may be a tuple, and a file has only lists.
    return found | {n: v for n, v in given.items() if _toml(v) != _toml(defaults.get(n))}


def _one_word(value: Any) -> str:
    """Write a value as --set reads it: text without quotes, unless it would be read as another."""
    if not isinstance(value, str):
        return _toml(value)
    try:
        tomllib.loads(f"value = {value}")
    except tomllib.TOMLDecodeError:
        return value
    return _toml(value)
