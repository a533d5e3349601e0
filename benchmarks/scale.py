"""Seconds a round and peak memory as the federation grows: 10 to 10,000 clients of 100 samples.

    python benchmarks/scale.py [--clients 10 100 1000 10000] [--device cpu] [--out NAME]

The paper's CNN for 28×28 images, CLoVE with three models, samples made up, one test sample in ten.
Each size runs in a process of its own, whose peak memory is the size of everything: Python, torch,
the samples (twice: the user's and the engine's) and the round. Writes benchmarks/results/NAME.csv
and NAME.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
from origin import all_in_words, origin
from rich.progress import track

RESULTS = Path(__file__).parent / "results"
ONE = """
import json, resource, sys
import numpy as np
import clove

number, device = int(sys.argv[1]), sys.argv[2]
draw = np.random.default_rng(0)

def points(size, group):
    x = draw.random((size, 1, 28, 28), dtype=np.float32) * 0.5
    x[:, :, 9 * group : 9 * group + 5] += 1
    return x, draw.integers(0, 10, size)

clients = [
    clove.ClientData(points(100, c % 3), points(10, c % 3), group=c % 3) for c in range(number)
]
rounds = 5 if number < 5000 else 2
result = clove.run(
    clients=clients, model="cnn", models=3, rounds=rounds, engine="vectorized", device=device
)
seconds = result.history["seconds"].iloc[min(2, rounds - 1) :].median()
unit = 1 if sys.platform == "darwin" else 1024
print(json.dumps({
    "clients": number,
    "seconds": float(seconds),
    "peak_gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9,
    "samples_gigabytes": number * 110 * 784 * 4 / 1e9,
    "group_size": result.settings.group_size,
    **{k: v for k, v in result.summary()["made"].items() if k != "engine_reason"},
}))
"""


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    words.add_argument("--clients", nargs="*", type=int, default=[10, 100, 1000, 10_000])
    words.add_argument("--device", default="auto")
    words.add_argument("--out", default=str(RESULTS / "scale"))
    given = words.parse_args()
    rows = []
    for number in track(given.clients, description="clients"):
        done = subprocess.run(
            [sys.executable, "-c", ONE, str(number), given.device], capture_output=True, text=True
        )
        if done.returncode:
            sys.exit(f"{number} clients: {done.stderr[-2000:]}")
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        rows[-1] |= origin()
        print(rows[-1])
        write(pd.DataFrame(rows), given.out)


def write(runs: pd.DataFrame, out: str) -> None:
    first = runs.iloc[0]
    lines = [
        f"28×28 CNN, 100 samples a client, CLoVE with K = 3, a whole round with test evaluation; "
        f"made on {first['machine']} with torch {first['torch']}, clove {first['clove']}, "
        f"{all_in_words(runs.to_dict('records'))}, by `benchmarks/scale.py`.",
        "",
        "| clients | seconds a round | peak memory, GB | of which samples once, GB |",
        "| ---: | ---: | ---: | ---: |",
        *(
            f"| {run['clients']:,} | {run['seconds']:.2f} | {run['peak_gigabytes']:.1f} | "
            f"{run['samples_gigabytes']:.2f} |"
            for _, run in runs.iterrows()
        ),
    ]
    runs.to_csv(f"{out}.csv", index=False)
    Path(f"{out}.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
