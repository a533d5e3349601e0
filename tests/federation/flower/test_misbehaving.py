"""A node that misbehaves is named and set aside, and the others are unharmed."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict

import clove
from clove.errors import CloveWarning
from clove.federation.flower.checks import SPARE, most_bytes
from clove.federation.flower.codec import FORM, NUMBERS, RAW, TENSORS

from .grid import FIRST_NODE, LocalGrid
from .runs import CLIENTS, COMMON, digits_app, serve

BAD = 4
Change = Callable[[RecordDict], RecordDict | None]


def meddling(kind: str, change: Change) -> Callable[[Message, Message], Message | None]:
    """Return what a node does that changes its replies of one kind."""

    def meddle(question: Message, reply: Message) -> Message | None:
        if question.metadata.message_type != kind:
            return reply
        content = change(reply.content)
        return None if content is None else Message(content, reply_to=question)

    return meddle


def run_with(kind: str, change: Change, out: Path, **settings: Any) -> tuple[Any, list[str]]:
    grid = LocalGrid.of(digits_app(), CLIENTS, name="ward")
    for number, node in enumerate(grid.nodes.values()):
        node.config["name"] = f"ward {number}"
    grid.nodes[FIRST_NODE + BAD].meddle = meddling(kind, change)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CloveWarning)
        settings = {**COMMON, "algorithm": "clove", "rounds": 1, "timeout": 0.2, **settings}
        result = serve(grid, out, **settings)
    return result, [str(one.message) for one in caught if one.category is CloveWarning]


# ---------------------------------------------------------------------------------- bad replies


def lost(content: RecordDict) -> None:
    return None


def not_numbers(content: RecordDict) -> RecordDict:
    for name, values in content[NUMBERS].items():
        content[NUMBERS][name] = [float("nan")] * len(values)
    return content


def wrong_length(content: RecordDict) -> RecordDict:
    form = json.loads(content[FORM][FORM])
    form["with"]["losses"]["shape"] = [1, 6]
    content[FORM][FORM] = json.dumps(form)
    content[NUMBERS]["/losses"] = [1.0] * 6
    return content


def said_length(content: RecordDict) -> RecordDict:
    content[NUMBERS]["/losses"] = [1.0] * 6
    return content


def changed(change: Callable[[np.ndarray], np.ndarray]) -> Change:
    """Return what changes the last parameters of a model."""

    def meddle(content: RecordDict) -> RecordDict:
        name = list(content[TENSORS])[-1]
        old = content[TENSORS][name]
        new = change(np.frombuffer(old.data, dtype=old.dtype).reshape(old.shape))
        content[TENSORS][name] = Array(str(new.dtype), new.shape, RAW, new.tobytes())
        return content

    return meddle


def cut_off(content: RecordDict) -> RecordDict:
    name = list(content[TENSORS])[-1]
    array = content[TENSORS][name]
    content[TENSORS][name] = Array(array.dtype, array.shape, RAW, array.data[:-1])
    return content


def pickled(content: RecordDict) -> RecordDict:
    name = list(content[TENSORS])[-1]
    content[TENSORS][name] = Array("object", (1,), "pickle", b"\x80\x04N.")
    return content


def renamed(content: RecordDict) -> RecordDict:
    form = json.loads(content[FORM][FORM])
    models = form["with"]["models"]["map"]
    models["other"] = models.pop(next(iter(models)))
    content[FORM][FORM] = json.dumps(form)
    return content


def no_samples(content: RecordDict) -> RecordDict:
    content[NUMBERS]["/samples"] = [0.0]
    return content


def with_numbers(field: str, kind: str, shape: list[int]) -> Change:
    """Return what sends ones of this shape in a field of the answer."""

    def meddle(content: RecordDict) -> RecordDict:
        form = json.loads(content[FORM][FORM])
        form["with"][field] = {"numbers": f"/{field}", "kind": kind, "shape": shape}
        content[FORM][FORM] = json.dumps(form)
        content[NUMBERS][f"/{field}"] = [1.0 if kind == "f" else 1] * int(np.prod(shape))
        return content

    return meddle


def numbers_of(field: str, value: float) -> Change:
    """Return what sends this number in a field."""

    def meddle(content: RecordDict) -> RecordDict:
        content[NUMBERS][f"/{field}"] = [value]
        return content

    return meddle


def words_in(content: RecordDict, number: int) -> RecordDict:
    content["story"] = ConfigRecord({"text": "x" * number})
    return content


def with_words(words: dict[str, Any]) -> Change:
    """Return what adds a record of words to an answer."""

    def meddle(content: RecordDict) -> RecordDict:
        content["more"] = ConfigRecord(words)
        return content

    return meddle


def long_shape(content: RecordDict) -> RecordDict:
    content[TENSORS]["more"] = Array("uint8", (1,) * 5_000_000, RAW, b"x")
    return content


def gigantic(content: RecordDict) -> RecordDict:
    content[TENSORS]["more"] = Array("uint8", (10_000_000,), RAW, bytes(10_000_000))
    return content


def form_of(form: Any) -> Change:
    """Return what sends this form in place of an honest one."""

    def meddle(content: RecordDict) -> RecordDict:
        text = form if isinstance(form, str) else json.dumps(form)
        content[FORM] = ConfigRecord({FORM: text})
        return content

    return meddle


def nothing(content: RecordDict) -> RecordDict:
    return RecordDict()


def something_else(content: RecordDict) -> RecordDict:
    return RecordDict({"metrics": MetricRecord({"loss": 0.1}), "arrays": ArrayRecord({})})


LOSSES: dict[str, tuple[Change, str]] = {
    "nan": (not_numbers, "losses that are not finite"),
    "a vector of the wrong length": (wrong_length, r"loss vector has shape \(1, 6\), not \(1, 5\)"),
    "more numbers than said": (said_length, "holds 6 numbers, not 5"),
    "silence": (lost, "no answer in 0.2 s"),
    "nothing": (nothing, "not those of a message of clove"),
    "something else": (something_else, "not those of a message of clove"),
    "no JSON": (form_of("{{{"), "not those of a message of clove"),
    "deep JSON": (form_of("[" * 100_000), "not those of a message of clove"),
    "a list": (form_of([1, 2]), "no form that is known"),
    "a number": (form_of(7), "not of the right type"),
    "another answer": (form_of({"is": "Recalled", "with": {}}), "not one of LossVectors"),
    "another class": (form_of({"is": "Popen", "with": {"args": "ls"}}), "not one of LossVectors"),
    "no losses": (form_of({"is": "LossVectors", "with": {}}), "not complete"),
    "unknown fields": (form_of({"is": "LossVectors", "with": {"x": 1}}), "fields not known here"),
    "no shape": (
        form_of({"is": "LossVectors", "with": {"losses": {"numbers": "/losses", "kind": "f"}}}),
        "no type or shape",
    ),
    "a text for losses": (form_of({"is": "LossVectors", "with": {"losses": "x"}}), "right type"),
    "a function for losses": (
        form_of({"is": "LossVectors", "with": {"losses": {"function": "objective"}}}),
        "no place for",
    ),
}
TRAINED: dict[str, tuple[Change, str]] = {
    "weights of groups": (with_numbers("weights", "f", [1]), "the server's business"),
    "more samples than it has": (numbers_of("samples", 1e6), "trained on 1e\\+06 samples, and"),
    "parameters beyond averages": (changed(lambda a: a + 3e38), "too large to be averaged"),
    "a long story": (lambda content: words_in(content, 10**7), "bytes, where"),
    "a list of long words": (with_words({"x": ["a" * 5_000_000]}), "bytes, where"),
    "words as bytes": (with_words({"x": [b"a" * 2_500_000, b"a" * 2_500_000]}), "bytes, where"),
    "a list of many numbers": (with_words({"x": [2**62] * 1_000_000}), "bytes, where"),
    "letters of many bytes": (with_words({"x": "\u6f22" * 700_000}), "2,1[0-9,]+ bytes, where"),
    "a long name": (with_words({"a" * 5_000_000: 1}), "bytes, where"),
    "a shape of many numbers": (long_shape, "bytes, where"),
    "a table of reports": (with_numbers("stable", "b", [1, 5]), r"stability has shape \(1, 5\)"),
    "nan": (changed(lambda a: a * np.nan), "not finite"),
    "wrong shape": (changed(lambda a: a[:, :-1]), r"has shape \(9,\) of torch.float32, not"),
    "two models": (changed(lambda a: np.concatenate([a, a])), "has shape"),
    "other type": (changed(lambda a: a.astype(np.float64)), "of torch.float64, not"),
    "cut off": (cut_off, "bytes, its shape"),
    "a pickle": (pickled, "no type or shape that is known"),
    "other names": (renamed, "other names"),
    "no samples": (no_samples, "number of samples"),
    "gigantic": (gigantic, "10,0[0-9]{2},[0-9]{3} bytes, where"),
    "no parameters": (
        form_of({"is": "Trained", "with": {"samples": {"numbers": "/samples", "kind": "f",
                                                       "shape": [1]}}}),
        "stability is missing",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("change", "said"), LOSSES.values(), ids=LOSSES.keys())
def test_a_bad_loss_vector_costs_only_its_client(change: Change, said: str, tmp_path: Path) -> None:
    result, warned = run_with("query.losses", change, tmp_path / "run")
    others = [number for number in range(CLIENTS) if number != BAD]
    assert result.assignment[BAD] == -1
    assert (result.assignment[others] >= 0).all()
    assert result.history["participants"].tolist() == [CLIENTS - 1]
    assert result.ari == 1.0
    assert len(warned) == 1
    for text in warned:
        assert f"client {BAD}" in text
        assert re.search(said, text), text


@pytest.mark.parametrize(("change", "said"), TRAINED.values(), ids=TRAINED.keys())
def test_bad_parameters_are_left_out_of_the_average(change, said: str, tmp_path: Path) -> None:
    result, warned = run_with("query.train", change, tmp_path / "run")
    assert result.history["participants"].tolist() == [CLIENTS - 1]
    assert result.test_loss < 2.3
    assert any(f"client {BAD} (ward {BAD}), node {FIRST_NODE + BAD}," in text for text in warned)
    assert any(re.search(said, text) for text in warned), warned


def test_the_others_average_as_if_the_bad_one_were_away(tmp_path: Path) -> None:
    bad, _ = run_with("query.train", changed(lambda a: a * np.inf), tmp_path / "bad")
    away, _ = run_with("query.train", lost, tmp_path / "away")
    assert bad._story.records == away._story.records


def test_an_error_of_flowers_own_is_a_straggler(tmp_path: Path) -> None:
    grid = LocalGrid.of(digits_app(), CLIENTS)
    grid.nodes[FIRST_NODE].meddle = lambda question, reply: (
        Message(Error(2, "it has no disk"), reply_to=question)
        if question.metadata.message_type == "query.train"
        else reply
    )
    with pytest.warns(CloveWarning, match=r"Flower says: it has no disk \(code 2\)"):
        result = serve(grid, tmp_path / "run", **{**COMMON, "rounds": 1}, algorithm="fedavg")
    assert result.history["participants"][0] == CLIENTS - 1


@pytest.mark.filterwarnings("ignore::clove.errors.CloveWarning")
@pytest.mark.parametrize("algorithm", ["clove", "fedavg", "ifca"])
def test_a_round_nobody_answers_changes_nothing(algorithm: str, tmp_path: Path) -> None:
    grid = LocalGrid.of(digits_app(), CLIENTS)
    for node in grid.nodes.values():
        node.meddle = silent_in_round_1
    settings = {**COMMON, "rounds": 2, "timeout": 0.05, "algorithm": algorithm}
    result = serve(grid, tmp_path / "run", **settings)
    assert result.history["participants"].tolist() == [0, CLIENTS]
    assert result.history["accuracy"][0] is None or np.isnan(result.history["accuracy"][0])
    assert result.accuracy is not None


def silent_in_round_1(question: Message, reply: Message) -> Message | None:
    header = question.content.get("header")
    return None if header is not None and header["round"] == 1 else reply


def exploding(context: Any) -> clove.ClientData:
    if context.node_config["partition-id"] == BAD and context.state:
        raise clove.CloveError("the disk with the data is gone: mount it")
    from .runs import load_data

    return load_data(context)


def test_what_a_client_cannot_do_it_says(tmp_path: Path) -> None:
    app = clove.flower.client(clove.classification("mlp"), exploding)
    with pytest.warns(CloveWarning, match="client 4, node .* the disk with the data is gone"):
        serve(LocalGrid.of(app, CLIENTS), tmp_path / "run", **{**COMMON, "rounds": 1})


def test_an_error_of_the_clients_own_is_said_in_a_line(tmp_path: Path) -> None:
    def torn(context: Any) -> clove.ClientData:
        from .runs import load_data

        data = load_data(context)
        if context.node_config["partition-id"] == BAD and context.state:
            raise OSError("the disk\nis gone")
        return data

    app = clove.flower.client(clove.classification("mlp"), torn)
    said = (
        r"client 4, node .* load_data of client 4 failed: OSError: the disk \(test_misbehaving.py"
    )
    with pytest.warns(CloveWarning, match=said) as warned:
        serve(LocalGrid.of(app, CLIENTS), tmp_path / "run", **{**COMMON, "rounds": 1})
    assert not any("Traceback" in str(one.message) for one in warned)


def test_a_summary_of_large_samples_is_no_gigantic_answer():
    template = {"weight": torch.zeros(1, 10)}
    form = {"vectors": ("float32", (3, 224 * 224 * 3))}
    asked = 4 * 3 * 224 * 224 * 3
    assert asked <= most_bytes(template, form) <= asked + SPARE
    assert most_bytes(template) == 2 * 40 + SPARE
