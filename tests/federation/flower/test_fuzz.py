"""Whatever one node sends: it counts, or the node is named and set aside. The others never notice.

Answers are spoilt in every part: types, shapes, sizes, numbers that are none, missing and added
keys. Honest answers are made once and sent again, so that a thousand cases take seconds.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

import clove
from clove.errors import CloveWarning
from clove.federation import Evaluate, Gradients, LocalTraining, Losses, Recall, Train
from clove.federation.flower.codec import DTYPES, FORM, NUMBERS, RAW, TENSORS
from clove.federation.flower.parts import for_clients
from clove.federation.flower.roster import Roster
from clove.federation.flower.server import FlowerFederation
from clove.federation.initial import initial_models
from clove.federation.questions import Answer, LossVectors, Question, Summary, Trained
from clove.federation.summaries import class_means, label_counts

from .grid import FIRST_NODE, LocalGrid, Node, as_bytes, node
from .runs import COMMON, digits_app, serve
from .test_codec import assert_same

NUMBER, BAD = 4, 0  # the first: whatever is taken of one client for all is taken of it
EVERYONE, START = np.arange(NUMBER), np.array([2, 0, 1, 1])  # nobody else trains its model
TASK = clove.classification("mlp").for_data((1, 8, 8), 10)
MODELS = initial_models(TASK, 3, "different", 0)
TRAINING = LocalTraining(batch_size=64)
ASKED: dict[str, Question] = {
    "recall": Recall(EVERYONE),  # the first: nobody has been told a model yet
    "losses": Losses(MODELS, EVERYONE),
    "training": Train(
        MODELS, START, EVERYONE, TRAINING, reduce=START, assigns=True, stable_rounds=1
    ),
    "training, losses by step": Train(MODELS, START, EVERYONE, TRAINING, report_losses=True),
    "training, of a head": Train(MODELS, START, EVERYONE, TRAINING, only="head", send="head"),
    "training, nothing sent": Train(MODELS, START, EVERYONE, TRAINING, keep="own"),
    "gradients": Gradients(MODELS, START, EVERYONE, TRAINING, reduce=START),
    "evaluation": Evaluate(MODELS, EVERYONE, START),
    "counts": Summary(label_counts, EVERYONE),
    "means": Summary(class_means, EVERYONE, MODELS, START),
}
patient = settings(
    deadline=None,
    max_examples=50,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


# ---------------------------------------------------------------------------------- what is spoilt

odd_numbers = st.sampled_from(
    [0, 1, -1, 2, 3.5, 1e30, -1e30, 1e308, 1e-320, float("nan"), float("inf"), -float("inf"), 2**62]
)
odd_words = st.sampled_from(["", "x", "i", "f", "b", "numbers", "/losses", "LossVectors", "\0"])
odd_values = st.recursive(
    st.none() | st.booleans() | odd_numbers | odd_words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(odd_words, inner, max_size=3),
    max_leaves=6,
)


def places(form: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the ways to all parts of a form."""
    below: Any = enumerate(form) if isinstance(form, list) else ()
    below = form.items() if isinstance(form, dict) else below
    return [path, *(one for key, part in below for one in places(part, (*path, key)))]


@st.composite
def spoilt_form(draw: Any, content: RecordDict) -> None:
    """Change, take away or add something somewhere in the form."""
    form = {"whole": json.loads(content[FORM][FORM])}
    *way, last = draw(st.sampled_from([one for one in places(form) if one]))
    inner: Any = form
    for key in way:
        inner = inner[key]
    change = draw(st.sampled_from(["set", "drop", "add"]))
    if change == "set":
        inner[last] = draw(odd_values)
    elif change == "drop" and way:
        del inner[last]
    elif isinstance(inner, dict):
        inner[draw(odd_words)] = draw(odd_values)
    content[FORM] = ConfigRecord({FORM: json.dumps(form["whole"])})


FIELDS = sorted({part.name for kind in get_args(Answer) for part in fields(kind)})


