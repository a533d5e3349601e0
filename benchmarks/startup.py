"""How long it takes from the command `clove run` on the digits to the beginning of its first round.

    python benchmarks/startup.py [--times 7]

Every time is a process of its own. Writes benchmarks/results/startup.csv and startup.md.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch

import clove

sys.path.insert(0, str(Path(__file__).parent))
from origin import all_in_words, origin

RESULTS = Path(__file__).parent / "results"
COMMAND = ["run", "--dataset", "digits", "--rounds", "1", "--quiet", "--json"]
# What the command does, and a look at the clock when the first round begins.
CHILD = """
import sys, time
from clove.cli import main
import clove.federation.simulation as simulation
began = simulation.Simulation.begin_round
def begin_round(self, number):
    print("ROUND", time.time(), flush=True)
    return began(self, number)
simulation.Simulation.begin_round = begin_round
main()
"""


def seconds_to_first_round(out: Path) -> float:
    start = time.time()
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *COMMAND, "--out", str(out)],
        capture_output=True,
        text=True,
        check=True,
    )
    begins = next(line for line in done.stdout.splitlines() if line.startswith("ROUND"))
    return float(begins.split()[1]) - start


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    words.add_argument("--times", type=int, default=7)
    words.add_argument("--out", default=str(RESULTS / "startup"))
    given = words.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        seconds = [
            seconds_to_first_round(Path(folder) / str(number)) for number in range(given.times + 1)
        ][1:]  # the first one brings files into memory
    made = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "clove": clove.__version__,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "load": os.getloadavg()[0],
        **origin(),
    }
    rows = pd.DataFrame([{"seconds": one, **made} for one in seconds])
    rows.to_csv(f"{given.out}.csv", index=False)
    Path(f"{given.out}.md").write_text(
        f"From the command `clove run --dataset digits` to the beginning of its first round: "
        f"{np.median(seconds):.2f} s (median of {len(seconds)} processes, "
        f"{min(seconds):.2f} to {max(seconds):.2f}). {made['machine']}, "
        f"Python {made['python']}, torch {made['torch']}, clove {made['clove']}, "
        f"{all_in_words([made])}; load {made['load']:.1f}; by `benchmarks/startup.py`.\n",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
