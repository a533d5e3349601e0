"""What explains a difference from the paper's accuracy: trials that change one thing.

    python benchmarks/causes.py [--only NAME ...] [--again] [--rounds 40] [--workers 6]

Fashion-MNIST, one seed, divided as the paper's authors' code does. A trial is a line of settings
for `clove run`, or a network of its own. Trials that are done are kept: the same command goes on,
and makes those anew that had fewer rounds. Several workers, each a process, pay on a GPU that small
networks leave waiting; one that fails is told then, and the others go on.
Writes benchmarks/results/causes.csv and .md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import torch
from torch import nn

import clove
from clove.algorithms.combining import combining_weights
from clove.algorithms.simplex import least_on_simplex
from clove.federation.questions import Floats

sys.path.insert(0, str(Path(__file__).parent))
from origin import all_in_words, origin

RESULTS = Path(__file__).parent / "results"
SHOWN = (10, 20, 40, 60, 80, 100)
SKEW, SHIFT = "label-skew-1", "concept-shift"
POINTS = {SKEW: 500, SHIFT: 1000}
ADAM = {"optimizer": "adam", "learning_rate": 0.01, "batch_size": 100}
PFLLIB = {"optimizer": "sgd", "learning_rate": 0.005, "batch_size": 10}
FLEXCFL = {**PFLLIB, "local_epochs": 10}
CFLS = {
    **{"optimizer": "sgd", "learning_rate": 0.099, "momentum": 0.9, "batch_size": 128},
    **{"learning_rate_decay": 0.99, "keep_momentum": True, "linkage": "complete"},
    "split_after": 20,
}
PACFL = {**ADAM, "per_class": True, "angle": "vectors", "threshold": 4.0}
PERFEDAVG = {**PFLLIB, "local_epochs": 2}
FEDPROTO = {**PFLLIB, "prototype_average": "clients"}
FEDPAC = {**PFLLIB, "least_weight": 0.001}


def pfllib_network() -> nn.Module:
    """Two convolutions of 32 and 64 filters and a hidden layer of 512, as PFLlib has for 28×28."""
    return nn.Sequential(
        *(nn.Conv2d(1, 32, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 10)),
    )


def flexcfl_network() -> nn.Module:
    """Likewise with padded convolutions and a hidden layer of 1024, as FlexCFL has."""
    return nn.Sequential(
        *(nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(3136, 1024), nn.ReLU(), nn.Linear(1024, 10)),
    )


def pfllib_weights(variances: Floats, shares: Floats, least: float = 0.0) -> Floats:
    """FedPAC's weights as PFLlib finds them, in single precision and with its guards.

    Where a program's matrix has an eigenvalue below nought, which can only be rounding, it keeps
    the part of those that are at least 0.01. Where that has one below nought as well there are no
    weights, and the client gets the head at the place of its number in a list in random order.
    """
    draw, weights = np.random.default_rng(0), combining_weights(variances, shares, least)
    flat = shares.reshape(len(shares), -1).astype(np.float32)
    for client, row in enumerate(weights):
        away = flat[client] - flat
        form = np.diag(variances.astype(np.float32)) + away @ away.T
        if np.linalg.eigvals(form).real.min() >= 0:
            continue
        values, vectors = (part.real for part in np.linalg.eig(form))
        large = values >= 0.01
        form = (vectors[:, large] * values[large]) @ vectors[:, large].T
        row[:] = 0.0
        if np.linalg.eigvals(form).real.min() >= 0:
            found = least_on_simplex((form + form.T).astype(np.float64) / 2)
            row[found > least] = found[found > least]
        else:
            row[draw.integers(len(row))] = 1.0
    return weights


@dataclass(frozen=True)
class Trial:
    """A method on a mixing, with what is changed."""

    name: str
    algorithm: str
    mixing: str
    changed: str
    settings: dict[str, Any] = field(default_factory=dict)
    rounds: int = 100
    network: Any = None
    replaced: dict[str, Any] = field(default_factory=dict)  # parts of the code, by name


def trials() -> list[Trial]:
    """List them: first what stands in the paper's tables here, then each change."""
    of_pfllib = {
        "per-fedavg": {**PERFEDAVG, "personal_learning_rate": 0.005},
        "fedproto": FEDPROTO,
        "fedala": PFLLIB,
        "fedpac": {**FEDPAC, "indices": "pfllib"},
    }
    found = [
        Trial("pacfl", "pacfl", SHIFT, "–", PACFL, 40),
        Trial("pacfl-trained", "pacfl", SHIFT, "measured after a client's own training",
              {**PACFL, "measured": "trained"}, 40),
        Trial("cfl-s", "cfl-s", SHIFT, "–", CFLS),
        Trial("cfl-s-indices", "cfl-s", SHIFT, "indices as published",
              {**CFLS, "indices": "as-published"}),
        Trial("cfl-s-momentum", "cfl-s", SHIFT, "momentum forgotten, rate constant",
              {**CFLS, "keep_momentum": False, "learning_rate_decay": 1.0}),
        Trial("fesem-training", "fesem", SKEW, "FlexCFL's training, 20 clients a round",
              {**FLEXCFL, "participation": 0.8, "initial_centres": "one-model"}, 60),
        Trial("fesem-network", "fesem", SKEW, "and its network",
              {**FLEXCFL, "participation": 0.8, "initial_centres": "one-model"}, 60,
              flexcfl_network),
        Trial("fesem-first", "fedavg", SKEW, "one client moves the model, as in its plain mean",
              {**FLEXCFL, "participation": 0.04}),
    ]  # fmt: skip
    for mixing in (SKEW, SHIFT):
        found += [
            Trial(f"fedpac-{mixing}", "fedpac", mixing, "–", FEDPAC),
            Trial(f"fedpac-pfllib-{mixing}", "fedpac", mixing, "heads mixed as in PFLlib",
                  {**FEDPAC, "indices": "pfllib"}),
        ]  # fmt: skip
        found.append(
            Trial(f"fedpac-guards-{mixing}", "fedpac", mixing, "and its guards against rounding",
                  {**FEDPAC, "indices": "pfllib"},
                  replaced={"clove.algorithms.fedpac.combining_weights": pfllib_weights})
        )  # fmt: skip
        for algorithm, settings in of_pfllib.items():
            found.append(
                Trial(f"{algorithm}-network-{mixing}", algorithm, mixing, "PFLlib's network",
                      settings, network=pfllib_network)
            )  # fmt: skip
    for rate in (0.01, 0.03):
        both = {"learning_rate": rate, "personal_learning_rate": rate}
        found += [
            Trial(f"per-fedavg-{rate}", "per-fedavg", SHIFT, f"learning rates {rate:g}",
                  {**PERFEDAVG, **both}),
            Trial(f"fedala-{rate}", "fedala", SHIFT, f"learning rate {rate:g}",
                  {**PFLLIB, "learning_rate": rate}),
        ]  # fmt: skip
    return found