@st.composite
def spoilt_field(draw: Any, content: RecordDict) -> None:
    """Send something whole for a field, which may be something else than was asked for."""
    form = json.loads(content[FORM][FORM])
    name = draw(st.sampled_from([*form["with"], *form["with"], *FIELDS]))
    shape = draw(st.sampled_from([[1], [1], [1, 3], [1, 5], [2], [1, 10], [], [0], [1, 1, 1]]))
    kind = draw(st.sampled_from(["f", "f", "i", "b"]))
    number = draw(odd_numbers if kind == "f" else st.sampled_from([0, 1, -1, 9, 2**62]))
    numbers = {"numbers": "/new", "kind": kind, "shape": shape}
    whole = [None, numbers, numbers, {"list": draw(st.lists(odd_words))}, {"map": {"x": numbers}}]
    form["with"][name] = draw(st.sampled_from(whole))
    if draw(st.integers(0, 4)) == 0:
        del form["with"][name]
    if np.prod(shape):
        content[NUMBERS]["/new"] = [float(number) if kind == "f" else number] * int(np.prod(shape))
    content[FORM] = ConfigRecord({FORM: json.dumps(form)})


@st.composite
def spoilt_numbers(draw: Any, content: RecordDict) -> None:
    """Send other numbers, or more, or fewer, for one field."""
    record = dict(content[NUMBERS])
    name = draw(st.sampled_from([*record, "/more"]))
    kind = draw(st.sampled_from([int, float]))
    some = odd_numbers if kind is float else odd_numbers.filter(lambda one: isinstance(one, int))
    old = record.get(name, [0.0])
    size = st.sampled_from([len(old), len(old), 1, 0, len(old) + 1, 2000])
    record[name] = [kind(draw(some))] * draw(size)
    if draw(st.integers(0, 9)) == 0:
        del record[name]
    content[NUMBERS] = MetricRecord({n: one for n, one in record.items() if one != []})


@st.composite
def spoilt_tensors(draw: Any, content: RecordDict) -> None:
    """Send another tensor for one field: of another type or shape, cut off, or of odd numbers."""
    record = dict(content[TENSORS])
    if not record or draw(st.integers(0, 9)) == 0:
        record["/more"] = Array("float32", (1,), RAW, bytes(4))
    name = draw(st.sampled_from(list(record)))
    old = record[name]
    dtype = draw(st.sampled_from([old.dtype, old.dtype, *DTYPES, "object", "float128"]))
    odd = st.sampled_from([(), (0,), (-1,), (2**30, 2**30), (0, 2**30), (1, 1), (*old.shape, 1)])
    shape = draw(st.sampled_from([old.shape, old.shape, old.shape[1:]]) | odd)
    data = _filled(old, dtype, shape, draw(odd_numbers))
    data = draw(st.sampled_from([data, data, data[:-1], data + b"\0", b"", bytes(100), old.data]))
    kind = draw(st.sampled_from([RAW, RAW, RAW, "numpy.ndarray", "pickle"]))
    record[name] = Array(dtype, shape, kind, data)
    if draw(st.integers(0, 9)) == 0:
        del record[name]
    content[TENSORS] = ArrayRecord()
    for key, array in record.items():
        content[TENSORS][key] = array


def _filled(old: Array, dtype: str, shape: tuple[int, ...], value: float) -> bytes:
    size = int(np.prod([max(one, 0) for one in shape], dtype=float)) if shape else 1
    known = dtype if dtype in DTYPES else "uint8"
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return np.full(min(size, 10_000), value).astype(known).tobytes()
        except (ValueError, OverflowError):
            return bytes(old.data)


@st.composite
def spoilt_records(draw: Any, content: RecordDict) -> None:
    """Leave out a record, send one of another kind in its place, or send more."""
    name = draw(st.sampled_from([FORM, NUMBERS, TENSORS, "refusal", "forgotten", "header", "more"]))
    other: list[Any] = [
        ConfigRecord({"reason": "x" * 1000}),
        ConfigRecord({FORM: b"\xff\x00"}),
        ConfigRecord({FORM: ["a", "b"]}),
        ConfigRecord({}),
        MetricRecord({"x": [1, 2]}),
        ArrayRecord(),
    ]
    content.pop(name, None)
    if draw(st.booleans()):
        content[name] = draw(st.sampled_from(other))


SPOILS: dict[str, Callable[[RecordDict], st.SearchStrategy[None]]] = {
    "field": spoilt_field,
    FORM: spoilt_form,
    NUMBERS: spoilt_numbers,
    TENSORS: spoilt_tensors,
    "records": spoilt_records,  # the last: it leaves nothing as the others expect it
}


