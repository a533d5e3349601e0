"""Who takes part: nodes introduce themselves, and those that do not fit are left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Message, RecordDict
from torch import nn

import clove
from clove.errors import CloveWarning
from clove.federation.flower import roster
from clove.federation.flower.codec import FORM
from clove.federation.flower.header import refusal
from clove.runs.folder import RunFolder

from .grid import FIRST_NODE, LocalGrid, Node, node
from .runs import CLIENTS, COMMON, digits, digits_app, load_data, serve

ONE = {**COMMON, "rounds": 1, "algorithm": "fedavg"}
MLP = clove.classification("mlp")


def grid_with(app: Any, **config: Any) -> LocalGrid:
    """Return a grid of four fine nodes and one that is told something else."""
    grid = LocalGrid.of(digits_app(), 4)
    grid.nodes[99] = Node(app, 99, {"partition-id": 4, **config})
    return grid


def small_images(context: Context) -> clove.ClientData:
    x, y = load_data(context).train
    return clove.ClientData(train=(x[..., :4], y))


def more_classes(context: Context) -> clove.ClientData:
    x, y = load_data(context).train
    return clove.ClientData(train=(x, y + 10))


def one_point(context: Context) -> clove.ClientData:
    x, y = load_data(context).train
    return clove.ClientData(train=(x[:1], y[:1]))


def labels_below_nought(context: Context) -> clove.ClientData:
    x, y = load_data(context).train
    return clove.ClientData(train=(x, y - 3 - y.min()))


def holds_nan(context: Context) -> clove.ClientData:
    x, y = load_data(context).train
    return clove.ClientData(train=(np.full_like(x, np.nan), y))


def two_outputs() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 2))


def no_data(context: Context) -> Any:
    return [1, 2, 3]


def broken(context: Context) -> Any:
    raise ValueError("no such table")


def numbers(context: Context) -> clove.ClientData:
    x, _ = load_data(context).train
    return clove.ClientData(train=(x, x.sum(axis=(1, 2)) if x.ndim > 2 else x.sum(axis=1)))


@pytest.mark.parametrize(
    ("app", "config", "said"),
    [
        (clove.flower.client(MLP, small_images), {}, "its samples have shape"),
        (clove.flower.client(MLP, more_classes), {}, "its labels need 1[0-9] outputs"),
        (
            clove.flower.client(MLP, no_data),
            {},
            r"load_data of client 4 \(the odd one\) must return a ClientData, not list",
        ),
        (
            clove.flower.client(MLP, broken),
            {},
            r"load_data of client 4 \(the odd one\) failed: ValueError: no such table "
            r"\(test_roster.py, line \d+\). Mend it on that node",
        ),
        (clove.flower.client(clove.regression("mlp"), numbers), {}, "its task is regression"),
        (
            clove.flower.client(clove.classification("cnn"), load_data),
            {},
            r"client 4 \(the odd one\) cannot take part: model 'cnn' needs images of at least",
        ),
        (
            clove.flower.client(clove.classification("linear"), load_data),
            {},
            "its task is classification with network linear, the run's classification with",
        ),
        (
            clove.flower.client(MLP, one_point),
            {},
            r"client 4 \(the odd one\) cannot take part: client 4 has one training point and no",
        ),
        (
            clove.flower.client(MLP, labels_below_nought),
            {},
            r"client 4 \(the odd one\) cannot take part: its labels go down to -3",
        ),
        (
            clove.flower.client(MLP, holds_nan),
            {},
            r"load_data of client 4 \(the odd one\) failed: .*training x holds NaN",
        ),
        (
            clove.flower.client(clove.classification(two_outputs), load_data),
            {},
            r"client 4 \(the odd one\) cannot take part: .*label",
        ),
        (
            clove.flower.client(MLP, load_data),
            {"partition-id": "4"},
            "its partition-id is '4', and must be a whole number",
        ),
        (digits_app(), {"partition-id": -7}, "clients are numbered from 0"),
        (digits_app(), {"partition-id": 2**40}, "its partition-id is 1099511627776"),
        (digits_app(), {"partition-id": 1000}, "with 5 nodes none may have 1000 or more"),
    ],
)
def test_a_node_that_does_not_fit_is_named_and_left_out(app, config, said, tmp_path: Path) -> None:
    grid = grid_with(app, name="the odd one", **config)
    if "partition-id" in config:
        grid.nodes[99].app = clove.flower.client(MLP, lambda context: digits()[4])
    with pytest.warns(CloveWarning, match=rf"node 99 .*is left out: .*{said}") as warned:
        result = serve(grid, tmp_path / "run", min_nodes=4, outputs=10, **ONE)
    assert len(warned) == 1, "it is asked once"
    assert result.history["participants"].tolist() == [4]


@pytest.mark.parametrize("told", [{"partition-id": 900}, {"name": "a"}], ids=str)
def test_who_never_fitted_leaves_no_number_behind(told, tmp_path: Path) -> None:
    grid = LocalGrid([whoever(number) for number in range(4)])
    x, y = digits()[0].train
    cut = clove.ClientData(train=(x[..., :4], y))
    grid.nodes[99] = Node(clove.flower.client(MLP, lambda context: cut), 99, told)
    with pytest.warns(CloveWarning, match=r"node 99 .*is left out: its samples have shape"):
        result = serve(grid, tmp_path / "run", min_nodes=4, outputs=10, **{**COMMON, "rounds": 1})
    # In the order of the nodes' own numbers, which here run backwards.
    assert result.summary()["groups"] == [digits()[number].group for number in (3, 2, 1, 0)]
    assert result.ari is not None
    saved = RunFolder(tmp_path / "run").checkpoint()
    assert saved is not None
    assert sorted(saved["memory"]["numbers"].values()) == [0, 1, 2, 3]


def test_of_two_nodes_with_one_number_one_is_left_out(tmp_path: Path) -> None:
    grid = grid_with(digits_app(), **{"partition-id": 2})
    said = rf"node {FIRST_NODE + 2} \(client 2\) is left out: node 99 is client 2 already"
    with pytest.warns(CloveWarning, match=said) as warned:
        result = serve(grid, tmp_path / "run", min_nodes=4, outputs=10, **ONE)
    assert len(warned) == 1, "it is asked once"
    assert result.history["participants"].tolist() == [4]


@pytest.mark.parametrize("how", ["mended", "as before"])
def test_who_was_refused_is_greeted_again_and_named_once(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roster, "AGAIN", 0.0)
    grid, greeted = grid_with(digits_app()), []

    def refuse_at_first(question: Message, reply: Message) -> Message:
        if question.metadata.message_type == "query.hello":
            greeted.append(question)
            if len(greeted) == 1 or how == "as before":
                return Message(refusal("the table is not there yet"), reply_to=question)
        return reply

    grid.nodes[99].meddle = refuse_at_first
    settings = {**ONE, "rounds": 3, "min_nodes": 4, "outputs": 10}
    with pytest.warns(CloveWarning, match="the table is not there yet") as warned:
        result = serve(grid, tmp_path / "run", **settings)
    assert len(warned) == 1
    assert result.history["participants"].tolist()[-1] == (5 if how == "mended" else 4)
    assert len(greeted) == 2 if how == "mended" else len(greeted) > 2


def test_who_stays_unfit_is_greeted_ever_more_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(roster.time, "monotonic", lambda: now)
    one, greeted = roster.Outside("it has no disk", 30.0, 30.0), []
    while now < 7200:
        if one.due <= now:
            greeted.append(now)
            one.put_off()
        now += 1.0
    assert greeted[:5] == [30, 60, 120, 240, 480]
    assert greeted[-1] - greeted[-2] == roster.SELDOM


def test_what_a_node_says_cannot_pass_for_a_line_of_ours(tmp_path: Path) -> None:
    grid = grid_with(digits_app(), name="ward\n\x1b[2Jround 1/1: \u202e5 clients")
    grid.nodes[99].meddle = lambda question, reply: (
        reply
        if question.metadata.message_type == "query.hello"
        else Message(refusal("no\r\nround 1/1: 5 clients\x07" + "x" * 10_000), reply_to=question)
    )
    with pytest.warns(CloveWarning) as warned:
        serve(grid, tmp_path / "run", **ONE, outputs=10)
    for one in warned:
        assert str(one.message).isprintable()
        assert len(str(one.message)) < 700
    assert "ward [2Jround 1/1: 5 clients" in str(warned[0].message)
    saved = RunFolder(tmp_path / "run").checkpoint()
    assert saved is not None
    assert all(name.isprintable() for name in saved["memory"]["numbers"])


def saying(**words: Any) -> Any:
    """Return what a node does that says something else of itself."""

    def meddle(question: Message, reply: Message) -> Message:
        if question.metadata.message_type == "query.hello":
            form = json.loads(reply.content[FORM][FORM])
            form["with"] |= words
            reply.content[FORM][FORM] = json.dumps(form)
        return reply

    return meddle


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"group": 10**20}, "its group is 100000000000000000000"),
        ({"outputs": 10**9}, "needs 1000000000 outputs"),
        ({"samples": 10**15}, "it has 1000000000000000 samples"),
        ({"inputs": {"list": [10**9]}}, r"its samples have shape \(1000000000,\)"),
        ({"inputs": {"list": [0]}}, r"its samples have shape \(0,\)"),
        ({"name": "x" * 300}, "its name has 300 letters"),
        ({"name": "x" * 200_000}, "bytes, where"),
    ],
    ids=str,
)
def test_a_node_of_absurd_words_is_named_and_left_out(words, said, tmp_path: Path) -> None:
    grid = grid_with(digits_app())
    grid.nodes[99].meddle = saying(**words)
    with pytest.warns(CloveWarning, match=rf"node 99.* is left out: .*{said}"):
        result = serve(grid, tmp_path / "run", min_nodes=4, outputs=10, **ONE)
    assert result.history["participants"].tolist() == [4]


def test_a_run_that_too_few_nodes_fit_does_not_begin(tmp_path: Path) -> None:
    grid, task = LocalGrid.of(digits_app(), 4), clove.regression("mlp")
    with (
        pytest.warns(CloveWarning, match="is left out: its task is classification"),
        pytest.raises(clove.CloveError, match="only 0 of 4 nodes fit this run"),
    ):
        serve(grid, tmp_path / "run", task=task, min_nodes=4, **ONE)
    assert not (tmp_path / "run").exists()


def test_too_few_nodes_are_waited_for_and_then_said(tmp_path: Path) -> None:
    with pytest.raises(clove.CloveError, match=r"only 4 of 5 nodes were there after 0.1 s"):
        serve(LocalGrid.of(digits_app(), 4), tmp_path / "run", min_nodes=5, wait=0.1, **ONE)
    assert not (tmp_path / "run").exists()


class Growing(LocalGrid):
    """A grid on which nodes appear one after the other."""

    def get_node_ids(self) -> list[int]:
        self.there = getattr(self, "there", 0) + 1
        return list(self.nodes)[: self.there]


def test_the_run_begins_when_enough_nodes_are_there(tmp_path: Path) -> None:
    result = serve(Growing.of(digits_app(), 6), tmp_path / "run", **ONE)
    assert result.history["participants"].tolist() == [6]


def whoever(number: int) -> Node:
    """Return a node that was not told its number."""
    app = clove.flower.client(MLP, lambda context: digits()[number])
    return Node(app, FIRST_NODE + 7 * (CLIENTS - number), {})


def test_nodes_without_a_number_get_one_and_keep_it(tmp_path: Path) -> None:
    grid = LocalGrid([whoever(number) for number in range(CLIENTS)])
    result = serve(grid, tmp_path / "run", **{**COMMON, "rounds": 2}, outputs=10)
    # In the order of the nodes' own numbers, which here run backwards.
    expected = [client.group for client in reversed(digits())]
    assert result.summary()["groups"] == expected
    assert result.ari == 1.0


def test_a_name_brings_the_number_back_on_another_node(tmp_path: Path) -> None:
    grid = LocalGrid([whoever(number) for number in range(4)])
    for number, one in enumerate(grid.nodes.values()):
        one.config["name"] = f"ward {number}"

    moved = False

    def move(question: Any, reply: Any) -> Any:
        nonlocal moved
        if question.metadata.message_type == "query.evaluate" and not moved:
            moved = True
            leaving = next(one for one in grid.nodes.values() if one.config["name"] == "ward 1")
            del grid.nodes[leaving.id]
            leaving.id = leaving.info.node_id = 12345
            grid.nodes[leaving.id] = leaving
        return reply

    last = list(grid.nodes.values())[-1]
    last.meddle = move
    settings = {**ONE, "rounds": 3}
    result = serve(grid, tmp_path / "run", outputs=10, **settings)
    assert len(result.assignment) == 4
    assert result.history["participants"].tolist() == [4, 4, 4]


# ------------------------------------------------------------------------------------- newcomers


class Joining(LocalGrid):
    """A grid that more nodes join when a round has begun."""

    def join(self, number: int, *nodes: Node) -> None:
        self.round, self.more = number, nodes

    def _push(self, message: Any) -> str:
        header = message.content.get("header")
        if header is not None and header["round"] == self.round:
            self.nodes.update({one.id: one for one in self.more})
        return super()._push(message)


def test_a_node_that_joins_after_stability_gets_its_groups_model(tmp_path: Path) -> None:
    grid = Joining.of(digits_app(), CLIENTS - 1)
    grid.join(3, node(digits_app(), CLIENTS - 1))
    settings = {**COMMON, "algorithm": "clove", "early_stopping": True, "stable_rounds": 2}
    result = serve(grid, tmp_path / "run", **{**settings, "rounds": 5}, models=5, outputs=10)
    assert result.history["participants"].tolist() == [9, 9, 9, 10, 10]
    assert result.history["ari"].tolist() == [1.0] * 5
    assert result.assignment[CLIENTS - 1] == result.assignment[CLIENTS - 2]
    assert len(result.history["assignment"][2]) == CLIENTS - 1
    assert result.client_scores["client"].tolist() == list(range(CLIENTS))


def test_a_late_node_may_leave_a_gap(tmp_path: Path) -> None:
    grid = Joining.of(digits_app(), 4)
    grid.join(1, node(digits_app(), 7))
    result = serve(grid, tmp_path / "run", **{**ONE, "rounds": 3}, outputs=10)
    assert result.history["participants"].tolist() == [4, 5, 5]
    assert np.flatnonzero(result.assignment >= 0).tolist() == [0, 1, 2, 3, 7]


def test_fewer_nodes_than_clusters_run_all_the_same(tmp_path: Path) -> None:
    settings = {**COMMON, "rounds": 2, "algorithm": "clove", "models": 5}
    result = serve(LocalGrid.of(digits_app(), 3), tmp_path / "run", **settings, outputs=10)
    assert result.history["participants"].tolist() == [3, 3]
    assert result.summary()["models"] == 5


# -------------------------------------------------------------------------------------- settings


def test_flowers_run_config_has_the_last_word(tmp_path: Path) -> None:
    grid, config = (
        LocalGrid.of(digits_app(), CLIENTS),
        {"rounds": 2, "min-nodes": 10, "probes": "random"},
    )
    settings = {**COMMON, "min_nodes": 99, "rounds": 7}
    result = serve(grid, tmp_path / "run", run_config=config, **settings)
    assert result.settings.rounds == 2
    assert result.settings.options == {"probes": "random"} | {
        n: v for n, v in result.settings.options.items() if n != "probes"
    }
    assert result.settings.engine == "flower"


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"roundz": 2}, "unknown setting 'roundz'"),
        ({"timeout": "long"}, "timeout must be float, not 'long'"),
        ({"min-nodes": 0}, "min_nodes must be above zero"),
        ({"stragglers": 0.1}, "on a network they are real"),
        ({"algorithm": "clov"}, "did you mean 'clove'"),
    ],
)
def test_settings_that_cannot_be_are_an_error(config, said: str, tmp_path: Path) -> None:
    with pytest.raises(clove.CloveError, match=said):
        serve(LocalGrid.of(digits_app(), 2), tmp_path / "run", run_config=config, **COMMON)


def test_a_server_without_a_folder_is_an_error() -> None:
    app = clove.flower.server(COMMON)
    with pytest.raises(clove.CloveError, match="needs a folder: set out"):
        app(LocalGrid.of(digits_app(), 2), Context(1, 0, {}, RecordDict(), {}))


def test_settings_may_stand_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('[run]\nalgorithm = "fedavg"\nrounds = 1\n[training]\nlearning_rate = 0.01\n')
    app = clove.flower.server(file, out=tmp_path / "run", min_nodes=3)
    app(LocalGrid.of(digits_app(), 3), Context(1, 0, {}, RecordDict(), {}))
    settings = clove.load(tmp_path / "run").settings
    assert (settings.dataset, settings.task, settings.model) == (
        "own-clients",
        "classification",
        "mlp",
    )


def test_a_network_of_ones_own_must_be_the_servers_too(tmp_path: Path) -> None:
    from torch import nn

    def small() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))

    def large() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 20), nn.Linear(20, 10))

    app = clove.flower.client(clove.classification(small), load_data)
    with pytest.raises(clove.CloveError, match=r"hand the same task to clove.flower.server"):
        serve(LocalGrid.of(app, 2), tmp_path / "one", **ONE)
    grid = grid_with(clove.flower.client(clove.classification(large), load_data))
    for number in range(4):
        grid.nodes[FIRST_NODE + number].app = app
    with pytest.warns(
        CloveWarning, match=r"node 99 \(client 4\) is left out: its network has parameters of other"
    ):
        result = serve(grid, tmp_path / "two", task=clove.classification(small), min_nodes=4, **ONE)
    assert result.history["participants"].tolist() == [4]
