"""What a client remembers, and of which try of a round."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord, RecordDict

from clove.errors import CloveError
from clove.federation.flower.header import Header, read_header
from clove.federation.flower.memory import Keeper, Remembered
from clove.federation.memory import ClientMemory

CPU = torch.device("cpu")
HEADER = Header("run1", "first", 1, 1, 3, 0, "fp32", 10)


def at(number: int, session: str = "first", run: str = "run1") -> Header:
    return replace(HEADER, round=number, session=session, run=run)


def noted(memory: Remembered, model: int) -> Remembered:
    """Return a memory after one more assignment, and a model kept."""
    own = ClientMemory(1)
    if memory.now is not None:
        own.restore(memory.now)
    own.note_assignments(np.array([0]), np.array([model]))
    own.keep("model", np.array([0]), {"w": torch.full((1, 2), float(model))})
    return replace(memory, now=own.saved(), models={"models-1": {"w": torch.zeros(2, 3)}})


def history(memory: Remembered) -> list[int]:
    return [] if memory.now is None else memory.now["histories"][0]


@pytest.fixture(params=["Flower's state", "a folder"])
def keepers(request, tmp_path: Path):
    """Return a function that makes the keeper of a process that has just been started."""
    state, on_disk = RecordDict(), request.param == "a folder"
    return lambda: Keeper(RecordDict() if on_disk else state, tmp_path if on_disk else None, CPU)


def test_a_client_begins_with_nothing(keepers):
    memory = keepers().load(at(1))
    assert (memory.before, memory.now, memory.models) == (None, None, {})


def test_rounds_follow_each_other(keepers):
    for number in (1, 2, 3):
        keepers().store(noted(keepers().load(at(number)), number), at(number))
    memory = keepers().load(at(4))
    assert history(memory) == [1, 2, 3]
    assert memory.now["kept"]["model"]["w"].tolist() == [[3.0, 3.0]]
    assert memory.now["has"]["model"].tolist() == [True]


def test_a_round_that_comes_again_starts_where_it_did(keepers):
    keepers().store(noted(keepers().load(at(1)), 5), at(1))
    keepers().store(noted(keepers().load(at(2)), 6), at(2))
    again = keepers().load(at(2, "second"))
    assert history(again) == [5]
    assert again.now["kept"]["model"]["w"].tolist() == [[5.0, 5.0]]
    keepers().store(noted(again, 7), at(2, "second"))
    assert history(keepers().load(at(3, "second"))) == [5, 7]


def test_models_of_the_round_are_held_until_it_is_over():
    state = RecordDict()
    Keeper(state, None, CPU).store(noted(Keeper(state, None, CPU).load(at(1)), 0), at(1))
    assert list(Keeper(state, None, CPU).load(at(1)).models) == ["models-1"]
    assert Keeper(state, None, CPU).load(at(2)).models == {}
    assert Keeper(state, None, CPU).load(at(1, "second")).models == {}


def test_another_run_is_another_memory(keepers):
    keepers().store(noted(keepers().load(at(1)), 5), at(1))
    assert keepers().load(at(1, run="run2")).now is None


def test_a_server_that_is_behind_is_told_so(keepers):
    keepers().store(noted(keepers().load(at(3)), 5), at(3))
    with pytest.raises(CloveError, match="been in round 3 of the run, and is asked for round 2"):
        keepers().load(at(2))


def test_flowers_own_records_are_left_alone():
    state = RecordDict({"theirs": ConfigRecord({"x": 1})})
    Keeper(state, None, CPU).store(noted(Keeper(state, None, CPU).load(at(1)), 0), at(1))
    assert dict(state["theirs"]) == {"x": 1}


# ---------------------------------------------------------------------------------------- header


def written(**parts: object) -> RecordDict:
    content = RecordDict()
    HEADER.write(content)
    for name, value in parts.items():
        content["header"][name] = value
    return content


def test_a_header_arrives_as_it_was():
    assert read_header(written()) == HEADER


@pytest.mark.parametrize(
    "parts",
    [
        {"run": "../../etc/passwd"},
        {"run": ""},
        {"client": -1},
        {"round": "one"},
        {"round": 1.5},
        {"more": 1},
    ],
)
def test_a_header_that_cannot_be_is_refused(parts):
    with pytest.raises(CloveError, match="header"):
        read_header(written(**parts))


def test_a_message_without_a_header_is_refused():
    with pytest.raises(CloveError, match="no header"):
        read_header(RecordDict())