def made(trial: Trial, seed: int) -> list[dict[str, Any]]:
    """Run a trial; return a row for each round shown."""
    task = "auto" if trial.network is None else clove.classification(trial.network)
    with ExitStack() as until_done:
        for name, part in trial.replaced.items():
            until_done.enter_context(patch(name, part))
        result = _run(trial, task, seed)
    history = result.history.set_index("round")
    about = {
        **{"trial": trial.name, "algorithm": trial.algorithm, "mixing": trial.mixing},
        **{"changed": trial.changed, "settings": _words(trial.settings), "seed": seed},
        **{"device": result.settings.device, "torch": torch.__version__, **origin()},
    }
    return [
        {**about, "round": at, "accuracy": 100 * float(history.accuracy[at])}
        for at in SHOWN
        if at <= trial.rounds
    ]


def _run(trial: Trial, task: Any, seed: int) -> clove.Result:
    return clove.run(
        **{"dataset": "fmnist", "mixing": trial.mixing, "algorithm": trial.algorithm},
        **{"seed": seed, "rounds": trial.rounds, "variant": "authors", "task": task},
        points_per_client=POINTS[trial.mixing],
        clients_per_cluster=5,
        **trial.settings,
    )


def all_made(some: Sequence[Trial], seed: int, workers: int) -> Iterator[list[dict[str, Any]]]:
    """Run trials, several side by side if so asked, and yield the rows of each when it is done."""
    if workers == 1:
        yield from (made(trial, seed) for trial in some)
        return
    with ProcessPoolExecutor(workers, get_context("spawn"), max_tasks_per_child=1) as pool:
        longest_first = sorted(some, key=_length, reverse=True)
        doing = {pool.submit(made, trial, seed): trial for trial in longest_first}
        for one in as_completed(doing):
            if (error := one.exception()) is None:
                yield one.result()
            else:
                print(f"{doing[one].name} failed: {error}", file=sys.stderr, flush=True)


def _length(trial: Trial) -> tuple[float, bool]:
    """Order trials by passes over the data, and those with larger networks before others."""
    return trial.rounds * trial.settings.get("local_epochs", 1), trial.network is not None


def _words(settings: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in settings.items())


def in_words(rows: pd.DataFrame) -> str:
    lines = [
        "Fashion-MNIST, one seed, `variant=authors`: accuracy in % after so many rounds. What is "
        "changed is so against the row above of the same method and mixing, or against the paper's "
        "tables here. By `benchmarks/causes.py`; "
        f"{all_in_words(rows.to_dict('records'))}.",
        "",
        "| method | mixing | changed | " + " | ".join(map(str, SHOWN)) + " | settings |",
        "| --- | --- | --- |" + " ---: |" * len(SHOWN) + " --- |",
    ]
    for _, some in rows.groupby("trial", sort=False):
        first, by_round = some.iloc[0], some.set_index("round").accuracy
        cells = [f"{by_round[at]:.1f}" if at in by_round else "" for at in SHOWN]
        words = [first.algorithm, first.mixing, first.changed, *cells, f"`{first.settings}`"]
        lines.append("| " + " | ".join(words) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    words.add_argument("--only", nargs="+", help="trials by the beginning of their names")
    words.add_argument("--again", action="store_true", help="also those that are done")
    words.add_argument("--seed", type=int, default=1)
    words.add_argument("--rounds", type=int, choices=SHOWN, default=SHOWN[-1], help="at most")
    words.add_argument("--workers", type=int, default=1, help="processes side by side")
    words.add_argument("--out", default=str(RESULTS / "causes"))
    given = words.parse_args()
    file = Path(f"{given.out}.csv")
    rows = pd.read_csv(file).to_dict("records") if file.exists() else []
    order = [trial.name for trial in trials()]
    had = dict.fromkeys(order, 0) | {row["trial"]: row["round"] for row in rows}
    wanted = [
        trial
        for trial in (replace(one, rounds=min(one.rounds, given.rounds)) for one in trials())
        if (given.again or had[trial.name] < trial.rounds)
        and (not given.only or trial.name.startswith(tuple(given.only)))
    ]
    for new in all_made(wanted, given.seed, given.workers):
        name = new[0]["trial"]
        rows = [row for row in rows if row["trial"] != name] + new
        rows.sort(key=lambda row: (order.index(row["trial"]), row["round"]))
        table = pd.DataFrame(rows)
        table.to_csv(file, index=False)
        Path(f"{given.out}.md").write_text(in_words(table))
        print(in_words(table[table.trial == name]).splitlines()[-1], flush=True)


if __name__ == "__main__":
    main()
