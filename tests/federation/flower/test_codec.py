"""Questions and answers survive the way through Flower's records, and nothing else does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, get_args

import numpy as np
import pytest
import torch
from flwr.app import Array, ConfigRecord, Message, RecordDict
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from clove.errors import CloveError
from clove.federation.flower.codec import FORM, NUMBERS, TENSORS, Misread, Reader, Writer, payload
from clove.federation.flower.parts import CLIENTS, Held, OneOf, Whole
from clove.federation.questions import (
    ANSWER_TO,
    Answer,
    Evaluate,
    Extras,
    Filled,
    Gradients,
    Kept,
    LocalTraining,
    Losses,
    LossVectors,
    Question,
    Recall,
    Recalled,
    Scores,
    Seeded,
    Settle,
    Summaries,
    Summary,
    Train,
    Trained,
    Unseen,
)
from clove.federation.summaries import class_means, label_counts

from .grid import LocalGrid, as_bytes

ALONE = np.array([0])
SPLITS = ["train", "test"]
relaxed = settings(deadline=None, max_examples=60)


def through(value: Any, kind: Any, **reading: Any) -> Any:
    """Send a value from here to here, as bytes."""
    LocalGrid([])  # so that there is somebody to write messages
    sent = Message(Writer().records(value, without=CLIENTS), 1, "query")
    return Reader(**reading).value(as_bytes(sent).content, kind, {"clients": ALONE})


def assert_same(left: Any, right: Any) -> None:
    if is_dataclass(right):
        assert type(left) is type(right)
        for part in fields(right):
            assert_same(getattr(left, part.name), getattr(right, part.name))
    elif isinstance(right, Mapping):
        assert list(left) == list(right)
        for name, value in right.items():
            assert_same(left[name], value)
    elif isinstance(right, torch.Tensor):
        assert left.dtype == right.dtype
        assert left.shape == right.shape
        np.testing.assert_array_equal(left.numpy(), right.numpy())
    elif isinstance(right, np.ndarray):
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(left, right)
    else:
        assert type(left) is type(right)
        assert left == right or (left != left and right != right)


# ------------------------------------------------------------------------- whatever may be asked

tensors = hnp.arrays(
    st.sampled_from([np.float32, np.float64, np.float16, np.int64, np.int32, np.uint8, np.bool_]),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
).map(lambda array: torch.from_numpy(array.copy()))
stacks = st.dictionaries(st.text(), tensors, max_size=4)
index = st.integers(-1, 2**62).map(lambda number: np.array([number]))
plain = st.floats(allow_nan=False, allow_infinity=False)
seeded = st.builds(Seeded, st.integers(0, 2**63 - 1), st.integers(1, 1000))
part = st.text() | st.lists(st.text()).map(tuple)
kept = st.builds(Kept, st.text(), st.none() | seeded | st.builds(Filled, plain, part))
training = st.builds(LocalTraining, st.text(), plain, st.integers(1, 99), st.integers(1, 9))
unseen = st.none() | st.builds(Unseen, index, plain)
arrays = hnp.arrays(
    st.sampled_from([np.float64, np.int64, np.bool_, np.float32, np.float16, np.int32]),
    hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=3),
)
values = st.dictionaries(st.text(), tensors | arrays, max_size=3)
extras = st.none() | st.builds(Extras, values, values)
alone = st.just(ALONE)
flags = {"assigns": st.booleans(), "stable_rounds": st.integers(0, 9)}
questions = st.one_of(
    st.builds(Losses, stacks | seeded, alone, st.integers(0, 99), unseen),
    st.builds(
        Train, stacks | kept, index, alone, training,
        extras=extras, keep=st.none() | st.text(), share=plain, **flags, send=st.none() | part,
        only=part, share_anew=st.booleans(), reads=st.lists(kept, max_size=2).map(tuple),
        trains=st.none() | kept, settle=st.none() | st.builds(Settle), report_losses=st.booleans(),
    ),
    st.builds(Gradients, stacks, index, alone, training, extras=extras, **flags),
    st.builds(Recall, alone),
    st.builds(Summary, st.sampled_from([class_means, label_counts]), alone, stacks | kept),
    st.builds(Evaluate, stacks | kept, alone, st.none() | index, st.sampled_from(SPLITS)),
)  # fmt: skip
numbers = hnp.arrays(np.float64, hnp.array_shapes(min_dims=1, max_dims=2, min_side=0))
answers = st.one_of(
    st.builds(LossVectors, alone, numbers),
    st.builds(
        Trained, alone, numbers, st.none() | stacks, st.none(),
        st.none() | st.booleans().map(lambda flag: np.array([flag])), st.frozensets(st.text()),
        st.none() | numbers,
    ),
    st.builds(Recalled, alone, index),
    st.builds(Summaries, alone, st.dictionaries(st.text(), arrays, max_size=3)),
    st.builds(Scores, alone, numbers, st.none() | numbers),
)  # fmt: skip


@given(questions)
@relaxed
def test_every_question_arrives_as_it_was(question: Question) -> None:
    assert_same(through(question, type(question)), question)


@given(answers)
@relaxed
def test_every_answer_arrives_as_it_was(answer: Answer) -> None:
    assert_same(through(answer, type(answer) | None), answer)


def test_every_question_has_its_answer() -> None:
    assert set(ANSWER_TO) == set(get_args(Question))
    assert set(ANSWER_TO.values()) == set(get_args(Answer))


def test_nothing_to_say_arrives_as_nothing() -> None:
    assert through(None, LossVectors | None) is None


def test_only_parameters_and_numbers_are_payload() -> None:
    models = {"weight": torch.zeros(1, 4), "seen": torch.zeros(1).long()}
    assert payload(Writer().records(Losses(models, ALONE, 64), CLIENTS)) == 4 * 4 + 8
    assert payload(Writer().records(Losses(Seeded(1, 5), ALONE), CLIENTS)) == 2 * 8
    question = Train(models, np.array([3]), ALONE, LocalTraining())
    assert payload(Writer().records(question, CLIENTS)) == 4 * 4 + 8 + 8
    assert payload(Writer().records(Recall(ALONE), CLIENTS)) == 0


def test_a_stack_may_stand_as_what_of_it_is_sent() -> None:
    models = {"weight": torch.arange(6.0).reshape(3, 2)}
    reading = {"stand_ins": (Whole, Held, OneOf), "held": {"models-1": models}}
    question = Train(Held("models-1"), np.array([2]), ALONE, LocalTraining())
    assert through(question, Train, **reading).models is models
    with pytest.raises(Misread, match="is 'Held', not one of"):
        through(question, Train)


def test_a_tensor_is_written_once_however_often_it_is_sent() -> None:
    writer, question = Writer(), Losses({"weight": torch.zeros(2, 3)}, ALONE)
    first, second = writer.records(question), writer.records(question)
    assert first[TENSORS]["/models/weight"] is second[TENSORS]["/models/weight"]


# -------------------------------------------------------------------------------- what is refused


def forged(form: Any, **parts: Any) -> RecordDict:
    content = Writer().records(Losses(Seeded(1, 5), ALONE), CLIENTS)
    content[FORM] = ConfigRecord({FORM: json.dumps(form)})
    content[NUMBERS].update(parts)
    return content


SEED = {"is": "Seeded", "with": {"seed": 1, "count": 5}}
FORGED: dict[str, tuple[Any, str]] = {
    "a class not of questions": ({"is": "Popen", "with": {}}, "is 'Popen', not one of Losses"),
    "a class of another field": (
        {"is": "Losses", "with": {"models": {"is": "Kept", "with": {}}}}, "is 'Kept'",
    ),
    "clients are not sent": ({"is": "Losses", "with": {"clients": 1}}, "fields not known here"),
    "a text for a number": (
        {"is": "Losses", "with": {"models": SEED, "batch_statistics": "many"}}, "right type",
    ),
    "a fraction for a whole number": (
        {"is": "Losses", "with": {"models": SEED, "batch_statistics": 0.5}}, "right type",
    ),
    "a truth for a whole number": (
        {"is": "Losses", "with": {"models": SEED, "batch_statistics": True}}, "right type",
    ),
    "a missing tensor": (
        {"is": "Losses", "with": {"models": {"map": {"w": {"tensor": "/w"}}}}}, "is missing",
    ),
    "numbers for tensors": (
        {"is": "Losses", "with": {"models": {"map": {"w": 3}}}}, "not of the right type",
    ),
    "no map": ({"is": "Losses", "with": {"models": {"map": 3}}}, "is no map"),
    "no form": ({"is": "Losses", "with": {"models": {}}}, "no form that is known"),
}  # fmt: skip


@pytest.mark.parametrize(("form", "said"), FORGED.values(), ids=FORGED.keys())
def test_a_forged_question_is_refused(form: Any, said: str) -> None:
    with pytest.raises(Misread, match=said):
        Reader().value(forged(form), Losses, {"clients": ALONE})


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (
            {"function": "objective", "name": "os.system", "with": {}},
            "unknown objective 'os.system'",
        ),
        ({"function": "module", "name": "os", "with": {}}, "no place for 'module'"),
        ({"function": "objective", "name": 7, "with": {}}, "no name or options"),
        ({"function": "objective", "name": "task-loss", "with": {"x": 1}}, "unknown option"),
        ({"function": "prediction", "name": "x", "with": {}}, "no place for 'prediction'"),
    ],
)
def test_only_functions_that_are_registered_here_are_run(function: Any, said: str) -> None:
    question = Train(Kept("own", Seeded(1)), ALONE, ALONE, LocalTraining())
    content = Writer().records(question, CLIENTS)
    form = json.loads(content[FORM][FORM])
    form["with"]["objective"] = function
    content[FORM] = ConfigRecord({FORM: json.dumps(form)})
    with pytest.raises(CloveError, match=said):
        Reader().value(content, Train, {"clients": ALONE})


def test_a_function_without_a_name_cannot_be_sent() -> None:
    question = Train({}, ALONE, ALONE, LocalTraining(), objective=lambda *parts: 0)
    with pytest.raises(CloveError, match="has no name to travel by"):
        Writer().records(question)


@pytest.mark.parametrize(
    "array",
    [
        Array("float32", (2, 3), "clove.raw", bytes(23)),
        Array("float32", (2, 3), "numpy.ndarray", bytes(24)),
        Array("object", (2, 3), "clove.raw", bytes(48)),
        Array("float32", (-2, -3), "clove.raw", bytes(24)),
        Array("float32", (2**40, 2**40), "clove.raw", b""),
    ],
    ids=["too short", "not raw", "objects", "below nought", "gigantic"],
)
def test_a_tensor_that_is_not_what_it_says_is_refused(array: Array) -> None:
    content = Writer().records(Losses({"w": torch.zeros(2, 3)}, ALONE), CLIENTS)
    content[TENSORS]["/models/w"] = array
    with pytest.raises(Misread, match="the tensor /models/w has"):
        Reader().value(content, Losses, {"clients": ALONE})


def test_what_has_no_form_cannot_be_sent() -> None:
    @dataclass(frozen=True)
    class Odd:
        value: Any

    for value in (object(), torch.zeros(2, dtype=torch.bfloat16), np.array(["text"])):
        with pytest.raises(CloveError, match="cannot be sent"):
            Writer().records(Odd(value))


tags = ["is", "with", "map", "list", "tensor", "numbers", "kind", "shape", "function", "name", "x"]
garbage = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(tags),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(tags), inner),
)


@given(garbage)
@relaxed
def test_garbage_is_refused_and_harms_nobody(form: Any) -> None:
    for kind in (*get_args(Question), *get_args(Answer)):
        with pytest.raises(CloveError):
            Reader().value(forged(form), kind, {"clients": ALONE})
