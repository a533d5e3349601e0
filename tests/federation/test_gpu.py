"""The engines on a CUDA device: the same numbers as on the CPU, the same bits every time."""

from __future__ import annotations

import gc
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from clove.errors import CloveError
from clove.federation import Evaluate, Extras, Kept, Losses, Seeded, Sequential, Train, Vectorized
from clove.federation.budget import free_bytes, share_memory
from clove.federation.engines import make_engine
from clove.federation.graphs import capture
from clove.federation.layers import ONE_BY_ONE, TILED
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


@pytest.mark.parametrize("sizes", [[16] * 5, [7, 20, 3, 16, 17]])
def test_momentum_is_kept_and_the_rate_falls_in_captured_steps(sizes):
    task, shape, classes = WORLDS["cnn"]
    clients = some_clients(sizes, shape, classes)
    kept = replace(SGD, momentum=0.9, keep_momentum=True, learning_rate_decay=0.5)
    expected = train_rounds(Sequential(clients, task, dtype=torch.float64), kept, rounds=4)
    engine = Vectorized(clients, task, device="cuda", dtype=torch.float64)
    assert_same_models(train_rounds(engine, kept, rounds=4), expected)
    assert len(engine._trainings) == 1, "rounds share their captured steps"


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", ["cnn", "cnn with batch norm"])
def test_client_by_client_on_streams_gives_the_same(name, compiled):
    task, shape, classes = WORLDS[name]
    clients = some_clients([16] * 5, shape, classes)
    engine = Vectorized(clients, task, device="cuda", dtype=torch.float64)
    engine.stack.use([ONE_BY_ONE] * len(engine.stack.convolutions), ONE_BY_ONE)
    engine.stack.compiled = compiled
    many = replace(TRAINING, epochs=3)  # so that captured steps follow each other
    expected = train_rounds(Sequential(clients, task, dtype=torch.float64), many)
    assert_same_models(train_rounds(engine, many), expected)


@pytest.mark.parametrize("sizes", [[16] * 5, [7, 20, 3, 16, 17]])
@pytest.mark.parametrize("name", ["cnn", "cnn with batch norm"])
def test_tiles_give_the_same(name, sizes):
    task, shape, classes = WORLDS[name]
    clients = some_clients(sizes, shape, classes)
    expected = train_rounds(Sequential(clients, task), SGD)
    engine = Vectorized(clients, task, device="cuda")
    engine.stack.use([TILED] * len(engine.stack.convolutions), TILED)
    with kernels_of("fp32", torch.device("cuda")):
        models = train_rounds(engine, SGD)
        assert_identical(train_rounds(engine, SGD), models)
        cohort = everyone(engine)
        losses = engine.answer(Losses(models, cohort)).losses
    assert_same_models(models, expected)
    plain = Sequential(clients, task).answer(Losses(expected, cohort)).losses
    np.testing.assert_allclose(losses, plain, rtol=1e-3)


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


@dataclass(frozen=True)
class Pulled:
    """The loss a step ahead, pulled to the start and to what is kept, with small features."""

    uses_start = True

    def __call__(self, learner, parameters, batch, extras):
        gradient = learner.gradient(parameters, batch)
        ahead = {name: p - 0.1 * gradient[name] for name, p in parameters.items()}
        outputs, features = learner.outputs_and_features(ahead, batch.x, batch.weight)
        away = sum(
            (p - learner.start[n]).square().sum() + (p - learner.kept["own"][n]).square().sum()
            for n, p in parameters.items()
        )
        near = (features.flatten(1).square().mean(1) * batch.weight).sum() * extras["all"]
        return learner.loss(outputs, batch) + extras["mine"] * away + near


@dataclass(frozen=True)
class Bounded:
    def __call__(self, parameters):
        return {name: p.clamp(-0.3, 0.3) for name, p in parameters.items()}


@pytest.mark.parametrize("name", ["mlp", "cnn with batch norm"])
def test_captured_steps_see_what_clients_are_told_in_every_round(name):
    def rounds(engine):
        cohort, found = everyone(engine), []
        kept = Kept("own", Seeded(1))
        engine.answer(Train(kept, cohort * 0, cohort, SGD, keep="own"))
        models = models_for(engine)
        for number in (1, 2, 3):
            engine.begin_round(number)
            extras = Extras({"all": np.array(0.1 * number)}, {"mine": np.linspace(0, number, 5)})
            question = Train(
                *(models, cohort % 2, cohort, SGD, Pulled(), extras),
                **{"reads": (kept,), "project": Bounded(), "report_losses": True},
                **{"keep": "own", "send": "all"},
            )
            found.append(engine.answer(question))
        return found

    task, clients = world(name)
    expected = rounds(Sequential(clients, task, dtype=torch.float64))
    found = rounds(Vectorized(clients, task, dtype=torch.float64, device="cuda"))
    for one, other in zip(found, expected, strict=True):
        assert_same_models(one.models, other.models)
        np.testing.assert_allclose(one.losses, other.losses, rtol=1e-6)


def test_answering_leaves_the_devices_generator_alone():
    engine = Vectorized(some_clients(), classification(dropping), device="cuda")
    before = torch.cuda.get_rng_state()
    train_rounds(engine)
    assert torch.equal(torch.cuda.get_rng_state(), before)


def test_work_that_looks_at_the_host_is_not_captured_and_leaves_no_trace():
    device, before = torch.device("cuda"), torch.cuda.get_rng_state()
    x = torch.zeros(4, device=device)

    def work() -> None:
        x.add_(torch.rand(4, device=device)).sum().item()

    assert capture(work, device) is None
    assert torch.equal(torch.cuda.get_rng_state(), before)
    assert torch.rand(4, device=device).isfinite().all()
    assert capture(lambda: x.mul_(torch.rand(4, device=device)), device) is not None


def test_a_capture_that_breaks_off_for_a_reason_in_words_is_none_either():
    device = torch.device("cuda")

    def work() -> None:
        if torch.cuda.is_current_stream_capturing():
            raise CloveError("the vectorized engine cannot run this")

    assert capture(work, device) is None


def test_a_part_of_the_memory_is_all_that_is_free_to_a_process_that_shares_the_device():
    device = torch.device("cuda")
    total = torch.cuda.mem_get_info(device)[1]
    share_memory(4, device)
    try:
        assert free_bytes(device) < total / 4
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(total // 3, dtype=torch.uint8, device=device)
    finally:
        share_memory(1, device)


def test_graphs_thrown_away_meanwhile_do_not_spoil_a_capture():
    device = torch.device("cuda")
    x = torch.zeros(4, device=device)
    thrown: list[object] = [capture(lambda: x.add_(1), device)]
    thrown.append(thrown)  # a circle, which only the garbage collector finds
    del thrown
    before = gc.get_threshold()
    try:

        def work() -> None:
            gc.set_threshold(1)  # collects at every turn, where it may
            x.mul_(torch.stack([x for _ in range(50)]).sum())

        assert capture(work, device) is not None
    finally:
        gc.set_threshold(*before)


def test_an_engine_is_chosen_for_the_device(tmp_path, monkeypatch):
    monkeypatch.setenv("CLOVE_CACHE", str(tmp_path))
    engine, choice = make_engine("auto", some_clients(), dense, TRAINING, device="cuda")
    assert engine.device.type == "cuda"
    assert "as fast as" in choice.reason
    train_rounds(engine)
