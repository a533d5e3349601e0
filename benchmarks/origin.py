"""What a result was made with: commit, processor and date, for every file of results.

On a machine without git, or with a copy of the tree that is no repository, the commit is "unknown".
"""

from __future__ import annotations

import datetime
import functools
import platform
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

HERE = Path(__file__).resolve().parent
UNKNOWN = "unknown"
SHORT = ["--short", "HEAD"]
LIMIT = 30  # seconds that git may take


def origin() -> dict[str, str]:
    """Return what stands beside a result: the tree's state, the processor, the day."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return {"commit": commit(), "cpu": cpu(), "date": today}


def in_words(row: Mapping[str, object]) -> str:
    """Say of a row of results what `origin` noted; rows of before it was noted say what they have.

    >>> in_words({"cpu": "Some 9", "commit": "abc1234", "date": "2026-11-18"})
    'Some 9, commit abc1234, 2026-11-18'
    >>> in_words({"cpu": float("nan"), "date": "2026-11-16"})
    '2026-11-16'
    """
    known = {
        name: row[name] for name in ("cpu", "commit", "date") if isinstance(row.get(name), str)
    }
    if "commit" in known:
        known["commit"] = f"commit {known['commit']}"
    return ", ".join(map(str, known.values()))


def all_in_words(rows: Iterable[Mapping[str, object]]) -> str:
    """Say what all rows were made with, each once."""
    return "; ".join(filter(None, dict.fromkeys(map(in_words, rows))))


@functools.cache  # the state it had when it was loaded
def commit(folder: Path = HERE) -> str:
    """Return the commit that is checked out, with a mark where files of its tree were changed."""
    short, inside = (_git(folder, "rev-parse", *what) for what in (SHORT, ["--show-prefix"]))
    if not short or inside != f"{folder.name}/":  # a copy inside some other repository
        return UNKNOWN
    # What a benchmark writes is no change of what it measures.
    changed = _git(folder, "status", "--porcelain", "--", ":/", ":(top,exclude)benchmarks/results")
    return short if changed == "" else f"{short} (changed)"


def _git(folder: Path, *words: str) -> str | None:
    """Return what git says; None where it says nothing, or is not there."""
    try:
        done = subprocess.run(
            ["git", *words], cwd=folder, capture_output=True, text=True, timeout=LIMIT
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return None if done.returncode else done.stdout.strip()


def cpu(info: Path = Path("/proc/cpuinfo")) -> str:
    """Return the processor's model, as the system names it."""
    try:
        lines = info.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(filter(None, named), platform.processor() or UNKNOWN)