def spoil(data: st.DataObject, message: Message, reply: Message) -> Message:
    """Return a reply in which something is wrong, or looks as if it were."""
    if data.draw(st.integers(0, 19)) == 0:
        return Message(Error(2, "it has no disk"), reply_to=message)
    content = as_bytes(reply).content
    chosen = data.draw(st.sets(st.sampled_from(list(SPOILS)), min_size=1, max_size=2))
    for name in [name for name in SPOILS if name in chosen]:
        data.draw(SPOILS[name](content))
    return Message(content, reply_to=message)


# ---------------------------------------------------------------------------- question by question


class Recorded(Node):
    """A node that answers every question of a kind as it did the first."""

    def handle(self, message: Message) -> Message | None:
        if not hasattr(self, "said"):
            self.said: dict[str, Message] = {}
        text = message.metadata.message_type + str(message.content.get(FORM))
        if text not in self.said:
            self.said[text] = super().handle(message)
        reply = Message(as_bytes(self.said[text]).content, reply_to=message)
        return reply if self.spoil is None else self.spoil(message, reply)

    spoil: Callable[[Message, Message], Message] | None = None


@cache
def federation() -> FlowerFederation:
    app = digits_app()
    nodes = [Recorded(app, FIRST_NODE + n, {"partition-id": n}) for n in range(NUMBER)]
    roster = Roster(LocalGrid(nodes), timeout=0.2)
    roster.refresh()
    far = FlowerFederation(roster, TASK, 3, "fp32", 0.2, (1, 8, 8), 10, rounds=9, wait=1)
    far.begin_round(1)
    for question in ASKED.values():
        far.answer(question)
    return far


def asked(question: Question, bad: Any) -> tuple[Answer, list[str]]:
    """Return the answer to a question where one node spoils its replies, and the warnings."""
    far = federation()
    far.roster.grid.nodes[FIRST_NODE + BAD].spoil = None
    far.begin_round(1)
    far.told[:], far.heard[:] = -1, 0
    far.roster.grid.nodes[FIRST_NODE + BAD].spoil = lambda message, reply: (
        # Who says too much of itself is greeted again, and honest then.
        reply if message.metadata.message_type == "query.hello" else bad(message, reply)
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CloveWarning)
        answer = far.answer(question)
    return answer, [str(one.message) for one in caught if one.category is CloveWarning]


@cache
def without(name: str) -> Answer:
    """Return the answer of the others, where the bad one has none."""
    return asked(ASKED[name], lambda message, _: Message(RecordDict(), reply_to=message))[0]


def others(answer: Answer) -> Answer:
    """Return the others' part of an answer."""
    rows = np.flatnonzero(answer.clients != BAD)
    if not isinstance(answer, Trained) or answer.weights is None:
        models = getattr(answer, "models", None)
        part = for_clients(answer, rows)
        if isinstance(answer, Trained) and models is not None:
            part = replace(part, models={n: t[rows] for n, t in models.items()})
        if hasattr(answer, "values") and not isinstance(answer, Trained):
            part = replace(part, values={n: v[rows] for n, v in answer.values.items()})
        return part
    mine = {field: getattr(answer, field)[rows] for field in ("clients", "samples")}
    stable = None if answer.stable is None else answer.stable[rows]
    groups = [group for group in np.flatnonzero(answer.weights) if group != START[BAD]]
    models = {name: tensor[groups] for name, tensor in (answer.models or {}).items()}
    return replace(answer, **mine, stable=stable, weights=answer.weights[groups], models=models)


@pytest.mark.parametrize("name", ASKED)
@given(data=st.data())
@patient
def test_a_spoilt_answer_counts_or_its_node_is_named(name: str, data: st.DataObject) -> None:
    answer, warned = asked(ASKED[name], lambda message, reply: spoil(data, message, reply))
    named = [text for text in warned if f"client {BAD}" in text]
    assert named == warned, "nobody else is blamed"
    assert BAD in answer.clients or named
    assert_same(others(answer), others(without(name)))
    if not isinstance(answer, LossVectors):  # of these, methods leave out what is not finite
        assert all(np.isfinite(numbers).all() for numbers in numbers_of(answer))


