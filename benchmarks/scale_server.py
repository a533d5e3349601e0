"""What the server's step costs as a function of the number of clients, from 1,000 to 1,000,000.

    OMP_NUM_THREADS=1 python benchmarks/scale_server.py

One thread, since threads that wait for each other measure what else the machine is doing.
Each part is timed in a process of its own, on made-up losses of ten models, ten groups of clients:
the median of three runs, and the most memory it took beyond its input. Then: how a small round
compares with plain scikit-learn, and whether the number of clusters chosen on a sample is the one
chosen on all clients. Writes scale_server.csv, scale_server_choices.csv, scale_server.md (the
tables the docs quote) and scale_server.png to benchmarks/results.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pandas as pd
import sklearn
import torch
from matplotlib.figure import Figure
from origin import in_words, origin
from rich.progress import track
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

import clove
from clove.clustering import LossVectorClustering, assign_newcomers, match
from clove.federation.parameters import GroupSums
from clove.report.style import colour, marker, print_style

RESULTS = Path(__file__).parent / "results"
SIZES = (1_000, 10_000, 100_000, 1_000_000)
MODELS = 10
REPEATS = 3
PARAMETERS = 5_142  # of one client's model
CHUNK = 1_000  # clients whose models the server holds at a time
SMALL = ((25, 5, 5), (75, 5, 5), (1000, 10, 5))  # clients, models, clusters
CHOICE_CLIENTS, CHOICE_SAMPLE = 3_000, 500
KINDS = ("equal groups", "unequal groups", "random centres, wide")


# ------------------------------------------------------------------------------- made-up losses


def grouped(clients: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Make losses that are low on the model of one's own group; in place, to leave no traces."""
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, MODELS, clients)
    losses = rng.random((clients, MODELS))
    losses *= 0.3
    losses += 1.8
    losses[np.arange(clients), groups] -= 1.6
    return losses, groups


