"""A hundred rounds of CLoVE on a GPU: seconds, and what precision does to the outcome.

    CLOVE_DATA=folder/with/fmnist python benchmarks/hundred.py [--parts fmnist ...]

Each figure is the time of all rounds after five of warm-up: loss vectors, clustering, training,
averaging and test evaluation every round. Fashion-MNIST is real, data of the other shapes are made
up (see rounds.py). Stacked ones are measured three times, of which the median counts.
Writes benchmarks/results/hundred.csv and hundred.md; rows that are not measured again stay, with
their dates, and `--parts` without any writes hundred.md anew from what there is.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import clove
from clove.data import load_dataset, mix
from clove.federation import initial_models, parameters
from clove.federation.engines import find_device
from clove.runs.api import run_settings_together
from clove.runs.bench import made_clients
from clove.runs.build import gather_clients
from clove.runs.made import versions
from clove.runs.settings import from_names

sys.path.insert(0, str(Path(__file__).parent))
import loop
from origin import in_words, origin
from rounds import SHAPES

RESULTS = Path(__file__).parent / "results"
WARM_UP = 5
SLOW = 0.5  # seconds a round
PARTS = ("fmnist", "seeds", "slow", "thousand", "cifar")
FMNIST = {"dataset": "fmnist", "mixing": "label-skew-1", "algorithm": "clove", "batch_size": 64}


def timed(runs: list[clove.Result], rounds: int) -> dict[str, Any]:
    """Return the seconds after warm-up, of all runs together, and how they ended."""
    seconds = sum(run.history["seconds"].iloc[WARM_UP:].sum() for run in runs)
    return {
        "seconds": float(seconds),
        "per_round": float(seconds) / rounds,
        "accuracy": np.mean([run.accuracy for run in runs]),
        "accuracy_std": np.std([run.accuracy for run in runs]),
        "ari": np.mean([run.ari for run in runs]) if runs[0].ari is not None else None,
        "kernels": runs[0].settings.kernels,
        "torch": torch.__version__,
        "clove": clove.__version__,
        "machine": runs[0].summary()["made"]["machine"],
    }


def fmnist(seeds: int, rounds: int, **settings: Any) -> dict[str, Any]:
    chosen = [
        from_names(**FMNIST, rounds=rounds + WARM_UP, seed=seed, **settings)
        for seed in range(seeds)
    ]
    runs = run_settings_together([(one, gather_clients(one), None, None) for one in chosen])
    return timed(runs, rounds)


def made_up(name: str, rounds: int, **settings: Any) -> dict[str, Any]:
    shape = SHAPES[name][1]
    result = clove.run(
        clients=made_clients(shape),
        model=shape.model,
        task=shape.task,
        algorithm="clove",
        models=shape.models,
        rounds=rounds + WARM_UP,
        batch_size=64,
        **settings,
    )
    return timed([result], rounds)


def bare_loop(device: str, rounds: int) -> dict[str, Any]:
    """Time the loop people write, on the same clients; scaled up to as many rounds."""
    mixed = mix(load_dataset("fmnist"), "label-skew-1", 0)
    task = clove.classification("cnn").for_data((1, 28, 28), 10)
    stack = initial_models(task, 5, "different", 0)
    states = [
        parameters.one(parameters.move(stack, torch.device(device), torch.float32), k)
        for k in range(5)
    ]
    clients = [loop.Client(c.train, c.test, 64) for c in mixed.clients]
    how = loop.Training(device=device)
    done = list(loop.rounds(task.build(), states, clients, how, 4))
    seconds = float(np.median([one.seconds for one in done[1:]]))
    gpu = torch.cuda.get_device_name(device) if device.startswith("cuda") else None
    made = {name: versions(gpu)[name] for name in ("torch", "clove", "machine")}
    return {"seconds": seconds * rounds, "per_round": seconds, **made}


def parts(given: argparse.Namespace, device: str) -> list[tuple[str, str, Any]]:
    """Return what is measured: the part, what it is called, and how."""
    gpu: dict[str, Any] = {"engine": "vectorized", "device": device}
    slow: dict[str, Any] = {"engine": "sequential", "device": device}
    n, few = given.rounds, 5
    cnn = "28×28 CNN, 25 × 500, K = 5"
    found = [
        ("fmnist", f"{cnn}: one seed, {p}", lambda p=p: fmnist(1, n, precision=p, **gpu))
        for p in ("tf32", "bf16", "fp32")
    ]
    found += [
        ("seeds", f"{cnn}: three seeds together, {p}", lambda p=p: fmnist(3, n, precision=p, **gpu))
        for p in ("tf32", "bf16", "fp32")
    ]
    found += [
        (
            "slow",
            f"{cnn}: sequential engine, tf32",
            lambda: fmnist(1, few, precision="tf32", **slow),
        ),
        ("slow", f"{cnn}: bare PyTorch loop", lambda: bare_loop(device, n)),
    ]
    thousand = SHAPES["thousand"][0]
    for p in ("tf32", "bf16"):
        found.append(
            (
                "thousand",
                f"{thousand}, K = 10, {p}",
                lambda p=p: made_up("thousand", 20, precision=p, **gpu),
            )
        )
    cifar = SHAPES["cifar"][0]
    for p in ("tf32", "bf16"):
        found.append(
            (
                "cifar",
                f"{cifar}, K = 3, {p}",
                lambda p=p: made_up("cifar", n, precision=p, **gpu),
            )
        )
    found.append(
        (
            "cifar",
            f"{cifar}, K = 3: sequential engine, tf32",
            lambda: made_up("cifar", 3, precision="tf32", **slow),
        )
    )
    return found


def table(runs: pd.DataFrame) -> str:
    makers = runs.dropna(subset=["machine"]).to_dict("records")
    made = dict.fromkeys(
        f"{run['machine']} with torch {run['torch']}, clove {run['clove']}" for run in makers
    )
    lines = [
        "After five rounds of warm-up, 100 rounds, and of the slow ones a few, scaled up "
        "(sequential 5 or 3, 1000 clients 20, the bare loop 3 after 1). A time with a range is the "
        "median of three such runs, with the least and the most; one without is of one run. Made "
        "on "
        f"{'; '.join(made)}, by `benchmarks/hundred.py`; when, and with what commit and processor, "
        "is beside each row. Accuracy and ARI are "
        "those of the last round (Fashion-MNIST, label skew 1; mean ± std over seeds); data of the "
        "other shapes are made up.",
        "",
        "| work | milliseconds a round | seconds for 100 rounds | accuracy % | ARI | made |",
        "| --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for run in runs.to_dict("records"):
        real = run["part"] in ("fmnist", "seeds")
        accuracy = f"{100 * run['accuracy']:.1f} ± {100 * run['accuracy_std']:.1f}" if real else ""
        ari = f"{run['ari']:.2f}" if real else ""
        spread = ""
        if run["repeats"] > 1:
            spread = f" ({1e3 * run['least']:.1f}–{1e3 * run['most']:.1f})"
        lines.append(
            f"| {run['work']} | {1e3 * run['per_round']:.1f}{spread} | "
            f"{100 * run['per_round']:.2f} | {accuracy} | {ari} | {in_words(run)} |"
        )
    return "\n".join(lines) + "\n"


def median(measure: Callable[[], dict[str, Any]], repeats: int) -> dict[str, Any]:
    """Measure several times, and return what took neither longest nor shortest, with both."""
    first = measure()
    if first["per_round"] > SLOW:  # a few rounds are enough of these
        repeats = 1
    found = sorted(
        [first, *(measure() for _ in range(repeats - 1))], key=lambda one: one["seconds"]
    )
    ends = {"least": found[0]["per_round"], "most": found[-1]["per_round"]}
    return found[len(found) // 2] | ends | {"repeats": len(found)}


def merged(known: pd.DataFrame, new: pd.DataFrame, order: list[str]) -> pd.DataFrame:
    """Return rows of earlier and of this time, each work's latest, in the order of works."""
    both = pd.concat([one for one in (known, new) if len(one)], ignore_index=True)
    latest = both.drop_duplicates("work", keep="last")
    places = {work: place for place, work in enumerate(order)}
    return latest.sort_values(
        "work", key=lambda works: works.map(places).fillna(len(order)), kind="stable"
    )


