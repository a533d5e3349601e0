"""Many models run over samples at once: the same as one after the other."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from clove.federation import Losses, Vectorized
from clove.federation import forwards as module
from clove.federation import parameters as stacks
from clove.federation.forwards import FEW_ROWS, LITTLE_PADDING, round_length, tables
from clove.tasks import classification

from .worlds import WORLDS, models_for, relaxed, some_clients, world


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


def test_what_does_not_fit_in_memory_runs_in_smaller_parts(monkeypatch):
    engine, models = engine_of("mlp")
    pool, rows = engine.train_pool, np.arange(len(engine.train_pool.x))
    expected = engine.forwards.shared(models, rows, pool)
    engine.forwards._most, measure = 1024, engine.measure

    def little_memory(models, index, pool):
        if engine.forwards._most > 300:
            raise torch.OutOfMemoryError
        return measure(models, index, pool)

    monkeypatch.setattr(engine, "measure", little_memory)
    close(engine.forwards.shared(models, rows, pool), expected)
    assert engine.forwards._most == 256


def test_memory_that_never_suffices_is_said(monkeypatch):
    engine, models = engine_of("mlp")

    def no_memory(*_):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(engine, "measure", no_memory)
    with pytest.raises(torch.OutOfMemoryError):
        engine.forwards.shared(models, np.arange(9), engine.train_pool)


def test_a_network_that_writes_on_its_input_leaves_the_data_as_they_are():
    task = classification(lambda: nn.Sequential(nn.LeakyReLU(inplace=True), nn.Linear(4, 3)))
    engine = Vectorized(some_clients(), task)
    before, models = engine.train_pool.x.clone(), models_for(engine)
    question = Losses(models, np.arange(engine.clients))
    first, second = engine.answer(question), engine.answer(question)
    np.testing.assert_array_equal(first.losses, second.losses)
    assert torch.equal(engine.train_pool.x, before)


@given(st.lists(st.integers(1, 4000), min_size=1, max_size=60))
def test_tables_hold_every_model_once_and_little_padding(numbers):
    sizes = np.array(numbers)
    found = tables(sizes)
    np.testing.assert_array_equal(np.sort(np.concatenate(found)), np.arange(len(sizes)))
    for places in found:
        mine = sizes[places]
        assert len(mine) * mine.max() <= LITTLE_PADDING * mine.sum()
        assert len(mine) == 1 or mine.max() <= FEW_ROWS
