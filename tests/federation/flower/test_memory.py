"""What a client remembers, and of which try of a round."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord, RecordDict

from clove.errors import CloveError
from clove.federation.flower.header import Header, read_header
from clove.federation.flower.memory import OVER, RUNS_OVER, Keeper, Remembered
from clove.federation.memory import ClientMemory

CPU = torch.device("cpu")
HEADER = Header("run1", "first", 1, 1, 3, 0, "fp32", 10, rounds=9, heard=0, folder="")


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


@pytest.mark.parametrize("later", [at(2), at(1, "second"), at(2, "second")])
def test_who_is_late_replaces_no_newer_memory(later: Header, tmp_path: Path):
    def started() -> Keeper:
        return Keeper(RecordDict(), tmp_path, CPU)

    slow, quick = started(), started()
    old = replace(at(1), asked=2)  # so that its moment may be after the other server's
    slow_memory = noted(slow.load(old), 7)
    quick.store(noted(quick.load(later), 5), later)
    with pytest.raises(CloveError, match="answer of round 1 comes too late"):
        slow.store(slow_memory, old)
    assert history(started().load(at(3, later.session))) == [5]


def test_a_server_that_was_started_again_replaces_what_its_earlier_life_left_late(tmp_path: Path):
    def started() -> Keeper:
        return Keeper(RecordDict(), tmp_path, CPU)

    begun = started()
    begun.store(noted(begun.load(at(1)), 3), at(1))
    slow, quick = started(), started()
    slow_memory, quick_memory = slow.load(at(2)), quick.load(at(2, "second"))
    slow.store(noted(slow_memory, 7), at(2))
    quick.store(noted(quick_memory, 5), at(2, "second"))
    assert history(started().load(at(3, "second"))) == [3, 5]


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


# -------------------------------------------------------------------------- what is lost, or over


def test_a_memory_that_is_whole_lacks_nothing(keepers):
    keepers().store(noted(keepers().load(at(1)), 5), at(1))
    later = replace(at(2), heard=at(1).moment)
    assert not keepers().load(later).lacks(later)
    assert history(keepers().load(later)) == [5]


def test_nothing_is_lacking_where_the_server_never_heard_of_any(keepers):
    assert not keepers().load(at(3)).lacks(at(3))


def test_a_memory_that_is_gone_is_begun_anew_until_the_server_knows(keepers):
    later = replace(at(5), heard=at(3).moment)
    memory = keepers().load(later)
    assert memory.lacks(later)
    assert memory.now is None
    keepers().store(noted(memory, 1), later)
    for number in (5, 6):
        again = replace(at(number), heard=at(3).moment)
        assert keepers().load(again).lacks(again)
        told = replace(at(number), heard=0)
        assert not keepers().load(told).lacks(told)


def test_a_memory_that_is_too_old_is_none(keepers):
    keepers().store(noted(keepers().load(at(1)), 5), at(1))
    later = replace(at(4), heard=at(3).moment)
    memory = keepers().load(later)
    assert memory.lacks(later)
    assert history(memory) == []


def test_the_moments_of_a_run_follow_each_other():
    moments = [replace(HEADER, round=r, asked=a).moment for r in (1, 2, 3) for a in (1, 2, 9)]
    assert moments == sorted(set(moments))


def over(run: str, number: int = 3) -> Header:
    return replace(HEADER, run=run, round=HEADER.rounds, client=number)


def end(folder: Path, header: Header) -> None:
    keeper = Keeper(RecordDict(), folder, CPU)
    keeper.store(noted(keeper.load(header), 1), header)


def test_of_runs_that_are_over_the_last_are_kept(tmp_path: Path):
    for age in range(RUNS_OVER + 3):
        for number in (3, 4):
            end(tmp_path, over(f"run{age}", number))
            file = tmp_path / f"run{age}-client-{number}{OVER}"
            os.utime(file, (age, age))
    end(tmp_path, over("last"))
    left = {file.name for file in tmp_path.iterdir()}
    kept = {f"run{age}-client-{n}{OVER}" for age in range(4, RUNS_OVER + 3) for n in (3, 4)}
    assert left == kept | {f"last-client-3{OVER}"}


def test_a_run_that_may_go_on_is_never_forgotten(tmp_path: Path):
    going = at(4, run="unfinished")
    Keeper(RecordDict(), tmp_path, CPU).store(noted(_begun_at(going), 2), going)
    os.utime(tmp_path / "unfinished-client-3.safetensors", (0, 0))
    for age in range(RUNS_OVER + 5):
        end(tmp_path, over(f"run{age}"))
    memory = Keeper(RecordDict(), tmp_path, CPU).load(at(5, run="unfinished"))
    assert history(memory) == [2]


def _begun_at(header: Header) -> Remembered:
    return Keeper(RecordDict(), None, CPU).load(header)


def test_a_server_that_died_in_the_last_round_finds_it_as_it_began(tmp_path: Path):
    before = replace(over("run1"), round=8)
    end(tmp_path, before)
    end(tmp_path, over("run1"))
    assert [file.name for file in tmp_path.iterdir()] == [f"run1-client-3{OVER}"]
    again = replace(over("run1"), session="second", heard=before.moment)
    memory = Keeper(RecordDict(), tmp_path, CPU).load(again)
    assert history(memory) == [1]
    assert not memory.lacks(again)
