"""Where memory runs out, groups become smaller; nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from clove.errors import CloveError
from clove.federation import Sequential, Train, Vectorized

from .worlds import SGD, assert_same_models, dense, everyone, models_for, some_clients


def trained(engine):
    engine.begin_round(1)
    cohort = everyone(engine)
    return engine.answer(Train(models_for(engine), cohort % 2, cohort, SGD))


def crowded(monkeypatch, most, error=torch.OutOfMemoryError):
    """Let memory run out where more than so many clients train at once."""
    run, sizes = Vectorized.train_group, []

    def train_group(self, work):
        sizes.append(len(work.clients))
        if len(work.clients) > most:
            raise error("DefaultCPUAllocator: can't allocate memory")
        return run(self, work)

    monkeypatch.setattr(Vectorized, "train_group", train_group)
    return sizes


@pytest.mark.parametrize("error", [torch.OutOfMemoryError, RuntimeError])
def test_a_group_that_does_not_fit_is_halved_until_it_does(monkeypatch, error):
    expected = trained(Vectorized(some_clients(), dense))
    sizes = crowded(monkeypatch, 2, error)
    engine = Vectorized(some_clients(), dense)
    found = trained(engine)
    np.testing.assert_array_equal(found.clients, expected.clients)
    assert_same_models(found.models, expected.models, 1e-6)
    assert max(sizes) == engine.clients
    assert engine.group_size <= 2
    sizes.clear()
    trained(engine)
    assert max(sizes) <= 2  # it has learnt


def test_a_single_client_that_does_not_fit_is_an_error_that_says_what_to_do(monkeypatch):
    crowded(monkeypatch, 0)
    with pytest.raises(CloveError, match="training 1 client at once does not fit in memory"):
        trained(Vectorized(some_clients(), dense))


def test_other_errors_are_not_taken_for_it(monkeypatch):
    def broken(self, work):
        raise RuntimeError("something else")

    monkeypatch.setattr(Sequential, "train_group", broken)
    with pytest.raises(RuntimeError, match="something else"):
        trained(Sequential(some_clients(), dense))
