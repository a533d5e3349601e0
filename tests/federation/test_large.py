from __future__ import annotations

import os
import subprocess
import sys

import pytest

ROUND = """
import resource, sys
import numpy as np
from clove.data import ClientData
from clove.federation import LocalTraining, Losses, Train
from clove.federation.engines import make_engine
from clove.federation.initial import initial_models
from clove.tasks import classification

draw = np.random.default_rng(0)
shape, number = (1, 28, 28), 1000

def points(size):
    return draw.random((size, *shape), dtype=np.float32), draw.integers(10, size=size)

clients = [ClientData(points(100), points(1)) for _ in range(number)]
task = classification("cnn").for_data(shape, 10)
training = LocalTraining(batch_size=100)
engine, _ = make_engine("vectorized", clients, task, training)
engine.begin_round(1)
models, cohort = initial_models(task, 5, "different", 0), np.arange(number)
losses = engine.answer(Losses(models, cohort)).losses
nearest = losses.argmin(axis=1)
trained = engine.answer(Train(models, nearest, cohort, training, reduce=nearest))
assert losses.shape == (number, 5) and trained.weights.sum() == 100 * number
unit = 1 if sys.platform == "darwin" else 1024
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)
"""


@pytest.mark.slow
def test_a_round_of_a_thousand_clients_takes_less_than_four_gigabytes():
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", ROUND], env=one_thread, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 4e9
