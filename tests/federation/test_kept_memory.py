"""Memory that is freed stays with the process, unless the user said otherwise."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

ONCE_AND_AGAIN = """
import resource, sys
from clove.federation.kept_memory import keep_memory
kept = keep_memory()
import numpy as np
def faults(): return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def fill():
    block = np.ones(16 * 2**20)  # 128 MB, of which every page is written on
fill()
before = faults()
for _ in range(4): fill()
print(kept, faults() - before)
"""


def kept_and_faults(**variables: str) -> tuple[str, int]:
    inherited = {n: v for n, v in os.environ.items() if not n.startswith(("MALLOC_", "GLIBC_"))}
    command = [sys.executable, "-c", ONCE_AND_AGAIN]
    done = subprocess.run(
        command, env=inherited | variables, capture_output=True, text=True, check=True
    )
    kept, faults = done.stdout.split()
    return kept, int(faults)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's settings")
def test_large_blocks_are_used_again_without_new_pages() -> None:
    kept, faults = kept_and_faults()
    if kept != "True":
        pytest.skip("this C library cannot be told to keep memory")
    left_to_glibc, its_faults = kept_and_faults(MALLOC_ARENA_MAX="2")
    assert left_to_glibc == "False", "what the user has set up is left alone"
    assert faults < its_faults / 10
