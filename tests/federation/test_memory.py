from __future__ import annotations

import numpy as np
import pytest
import torch

from clove.errors import CloveError
from clove.federation import Kept, Recall, Seeded, Train
from clove.federation import parameters as stacks
from clove.federation.memory import ClientMemory

from .worlds import ENGINES, SGD, assert_identical, dense, models_for, some_clients


def rows(*values: float) -> dict[str, torch.Tensor]:
    return {"weight": torch.tensor(values).view(-1, 1), "seen": torch.tensor(values).long()}


def at(*clients: int) -> np.ndarray:
    return np.array(clients, dtype=np.int64)


def filled() -> ClientMemory:
    memory = ClientMemory(4)
    memory.note_assignments(at(2, 0), at(1, 5))
    memory.note_assignments(at(2), at(1))
    memory.keep("own", at(3, 1), rows(30.0, 10.0))
    return memory


def test_each_client_remembers_its_own_assignments():
    memory = filled()
    np.testing.assert_array_equal(memory.assignments(at(0, 1, 2, 3)), [5, -1, 1, -1])
    np.testing.assert_array_equal(memory.assignments(at(2, 1)), [1, -1])


def test_clients_are_stable_after_the_same_assignment_so_many_times():
    memory = filled()
    np.testing.assert_array_equal(memory.stable(at(0, 1, 2), 2), [False, False, True])
    np.testing.assert_array_equal(memory.stable(at(0, 2), 1), [True, True])


def test_only_clients_that_keep_a_model_have_one():
    memory = filled()
    np.testing.assert_array_equal(memory.has("own", at(0, 1, 2, 3)), [False, True, False, True])
    np.testing.assert_array_equal(memory.has("other", at(0, 1)), [False, False])


def test_models_come_back_to_whoever_kept_them():
    kept = filled().kept("own", at(1, 3))
    assert_identical(kept, rows(10.0, 30.0))


def test_keeping_again_replaces_that_clients_model_only():
    memory = filled()
    before = memory.kept("own", at(1))
    memory.keep("own", at(1), rows(11.0))
    assert_identical(memory.kept("own", at(1, 3)), rows(11.0, 30.0))
    assert_identical(before, rows(10.0))


def test_names_are_kept_apart():
    memory = filled()
    memory.keep("head", at(1), rows(-1.0))
    assert_identical(memory.kept("own", at(1)), rows(10.0))
    assert_identical(memory.kept("head", at(1)), rows(-1.0))


def test_a_name_stands_for_one_kind_of_thing():
    with pytest.raises(CloveError, match="keep weight, seen under 'own', and cannot keep weight"):
        filled().keep("own", at(1), {"weight": torch.zeros(1, 1)})


def test_nobody_to_ask_is_no_trouble():
    memory = filled()
    memory.note_assignments(at(), at())
    memory.keep("own", at(), rows())
    assert memory.assignments(at()).shape == (0,)
    assert memory.stable(at(), 2).shape == (0,)
    assert memory.has("own", at()).shape == (0,)


def test_what_is_saved_can_be_restored():
    memory = ClientMemory(4)
    memory.restore(filled().saved())
    everybody = at(0, 1, 2, 3)
    expected = filled()
    np.testing.assert_array_equal(memory.assignments(everybody), expected.assignments(everybody))
    np.testing.assert_array_equal(memory.stable(everybody, 2), expected.stable(everybody, 2))
    np.testing.assert_array_equal(memory.has("own", everybody), expected.has("own", everybody))
    assert_identical(memory.kept("own", at(1, 3)), expected.kept("own", at(1, 3)))
    memory.note_assignments(at(0), at(5))
    assert memory.stable(at(0), 2).all()


@pytest.mark.parametrize("engine_type", ENGINES)
def test_training_notes_assignments_only_where_they_are_meant(engine_type):
    engine = engine_type(some_clients(), dense)
    models, start, cohort = models_for(engine), at(1, 0), at(4, 2)
    engine.answer(Train(models, start, cohort, SGD))
    assert engine.answer(Recall(cohort)).models.tolist() == [-1, -1]
    answers = [
        engine.answer(Train(models, start, cohort, SGD, assigns=True, stable_rounds=2))
        for _ in range(2)
    ]
    assert [answer.stable.tolist() for answer in answers] == [[False, False], [True, True]]
    assert engine.answer(Recall(at(2, 3, 4))).models.tolist() == [0, -1, 1]


@pytest.mark.parametrize("engine_type", ENGINES)
def test_kept_models_begin_as_the_seeded_one_and_train_on_from_there(engine_type):
    engine = engine_type(some_clients(), dense)
    engine.begin_round(1)
    cohort, own = at(1, 3), Kept("own", Seeded(9))
    first = stacks.repeat(engine.seeded(9, 0), 2)
    sent = engine.answer(Train(first, at(0, 1), cohort, SGD)).models

    answer = engine.answer(Train(own, at(0, 0), cohort, SGD, keep="own"))
    assert answer.models is None
    assert_identical(engine.memory.kept("own", cohort), sent)

    again = engine.answer(Train(sent, at(0, 1), cohort, SGD)).models
    engine.answer(Train(own, at(0, 0), cohort, SGD, keep="own"))
    assert_identical(engine.memory.kept("own", cohort), again)
    assert not engine.memory.has("own", at(0, 2, 4)).any()


@pytest.mark.parametrize("engine_type", ENGINES)
def test_an_engine_goes_on_from_what_another_saved(engine_type):
    def ask(engine, number):
        engine.begin_round(number)
        own = Kept("own", Seeded(9))
        engine.answer(Train(own, at(0, 0), at(1, 3), SGD, keep="own", assigns=True))

    straight, stopped, resumed = (engine_type(some_clients(), dense) for _ in range(3))
    ask(straight, 1)
    ask(straight, 2)
    ask(stopped, 1)
    resumed.restore(stopped.saved())
    ask(resumed, 2)
    assert_identical(resumed.memory.kept("own", at(1, 3)), straight.memory.kept("own", at(1, 3)))
    assert resumed.memory.histories == straight.memory.histories
