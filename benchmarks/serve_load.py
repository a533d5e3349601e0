"""Requests a second that `clove serve` answers on this machine, over loopback.

    python benchmarks/serve_load.py [--requests 2000] [--at-once 16] [--repeats 3] [--out NAME]

A small run on digits is served by a process of its own, as the command does it. Newcomers, several
at once, send their losses and are placed, or fetch a model; all of them share this process, which
takes its part of the machine. Cases are measured in turns. Writes a row a repeat to
benchmarks/results/NAME.csv and a table to NAME.md.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.metadata
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import numpy as np
import pandas as pd
from origin import in_words, origin

import clove

HERE = Path(__file__).parent
LIMIT = 120.0  # seconds that a repeat may take at most


@contextmanager
def serving(run: Path) -> Iterator[str]:
    """Serve a run for a while, and give its address."""
    command = [sys.executable, "-m", "clove.cli", "serve", str(run), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split("placed at ")[1].split(",")[0]
    finally:
        process.terminate()
        process.wait()


async def answered(url: str, bodies: list[dict[str, object] | None], at_once: int) -> np.ndarray:
    """Send all requests, so many at once; return the seconds that each took."""
    async with aiohttp.ClientSession(url) as web:
        waiting, seconds = iter(bodies), []

        async def newcomer() -> None:
            for body in waiting:
                begun = time.perf_counter()
                method, path = ("GET", "/models/0") if body is None else ("POST", "/newcomers")
                async with web.request(method, path, json=body) as reply:
                    reply.raise_for_status()
                    await reply.read()
                seconds.append(time.perf_counter() - begun)

        await asyncio.wait_for(asyncio.gather(*(newcomer() for _ in range(at_once))), LIMIT)
    return np.array(seconds)


def measured(requests: int, at_once: int, repeats: int) -> Iterator[dict[str, object]]:
    """Yield a row for each repeat of each case."""
    with tempfile.TemporaryDirectory() as name:
        result = clove.run(rounds=6, learning_rate=0.003, device="cpu", out=Path(name) / "run")
        losses = result.loss_vectors().losses
        draw = np.random.default_rng(0).integers(len(losses), size=requests)
        cases: dict[str, list[dict[str, object] | None]] = {
            "a newcomer placed": [{"losses": losses[one].tolist()} for one in draw],
            "a model fetched": [None] * requests,
        }
        with serving(Path(name) / "run") as url:
            asyncio.run(answered(url, cases["a newcomer placed"][:100], at_once))  # warms up
            for _ in range(repeats):
                for case, bodies in cases.items():
                    load, begun = os.getloadavg()[0], time.perf_counter()
                    seconds = asyncio.run(answered(url, bodies, at_once))
                    yield {
                        "case": case,
                        "requests": requests,
                        "at once": at_once,
                        "load": load,
                        "requests a second": requests / (time.perf_counter() - begun),
                        "median ms": 1e3 * float(np.median(seconds)),
                        "p99 ms": 1e3 * float(np.quantile(seconds, 0.99)),
                    }


def machine() -> str:
    versions = [f"{name} {importlib.metadata.version(name)}" for name in ("fastapi", "uvicorn")]
    python = f"Python {platform.python_version()}"
    return ", ".join(
        [
            platform.machine(),
            f"{os.cpu_count()} cores",
            python,
            *versions,
            f"aiohttp {aiohttp.__version__}",
        ]
    )


def write(found: pd.DataFrame, file: Path) -> None:
    """Write all rows, and the table of what is typical."""
    made = origin()
    found.round(2).assign(**made).to_csv(file.with_suffix(".csv"), index=False)
    lines = [
        "| | requests a second | median ms | 99 of 100 within ms |",
        "| --- | ---: | ---: | ---: |",
    ]
    for case, mine in found.groupby("case", sort=False):
        rate = mine["requests a second"]
        lines.append(
            f"| {case} | {rate.median():.0f} ({rate.min():.0f}–{rate.max():.0f}) "
            f"| {mine['median ms'].median():.1f} | {mine['p99 ms'].median():.1f} |"
        )
    first, (low, high) = found.iloc[0], (found["load"].min(), found["load"].max())
    title = (
        f"`clove serve`, {first['requests']} requests, {first['at once']} at once, sent from the "
        "same machine: median (least–largest)."
    )
    shared = f"A load of {low:.1f} to {high:.1f} before each case."
    table = "\n".join(lines)
    file.with_suffix(".md").write_text(
        f"{title}\n\n{table}\n\nMeasured on {machine()}, {in_words(made)}. {shared}\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--at-once", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", default="serve_load")
    chosen = parser.parse_args()
    rows = pd.DataFrame(list(measured(chosen.requests, chosen.at_once, chosen.repeats)))
    print(rows.round(2).to_string(index=False))
    write(rows, HERE / "results" / chosen.out)


if __name__ == "__main__":
    main()
