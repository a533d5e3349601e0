"""No client weighs more than by the samples it said it has; one whose data grow says so anew."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Message, RecordDict

import clove
from clove.errors import CloveWarning
from clove.federation.flower.codec import FORM, NUMBERS

from .grid import FIRST_NODE, LocalGrid
from .runs import CLIENTS, COMMON, digits, digits_app, load_data, serve

GROWING = 3


def counting(most: int) -> Any:
    """Return what a node does that counts so many samples of each class."""

    def meddle(question: Message, reply: Message) -> Message:
        if question.metadata.message_type == "query.summary":
            parts = json.loads(reply.content[FORM][FORM])["with"]["values"]["map"]
            if "counts" in parts:
                name = parts["counts"]["numbers"]
                reply.content[NUMBERS][name] = [most] * len(reply.content[NUMBERS][name])
        return reply

    return meddle


def refusing(question: Message, reply: Message) -> Message:
    if question.metadata.message_type == "query.summary" and "counts" in reply.content[FORM][FORM]:
        return Message(RecordDict(), reply_to=question)
    return reply


def run_with(meddle: Any, bad: list[int], algorithm: str, out: Path) -> tuple[Any, list[str]]:
    grid = LocalGrid.of(digits_app(), CLIENTS)
    for number in bad:
        grid.nodes[FIRST_NODE + number].meddle = meddle
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CloveWarning)
        result = serve(grid, out, **COMMON, algorithm=algorithm)
    return result, [str(one.message) for one in caught if one.category is CloveWarning]


@pytest.mark.parametrize("bad", [[3], [3, 7]], ids=["one", "two"])
@pytest.mark.parametrize("algorithm", ["fedproto", "fedpac"])
@pytest.mark.parametrize("most", [2**62, 1000], ids=["beyond sums", "some more"])
def test_counts_of_more_samples_than_a_client_has_are_refused(
    most: int, algorithm: str, bad: list[int], tmp_path: Path
) -> None:
    told, warned = run_with(counting(most), bad, algorithm, tmp_path / "counts")
    without, _ = run_with(refusing, bad, algorithm, tmp_path / "without")
    for number in bad:
        said = [text for text in warned if f"client {number}, node" in text]
        assert said
        assert all("its summary counts" in text and "and said it has" in text for text in said)
    assert len(warned) == sum(f"client {n}, node" in text for text in warned for n in bad)
    others = [number for number in range(CLIENTS) if number not in bad]
    scores = [result.client_scores.set_index("client")["accuracy"] for result in (told, without)]
    assert np.array_equal(scores[0][others], scores[1][others])


def test_a_client_whose_data_grow_is_in_again_with_its_new_number(tmp_path: Path) -> None:
    loaded = []

    def growing(context: Context) -> clove.ClientData:
        data = load_data(context)
        if context.node_config["partition-id"] != GROWING:
            return data
        loaded.append(data)
        some = slice(20) if len(loaded) == 1 else slice(None)
        x, y = data.train
        assert y is not None
        return clove.ClientData(train=(x[some], y[some]), test=data.test, group=data.group)

    app = clove.flower.client(clove.classification("mlp"), growing)
    grid = LocalGrid.of(app, CLIENTS)
    said = f"client 3, .* trained on {digits()[GROWING].size} samples, and said it has 20; it is gr"
    with pytest.warns(CloveWarning, match=said) as warned:
        result = serve(grid, tmp_path / "run", **COMMON, algorithm="fedavg")
    assert len(warned) == 1
    assert result.history["participants"].tolist() == [CLIENTS - 1, CLIENTS, CLIENTS]