def numbers_of(answer: Answer) -> list[Any]:
    """Return all arrays and tensors of an answer."""
    parts = [getattr(answer, part.name) for part in fields(answer)]
    inner = [one for part in parts if isinstance(part, dict) for one in part.values()]
    return [one for one in [*parts, *inner] if isinstance(one, np.ndarray | Tensor)]


@given(data=st.data())
@settings(patient, max_examples=60)
def test_a_spoilt_greeting_lets_a_node_in_or_leaves_it_out(data: st.DataObject) -> None:
    grid = LocalGrid(Recorded(digits_app(), FIRST_NODE + n, {"partition-id": n}) for n in range(3))
    grid.nodes[FIRST_NODE].spoil = lambda message, reply: spoil(data, message, reply)
    roster = Roster(grid, timeout=0.2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CloveWarning)
        roster.refresh()
    members = {one.node for one in roster.members.values()}
    blamed = [str(one.message) for one in caught]
    assert len(members) + len(blamed) == 3
    if FIRST_NODE not in members:
        assert f"node {FIRST_NODE}" in blamed[0]
    assert roster.size <= 1_000_000


# ----------------------------------------------------------------------------------- whole runs

METHODS = ["clove", "fedproto", "fedpac", "pacfl", "k-fed", "fedgwc"]  # of all that clients send


@pytest.mark.parametrize("algorithm", METHODS)
@given(data=st.data())
@settings(patient, max_examples=2)
def test_a_run_goes_on_whatever_a_node_sends(algorithm: str, data: st.DataObject) -> None:
    def meddle(message: Message, reply: Message) -> Message:
        honest = message.metadata.message_type == "query.hello" or data.draw(st.booleans())
        return reply if honest else spoil(data, message, reply)

    grid = LocalGrid(node(digits_app(), number) for number in range(NUMBER))
    grid.nodes[FIRST_NODE + BAD].meddle = meddle
    chosen = {**COMMON, "rounds": 2, "algorithm": algorithm, "outputs": 10, "timeout": 0.2}
    with TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CloveWarning)
        result = serve(grid, Path(folder) / "run", **chosen)
    assert result.history["participants"].min() >= NUMBER - 1
    ours = [str(one.message) for one in caught if issubclass(one.category, CloveWarning)]
    assert all(f"client {BAD}" in text for text in ours)


# ------------------------------------------------------------------ what chance may not come upon

WRONG: list[tuple[str, str, Any, str]] = [
    ("losses", "/losses", [1e200] * 3, "its loss vector is too large"),
    ("evaluation", "/loss", [float("nan")], "its loss is not finite"),
    ("evaluation", "/loss", [-1e300], "its loss is too large"),
    ("evaluation", "/accuracy", [1.5], "which is no share"),
    ("training, losses by step", "/losses", [float("inf")], "one of its steps is not finite"),
    ("counts", "/values/counts", [-1] * 10, "counts of its summary is below nought"),
    ("means", "/values/counts", [-1] * 10, "counts of its summary is below nought"),
]


@pytest.mark.parametrize(("name", "path", "values", "said"), WRONG)
def test_numbers_that_would_spoil_a_mean_are_refused(name, path, values, said) -> None:
    def bad(message: Message, reply: Message) -> Message:
        reply.content[NUMBERS][path] = values
        return reply

    answer, (warned,) = asked(ASKED[name], bad)
    assert said in warned
    assert_same(others(answer), others(without(name)))


def test_nobody_says_for_others_what_is_a_running_statistic() -> None:
    def bad(message: Message, reply: Message) -> Message:
        form = json.loads(reply.content[FORM][FORM])
        form["with"]["values"] = {"list": list(MODELS)}
        reply.content[FORM][FORM] = json.dumps(form)
        return reply

    answer, (warned,) = asked(ASKED["gradients"], bad)
    assert "other entries of the network for running statistics" in warned
    assert answer.values == frozenset()


def test_a_summary_that_comes_alone_must_be_one_that_was_asked_for() -> None:
    """There are no others to compare it with, and no method could use it."""
    one = replace(ASKED["counts"], clients=np.array([BAD]))
    spoilt = {"is": "Summaries", "with": {"values": {"map": {}}}}

    def bad(message: Message, reply: Message) -> Message:
        reply.content[FORM][FORM] = json.dumps(spoilt)
        return reply

    answer, (warned,) = asked(one, bad)
    assert "other names, types or shapes than was asked for" in warned
    assert len(answer.clients) == 0
