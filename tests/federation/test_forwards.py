"""Many models run over samples at once: the same as one after the other."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clove.federation import Vectorized
from clove.federation import forwards as module
from clove.federation import parameters as stacks
from clove.federation.forwards import round_length

from .worlds import WORLDS, models_for, relaxed, world


def close(found, expected):
    for a, b in zip(found, expected, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_allclose(a.double(), b.double(), rtol=1e-6, atol=1e-9)


def engine_of(name):
    task, clients = world(name)
    engine = Vectorized(clients, task, dtype=torch.float64)
    return engine, models_for(engine, 3)


@pytest.mark.parametrize("most", [65536, 40])
@pytest.mark.parametrize("name", WORLDS)
def test_shared_samples_in_one_run_or_in_parts(name, most, monkeypatch):
    monkeypatch.setattr(module, "MOST", most)
    engine, models = engine_of(name)
    rows = np.concatenate([engine.train_pool.rows(client) for client in (3, 0, 1)])
    for _ in range(3):
        losses, correct = engine.forwards.shared(models, rows, engine.train_pool)
        for at in range(3):
            alone = engine.run_samples(stacks.one(models, at), [rows], engine.train_pool)
            close((losses[at], None if correct is None else correct[at]), alone)


@pytest.mark.parametrize("few", [2048, 10])
@pytest.mark.parametrize("most", [65536, 40])
@pytest.mark.parametrize("clients", [(4, 1, 3), (2, 1, 2)])
@pytest.mark.parametrize("name", WORLDS)
def test_each_model_on_samples_of_its_own(name, clients, most, few, monkeypatch):
    monkeypatch.setattr(module, "MOST", most)
    monkeypatch.setattr(module, "FEW_ROWS", few)
    engine, models = engine_of(name)
    rows = [engine.train_pool.rows(client) for client in clients]
    found = engine.forwards.own(models, rows, engine.train_pool)
    for at, one in enumerate(found):
        close(one, engine.run_samples(stacks.one(models, at), [rows[at]], engine.train_pool))


@relaxed
@given(st.integers(1, 10**6))
def test_lengths_are_few_and_little_more_than_asked_for(length):
    rounded = round_length(length)
    assert rounded >= length
    assert rounded <= max(64, length * 9 / 8 + 1)
    assert round_length(rounded) == rounded