def shapeless(clients: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.random((clients, MODELS)), rng.integers(0, MODELS, clients)


def of_a_kind(kind: str, n_groups: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Make losses whose number of groups is to be found."""
    rng = np.random.default_rng([seed, n_groups])
    shares = np.ones(n_groups)
    if kind == "unequal groups":
        shares = np.geomspace(1, 20, n_groups)  # the largest is twenty times the smallest
    groups = rng.choice(n_groups, CHOICE_CLIENTS, p=shares / shares.sum())
    if kind == "random centres, wide":
        centres = rng.uniform(0.5, 2.5, (n_groups, MODELS))
        return centres[groups] + rng.normal(0, 0.25, (CHOICE_CLIENTS, MODELS)), groups
    centres = np.where(np.eye(n_groups, MODELS, dtype=bool), 0.3, 2.0)
    return centres[groups] + rng.normal(0, 0.15, (CHOICE_CLIENTS, MODELS)), groups


# ----------------------------------------------------------------------------------------- parts


def whole_step(losses: np.ndarray, groups: np.ndarray) -> None:
    found = LossVectorClustering(MODELS, random_state=0).fit(losses)
    match(found.labels_, losses)


def unknown(selection: str, losses: np.ndarray, groups: np.ndarray) -> None:
    LossVectorClustering("auto", selection=selection, random_state=0).fit(losses)


def matching(name: str, losses: np.ndarray, groups: np.ndarray) -> None:
    match(groups, losses, name, groups)


def averaging(losses: np.ndarray, groups: np.ndarray) -> None:
    models = {"weights": torch.ones(CHUNK, PARAMETERS)}  # stands for what arrives
    sums = GroupSums(MODELS)
    for start in range(0, len(groups), CHUNK):
        sums.add(models, groups[start : start + CHUNK], np.ones(CHUNK))
    sums.means()


def newcomers(losses: np.ndarray, groups: np.ndarray) -> None:
    assign_newcomers(losses, np.where(np.eye(MODELS), 0.3, 2.0), np.arange(MODELS))


PARTS: dict[str, tuple[Callable[..., None], Callable[[int], tuple[np.ndarray, np.ndarray]]]] = {
    "clustering and matching, K known": (whole_step, grouped),
    "the same, losses without any groups": (whole_step, shapeless),
    "K unknown, silhouette": (partial(unknown, "silhouette"), grouped),
    "K unknown, merge ratio": (partial(unknown, "merge-ratio"), grouped),
    "matching, min-cost": (partial(matching, "min-cost"), grouped),
    "matching, overlap": (partial(matching, "overlap"), grouped),
    "averaging": (averaging, grouped),
    "newcomers": (newcomers, grouped),
}


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(part: str, clients: int) -> dict[str, Any]:
    """Time one part here and now; for a process of its own, or memory would be another's."""
    work, make = PARTS[part]
    work(*make(CHUNK))  # what is loaded at first use is no part of it
    given = make(clients)
    before, seconds = peak(), []
    for _ in range(REPEATS):
        start = time.perf_counter()
        work(*given)
        seconds.append(time.perf_counter() - start)
    return {
        "part": part,
        "clients": clients,
        "seconds": median(seconds),
        "slowest": max(seconds),
        "megabytes": peak() - before,
    }


def in_a_process(part: str, clients: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--part", part, "--clients", str(clients)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


# ---------------------------------------------------------------------------------- comparisons


def small_rounds() -> pd.DataFrame:
    rows = []
    for clients, models, clusters in SMALL:
        losses = np.random.default_rng(0).random((clients, models))
        ours = LossVectorClustering(clusters, random_state=0)
        plain = KMeans(clusters, n_init=10, random_state=0)
        rows.append(
            {
                "clients × models": f"{clients} × {models}",
                "here, ms": milliseconds(lambda one=ours, x=losses: one.fit(x)),
                "KMeans, ms": milliseconds(lambda one=plain, x=losses: one.fit(x)),
            }
        )
    table = pd.DataFrame(rows)
    return table.assign(ratio=table["KMeans, ms"] / table["here, ms"])


def milliseconds(work: Callable[[], object], times: int = 21) -> float:
    seconds = []
    for _ in range(times + 1):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return 1000 * median(seconds[1:])


def choices(kind: str, n_groups: int, seed: int) -> list[dict[str, Any]]:
    losses, groups = of_a_kind(kind, n_groups, seed)
    rows = []
    for selection in ("silhouette", "merge-ratio"):
        exact, sampled = (
            LossVectorClustering(
                "auto", selection=selection, exact_limit=limit, random_state=seed
            ).fit(losses)
            for limit in (CHOICE_CLIENTS, CHOICE_SAMPLE)
        )
        rows.append(
            {
                "kind": kind,
                "selection": selection,
                "groups": n_groups,
                "seed": seed,
                "smallest": np.bincount(groups).min() / CHOICE_CLIENTS,
                "exact": exact.n_clusters_,
                "sampled": sampled.n_clusters_,
                "exact_ari": adjusted_rand_score(groups, exact.labels_),
                "sampled_ari": adjusted_rand_score(groups, sampled.labels_),
            }
        )
    return rows


# --------------------------------------------------------------------------------------- reports


def made() -> dict[str, str]:
    return {
        "clove": clove.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "scikit-learn": sklearn.__version__,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "threads": str(torch.get_num_threads()),
        **origin(),
    }


def scale_table(scale: pd.DataFrame) -> list[str]:
    sizes = sorted(set(scale["clients"]))
    lines = [
        "| part | " + " | ".join(f"{size:,}" for size in sizes) + " |",
        "| --- |" + " ---: |" * len(sizes),
    ]
    for part, rows in scale.groupby("part", sort=False):
        cells = (f"{r.seconds:.3g} s, {r.megabytes:.0f} MB" for r in rows.itertuples())
        lines.append(f"| {part} | " + " | ".join(cells) + " |")
    return lines


def choice_table(chosen: pd.DataFrame) -> list[str]:
    lines = [
        "| losses | selection | cases | same K on the sample as on all | true K on all "
        "| true K on the sample | ARI with the true groups, on all (mean, least) "
        "| from the sample (mean, least) |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for (kind, selection), rows in chosen.groupby(["kind", "selection"], sort=False):
        lines.append(
            f"| {kind} | {selection} | {len(rows)} | {(rows['exact'] == rows['sampled']).sum()} "
            f"| {(rows['exact'] == rows['groups']).sum()} "
            f"| {(rows['sampled'] == rows['groups']).sum()} | {spread(rows['exact_ari'])} "
            f"| {spread(rows['sampled_ari'])} |"
        )
    return lines


def spread(values: pd.Series) -> str:
    return f"{values.mean():.3f}, {values.min():.3f}"


def small_table(small: pd.DataFrame) -> list[str]:
    lines = [
        "| clients × models | `LossVectorClustering(5).fit`, ms | `KMeans(5, n_init=10).fit`, ms "
        "| ratio |",
        "| ---: | ---: | ---: | ---: |",
    ]
    for row in small.to_numpy().tolist():
        lines.append(f"| {row[0]} | {row[1]:.2f} | {row[2]:.2f} | {row[3]:.1f} |")
    return lines


def text(scale: pd.DataFrame, small: pd.DataFrame, chosen: pd.DataFrame) -> str:
    with_what = made()
    lines = [
        f"{MODELS} models, made on {with_what['machine']} ({with_what['threads']} used) with "
        f"python {with_what['python']}, numpy {with_what['numpy']}, "
        f"scikit-learn {with_what['scikit-learn']}, torch "
        f"{with_what['torch']}, clove {with_what['clove']}, {in_words(with_what)}.",
        "",
        f"Seconds (median of {REPEATS}) and memory beyond the input, by number of clients. "
        f"Averaging is of one model of {PARAMETERS:,} numbers a client, {CHUNK:,} clients at a "
        "time. Above 10,000 clients K is chosen, and k-means started, on a sample of 10,000.",
        "",
        *scale_table(scale),
        "",
        "A small round, on losses without any groups, beside plain scikit-learn:",
        "",
        *small_table(small),
        "",
        f"K chosen on a sample of {CHOICE_SAMPLE} beside K chosen on all {CHOICE_CLIENTS:,} "
        "clients, true K from 2 to 10, 5 seeds (of unequal groups the largest is 20 times the "
        f"smallest, which is {100 * chosen['smallest'].min():.1f} % of clients at the least):",
        "",
        *choice_table(chosen),
    ]
    return "\n".join(lines) + "\n"


def picture(scale: pd.DataFrame) -> Figure:
    with print_style():
        figure = Figure(figsize=(9, 4), layout="constrained")
        for axes, column in zip(figure.subplots(1, 2), ("seconds", "megabytes"), strict=True):
            for number, (part, rows) in enumerate(scale.groupby("part", sort=False)):
                shown = rows[rows[column] > 0]
                style = {"color": colour(number), "marker": marker(number)}
                axes.plot(shown["clients"], shown[column], label=part, **style)
            sizes = np.array(sorted(set(scale["clients"])))
            top = scale[scale["clients"] == sizes[-1]][column].max()
            axes.plot(sizes, top * sizes / sizes[-1], "--", color="grey", label="linear growth")
            axes.set(xscale="log", yscale="log", xlabel="clients")
        figure.axes[0].set_ylabel("seconds")
        figure.axes[1].set_ylabel("MB beyond the input")
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the result files")
    parser.add_argument("--largest", type=int, default=SIZES[-1], help="leave larger sizes out")
    parser.add_argument("--part", choices=PARTS, help="time one part only, in this process")
    parser.add_argument("--clients", type=int, default=SIZES[0], help="with --part, how many")
    given = parser.parse_args()
    warnings.simplefilter("always", clove.CloveWarning)
    if given.part:
        print(json.dumps(measure(given.part, given.clients)))
        return
    jobs = [(part, size) for part in PARTS for size in SIZES if size <= given.largest]
    scale = pd.DataFrame([in_a_process(*job) for job in track(jobs, "sizes")])
    small = small_rounds()
    cases = [(kind, k, seed) for kind in KINDS for k in range(2, 11) for seed in range(5)]
    chosen = pd.DataFrame([row for case in track(cases, "choices") for row in choices(*case)])
    given.out.mkdir(parents=True, exist_ok=True)
    scale.assign(**made()).to_csv(given.out / "scale_server.csv", index=False)
    chosen.assign(**made()).to_csv(given.out / "scale_server_choices.csv", index=False)
    (given.out / "scale_server.md").write_text(text(scale, small, chosen), encoding="utf-8")
    picture(scale).savefig(given.out / "scale_server.png")
    print(text(scale, small, chosen))


if __name__ == "__main__":
    main()
