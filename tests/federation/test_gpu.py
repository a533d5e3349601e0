"""The engines on a CUDA device: the same numbers as on the CPU, the same bits every time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from clove.federation import Evaluate, Kept, Losses, Seeded, Sequential, Train, Vectorized
from clove.federation.engines import make_engine
from clove.federation.precision import kernels_of
from clove.tasks import classification

from .worlds import (
    ENGINES,
    SGD,
    TRAINING,
    WORLDS,
    assert_identical,
    assert_same_models,
    dense,
    dropping,
    everyone,
    models_for,
    some_clients,
    train_rounds,
    world,
)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("name", WORLDS)
def test_engines_agree_with_each_other_and_with_the_cpu(name):
    task, clients = world(name)
    expected = train_rounds(Sequential(clients, task, dtype=torch.float64))
    for engine_type in ENGINES:
        engine = engine_type(clients, task, device="cuda", dtype=torch.float64)
        models = train_rounds(engine)
        assert all(tensor.is_cuda for tensor in models.values())
        assert_same_models(models, expected)


@pytest.mark.parametrize("name", ["mlp", "mlp with batch norm", "regression"])
def test_engines_agree_in_single_precision(name):
    task, clients = world(name)
    expected = train_rounds(Sequential(clients, task), SGD)
    for engine_type in ENGINES:
        assert_same_models(train_rounds(engine_type(clients, task, device="cuda"), SGD), expected)


@pytest.mark.parametrize("engine_type", ENGINES)
@pytest.mark.parametrize("name", [*WORLDS, "dropout"])
def test_repeating_gives_identical_bits(engine_type, name):
    task, clients = (classification(dropping), some_clients()) if name == "dropout" else world(name)
    with kernels_of("fp32", torch.device("cuda")):
        first, again = (
            train_rounds(engine_type(clients, task, device="cuda"), replace(TRAINING, epochs=2))
            for _ in range(2)
        )
    assert_identical(first, again)


@pytest.mark.parametrize("batch_statistics", [0, 8])
def test_losses_agree(batch_statistics):
    task, clients = world("mlp with batch norm")

    def losses(engine):
        models = models_for(engine)
        return engine.answer(Losses(models, everyone(engine), batch_statistics)).losses

    expected = losses(Sequential(clients, task))
    for engine_type in ENGINES:
        np.testing.assert_allclose(
            losses(engine_type(clients, task, device="cuda")), expected, rtol=1e-4
        )


@pytest.mark.parametrize("engine_type", ENGINES)
def test_kept_models_stay_on_the_device(engine_type):
    engine = engine_type(some_clients(), dense, device="cuda")
    kept, cohort = Kept("own", Seeded(1)), everyone(engine)
    for _ in range(2):
        engine.answer(Train(kept, cohort * 0, cohort, SGD, keep="own"))
    assert engine.memory.kept("own", cohort)["1.weight"].is_cuda
    assert len(engine.answer(Evaluate(kept, cohort)).loss) == 5


def test_answering_leaves_the_devices_generator_alone():
    engine = Vectorized(some_clients(), classification(dropping), device="cuda")
    before = torch.cuda.get_rng_state()
    train_rounds(engine)
    assert torch.equal(torch.cuda.get_rng_state(), before)


def test_an_engine_is_chosen_for_the_device(tmp_path, monkeypatch):
    monkeypatch.setenv("CLOVE_CACHE", str(tmp_path))
    engine, choice = make_engine("auto", some_clients(), dense, TRAINING, device="cuda")
    assert engine.device.type == "cuda"
    assert "as fast as" in choice.reason
    train_rounds(engine)
