"""What crosses the network in a round of each method: which messages, and how many bytes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Message

from clove.algorithms import ALGORITHMS
from clove.federation.flower.codec import payload
from clove.federation.flower.header import HEADER, read_header

from .grid import LocalGrid
from .runs import CLIENTS, COMMON, digits_app, serve, simulate

MODEL, HEAD, BODY = 4 * (64 * 64 + 64 + 64 * 10 + 10), 4 * (64 * 10 + 10), 4 * (64 * 64 + 64)
MODELS, NUMBER, STEPS = 5, 8, 5
MEANS = 4 * 64 * 10  # of the features of each class
ANCHORS = MEANS + 10  # and whether there are any
Asked = tuple[str, int, int]  # which question, bytes to a client and back
EVALUATE, TRAIN = (
    ("evaluate", MODEL + NUMBER, 2 * NUMBER),
    ("train", MODEL + NUMBER, MODEL + NUMBER),
)
CHOOSE = [
    ("losses", MODELS * MODEL, MODELS * NUMBER),
    ("train", NUMBER, MODEL + 2 * NUMBER),  # it holds the model; it says whether it is stable
    EVALUATE,
]
CLASSES = ("summary", 0, MEANS + 10 * NUMBER)  # and how many samples each has
FIRST: dict[str, list[Asked]] = {
    "fedproto": [("train", 3 * NUMBER, NUMBER), CLASSES, ("evaluate", ANCHORS, 2 * NUMBER)],
    "fedala": [TRAIN, ("evaluate", 0, 2 * NUMBER)],
    "fedpac": [
        ("summary", 0, MEANS + 4),
        ("train", MODEL + NUMBER, HEAD + NUMBER),
        ("train", NUMBER, BODY + NUMBER),
        CLASSES,
        EVALUATE,
    ],
    "flexcfl": [TRAIN, ("train", MODEL + NUMBER, MODEL + 2 * NUMBER), EVALUATE],
    "pacfl": [("summary", 0, 3 * 4 * 64), TRAIN, EVALUATE],
    "k-fed": [("summary", 0, 4 * 64 + 4), TRAIN, EVALUATE],
}
LATER: dict[str, list[Asked]] = {
    "clove": CHOOSE,
    "ifca": CHOOSE,
    "local": [("train", 3 * NUMBER, NUMBER), ("evaluate", 2 * NUMBER, 2 * NUMBER)],
    **{name: [TRAIN, EVALUATE] for name in ("fedavg", "fedprox", "per-fedavg", "cfl-s", "fesem")},
    "fedproto": [
        ("train", 3 * NUMBER + ANCHORS, NUMBER),
        CLASSES,
        ("evaluate", ANCHORS, 2 * NUMBER),
    ],
    "fedala": [
        ("train", MODEL + NUMBER, NUMBER),  # the weights of the blend, which stay with the client
        ("train", NUMBER, MODEL + NUMBER),
        ("evaluate", 0, 2 * NUMBER),
    ],
    "fedpac": [
        ("summary", 0, MEANS + 4),
        ("train", MODEL + NUMBER, HEAD + NUMBER),
        ("train", NUMBER + ANCHORS, BODY + NUMBER),
        CLASSES,
        EVALUATE,
    ],
    "flexcfl": [("train", MODEL + NUMBER, MODEL + 2 * NUMBER), EVALUATE],
    "pacfl": [TRAIN, EVALUATE],
    "k-fed": [TRAIN, EVALUATE],
    "fedgwc": [("train", MODEL + NUMBER, MODEL + NUMBER + STEPS * NUMBER), EVALUATE],
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


@pytest.mark.parametrize("algorithm", LATER)
def test_each_client_gets_and_sends_this_in_a_round(algorithm: str, tmp_path: Path) -> None:
    grid = LocalGrid.of(digits_app(), CLIENTS)
    result = serve(grid, tmp_path / "run", **COMMON, algorithm=algorithm)
    for number in (1, 2, 3):
        expected = (FIRST if number == 1 else {}).get(algorithm, LATER[algorithm])
        found = Counter(
            (sent.metadata.message_type, payload(sent.content), payload(reply.content))
            for sent, reply in crossed(grid, number)
        )
        assert found == {(f"query.{kind}", *size): CLIENTS for kind, *size in expected}
        method = [size for kind, *size in expected if kind != "evaluate"]
        assert result.history["bytes_down"][number - 1] == CLIENTS * sum(down for down, _ in method)
        assert result.history["bytes_up"][number - 1] == CLIENTS * sum(up for _, up in method)


def test_this_is_said_of_every_method_but_the_one_that_leaves_no_data_apart() -> None:
    ours = {n for n, one in ALGORITHMS.items() if one.__module__.startswith("clove.algorithms.")}
    assert LATER.keys() == ours - {"centralized"}


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