def write(new: list[dict[str, Any]], order: list[str], out: str) -> None:
    """Add what was measured to what the file has, and write the table."""
    kept = Path(f"{out}.csv")
    if not new and not kept.exists():
        sys.exit(f"nothing was measured, and there is no {kept} to make a table of")
    runs = merged(pd.read_csv(kept) if kept.exists() else pd.DataFrame(), pd.DataFrame(new), order)
    runs.to_csv(kept, index=False)
    Path(f"{out}.md").write_text(table(runs), encoding="utf-8")


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    words.add_argument("--device", default="auto")
    words.add_argument("--rounds", type=int, default=100)
    words.add_argument("--repeats", type=int, default=3)
    words.add_argument("--parts", nargs="*", choices=PARTS, help="only these; none: no measuring")
    words.add_argument("--out", default=str(RESULTS / "hundred"))
    given = words.parse_args()
    warnings.simplefilter("ignore")  # torch's remarks on kernels, once a kernel
    known = parts(given, str(find_device(given.device)))
    order = [work for _, work, _ in known]
    for part, work, measure in known:
        if given.parts is not None and part not in given.parts:
            continue
        start = time.perf_counter()
        row = {"part": part, "work": work, **median(measure, given.repeats), **origin()}
        row |= {"whole_seconds": time.perf_counter() - start}
        print(
            {k: row.get(k) for k in ("work", "per_round", "accuracy", "ari", "whole_seconds")},
            flush=True,
        )
        write([row], order, given.out)
    write([], order, given.out)


if __name__ == "__main__":
    main()
