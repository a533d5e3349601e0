"""What crosses the network in a round of each method: which messages, and how many bytes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Message

from clove.federation.flower.codec import payload
from clove.federation.flower.header import HEADER, read_header

from .grid import LocalGrid
from .runs import CLIENTS, COMMON, digits_app, serve, simulate

MODEL = 4 * (64 * 64 + 64 + 64 * 10 + 10)
MODELS, NUMBER = 5, 8
ROUND = {
    "clove": {
        "query.losses": (MODELS * MODEL, MODELS * NUMBER),
        "query.train": (NUMBER, MODEL + 2 * NUMBER),
        "query.evaluate": (MODEL + NUMBER, 2 * NUMBER),
    },
    "ifca": {
        "query.losses": (MODELS * MODEL, MODELS * NUMBER),
        "query.train": (NUMBER, MODEL + 2 * NUMBER),
        "query.evaluate": (MODEL + NUMBER, 2 * NUMBER),
    },
    "fedavg": {
        "query.train": (MODEL + NUMBER, MODEL + NUMBER),
        "query.evaluate": (MODEL + NUMBER, 2 * NUMBER),
    },
    "local": {
        "query.train": (3 * NUMBER, NUMBER),
        "query.evaluate": (2 * NUMBER, 2 * NUMBER),
    },
}


def crossed(grid: LocalGrid, number: int) -> list[tuple[Message, Message]]:
    """Return the messages and replies of a round."""
    return [
        (sent, reply)
        for sent, reply in grid.log
        if reply is not None
        and HEADER in sent.content
        and read_header(sent.content).round == number
    ]


@pytest.mark.parametrize("algorithm", ROUND)
def test_each_client_gets_and_sends_this_in_a_round(algorithm: str, tmp_path: Path) -> None:
    grid = LocalGrid.of(digits_app(), CLIENTS)
    result = serve(grid, tmp_path / "run", **COMMON, algorithm=algorithm)
    for number in (1, 2, 3):
        sizes = {
            (sent.metadata.message_type, payload(sent.content), payload(reply.content))
            for sent, reply in crossed(grid, number)
        }
        assert sizes == {(kind, *size) for kind, size in ROUND[algorithm].items()}
        each = Counter(sent.metadata.message_type for sent, _ in crossed(grid, number))
        assert set(each.values()) == {CLIENTS}
    own = {k: size for k, size in ROUND[algorithm].items() if k != "query.evaluate"}
    assert result.history["bytes_down"][0] == CLIENTS * sum(down for down, _ in own.values())
    assert result.history["bytes_up"][0] == CLIENTS * sum(up for _, up in own.values())


CASES: dict[str, dict[str, Any]] = {
    "trained probes": {"probes": "trained", "probe_models": 6, "rounds": 2},
    "random probes": {"probes": "random", "probe_models": 9, "rounds": 2},
    "early stopping": {"early_stopping": True, "stable_rounds": 1, "rounds": 3},
    "newcomers": {"participation": 0.5, "early_stopping": True, "stable_rounds": 1, "rounds": 3},
    "gradients": {"averaging": "gradients", "rounds": 2},
    "overlap": {"matching": "overlap", "rounds": 2},
}


@pytest.mark.parametrize("options", CASES.values(), ids=CASES.keys())
def test_payload_on_the_wire_is_what_the_simulator_counts(options, tmp_path: Path) -> None:
    settings = {**COMMON, "algorithm": "clove", **options}
    grid, theirs = LocalGrid.of(digits_app(), CLIENTS), simulate(**settings).history
    serve(grid, tmp_path / "run", **settings)
    for number in range(1, settings["rounds"] + 1):
        method = [
            (payload(sent.content), payload(reply.content))
            for sent, reply in crossed(grid, number)
            if sent.metadata.message_type != "query.evaluate"
        ]
        counted = theirs["bytes_down"][number - 1], theirs["bytes_up"][number - 1]
        assert tuple(map(sum, zip(*method, strict=True))) == counted


def test_after_stability_a_round_is_one_exchange_and_its_evaluation(tmp_path: Path) -> None:
    grid = LocalGrid.of(digits_app(), CLIENTS)
    serve(grid, tmp_path / "run", **{**COMMON, **CASES["early stopping"]}, algorithm="clove")
    kinds = [sent.metadata.message_type for sent, _ in crossed(grid, 3)]
    assert Counter(kinds) == {"query.train": CLIENTS, "query.evaluate": CLIENTS}


def test_nothing_of_the_data_and_no_true_group_leaves_with_an_answer(tmp_path: Path) -> None:
    grid = LocalGrid.of(digits_app(), CLIENTS)
    serve(grid, tmp_path / "run", **{**COMMON, "rounds": 1}, algorithm="clove")
    for _, reply in crossed(grid, 1):
        assert set(reply.content) == {"form", "numbers", "tensors"}
        assert "group" not in str(reply.content["form"])
