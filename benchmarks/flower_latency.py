"""Seconds that one exchange takes over Flower's network runtime on this machine's loopback.

    python benchmarks/flower_latency.py [--nodes 2 8 32] [--repeats 3] [--out NAME]

A server asks every node an empty question and waits for all answers: TLS, nodes known by their
keys. Compared are Flower's defaults with the settings that clove uses, without and with the import
of torch that every message costs a real client (Flower starts a process for each). All cases are
measured in turns, so that whatever else the machine does falls on all of them. Writes a row an
exchange to benchmarks/results/NAME.csv and the table that the docs quote to NAME.md.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pandas as pd
from origin import all_in_words, origin

from clove.deployment.certificates import make_certificates
from clove.deployment.commands import QUICK
from clove.deployment.flwr import CONNECTION
from clove.deployment.launch import run_app
from clove.deployment.network import Network
from clove.deployment.processes import end_on_termination

HERE = Path(__file__).parent
AT_ONCE = 2  # exchanges before it is the next case's turn
POLL = "FLWR_SUPEREXEC_TASK_POLL_INTERVAL"
CASES = {
    "Flower's defaults": ("1.0", "flower", ""),
    "clove's settings": (QUICK[POLL], "clove", ""),
    "Flower's defaults, torch": ("1.0", "flower", "torch"),
    "clove's settings, torch": (QUICK[POLL], "clove", "torch"),
}


def measured(cases: list[str], nodes: int, repeats: int) -> Iterator[dict[str, object]]:
    """Yield a row for each exchange: all cases in turn, again and again."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        networks = {}
        for environment in {CASES[case][0] for case in cases}:
            folder = Path(name) / environment
            keys = make_certificates(folder / "certificates", [], nodes)
            network = Network(folder, keys, {POLL: environment})
            networks[environment] = stack.enter_context(network)
            network.start(nodes)
        for _ in range(repeats):
            for case in cases:
                load = os.getloadavg()[0]
                for seconds in exchanges(case, nodes, networks[CASES[case][0]]):
                    yield {"nodes": nodes, "settings": case, "load": load, "seconds": seconds}


def exchanges(case: str, nodes: int, network: Network) -> list[float]:
    """Return the seconds of some exchanges, but for the first, which brings the app."""
    _, server, imports = CASES[case]
    file = network.folder / "seconds"
    config = {"nodes": nodes, "exchanges": 1 + AT_ONCE, "server": server, "imports": imports}
    run_app(HERE / "flower_latency", network.home, CONNECTION, config | {"out": str(file)})
    seconds = [float(line) for line in file.read_text().split()][1:]
    print(f"{nodes} nodes, {case}: {', '.join(f'{s:.1f}' for s in seconds)}", flush=True)
    return seconds


def machine() -> str:
    """Say what this was measured with."""
    versions = {name: importlib.metadata.version(name) for name in ("flwr", "torch")}
    return (
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"flwr {versions['flwr']}, torch {versions['torch']}"
    )


def table(rows: pd.DataFrame) -> str:
    """Return the seconds of an exchange, by case and number of nodes."""
    grouped = rows.groupby(["settings", "nodes"], sort=False)["seconds"]
    cells = grouped.agg(lambda s: f"{s.median():.1f} ({s.min():.1f}–{s.max():.1f})").unstack()
    lines = ["| settings | " + " | ".join(f"{nodes} nodes" for nodes in cells.columns) + " |"]
    lines.append("| --- |" + " ---: |" * len(cells.columns))
    for name, row in cells.fillna("–").iterrows():
        lines.append(f"| {name} | {' | '.join(row)} |")
    return "\n".join(lines)


def write(found: pd.DataFrame, file: Path) -> None:
    """Add to what was measured before, case by case, and write the table."""
    case, found = ["nodes", "settings"], found.assign(**origin())
    if file.with_suffix(".csv").exists():
        old = pd.read_csv(file.with_suffix(".csv"))
        again = old.set_index(case).index.isin(found.set_index(case).index)
        found = pd.concat([old[~again], found])
    found = found.sort_values("nodes", kind="stable")
    found.to_csv(file.with_suffix(".csv"), index=False, float_format="%.3f")
    made = all_in_words(found.to_dict("records"))
    low, high = found["load"].min(), found["load"].max()
    title = "Seconds of an exchange, median (least–largest), all nodes on one machine."
    shared = f"The machine had other work, too: a load of {low:.1f} to {high:.1f} before each case."
    file.with_suffix(".md").write_text(
        f"{title}\n\n{table(found)}\n\nMeasured on {machine()}, {made}. {shared}\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[2, 8, 32])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--out", default="flower_latency")
    chosen = parser.parse_args()
    for nodes in chosen.nodes:
        rows = list(measured(chosen.cases, nodes, chosen.repeats))
        write(pd.DataFrame(rows), HERE / "results" / chosen.out)


if __name__ == "__main__":
    with end_on_termination():  # nodes go when we go
        main()
