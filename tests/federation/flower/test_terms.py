"""What is expected of all is what the server says, else what most nodes have: not the first one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Context
from hypothesis import given
from hypothesis import strategies as st

import clove
from clove.errors import CloveWarning
from clove.federation.flower.hello import OWN, Hello
from clove.runs.network import agreed

from .grid import FIRST_NODE, LocalGrid
from .runs import COMMON, digits_app, load_data, serve

FINE = Hello(None, None, None, 50, (1, 8, 8), 10, "classification", "mlp", None, "0.1.0")
SMALL = replace(FINE, inputs=(1, 4, 4))
ONE = {**COMMON, "rounds": 1, "algorithm": "fedavg", "learning_rate": 0.01}


def test_most_decide_and_not_the_first() -> None:
    assert agreed({}, [SMALL, FINE, FINE], None).inputs == (1, 8, 8)


def test_where_as_many_say_the_one_as_the_other_the_first_decides() -> None:
    assert agreed({}, [SMALL, FINE, FINE, SMALL], None).inputs == (1, 4, 4)
    assert agreed({}, [FINE, SMALL], None).inputs == (1, 8, 8)


def test_what_the_server_says_counts_more_than_what_most_have() -> None:
    cnn = replace(FINE, network="cnn", inputs=(1, 28, 28))
    terms = agreed({"network": "mlp"}, [cnn, cnn, FINE], None)
    assert (terms.network, terms.inputs) == ("mlp", (1, 8, 8)), "of those that fit, most decide"
    terms = agreed({"network": "mlp"}, [cnn, cnn], None)
    assert terms.network == "mlp", "though nobody fits"


def test_outputs_are_as_many_as_one_of_the_usual_needs_unless_the_server_says() -> None:
    few, odd = replace(FINE, outputs=4), replace(SMALL, outputs=1000)
    assert agreed({}, [few, FINE, odd], None).outputs == 10
    assert agreed({}, [few, FINE, odd], 12).outputs == 12


def test_numbers_to_predict_are_as_many_as_most_predict() -> None:
    two = replace(FINE, task="regression", outputs=2)
    assert agreed({}, [replace(two, outputs=3), two, two], None).outputs == 2


def test_networks_of_ones_own_that_few_have_do_not_decide() -> None:
    own = replace(FINE, network=OWN, parameters="abc")
    assert agreed({}, [own, FINE, FINE], None).network == "mlp"
    with pytest.raises(clove.CloveError, match="hand the same task"):
        agreed({}, [own, own, FINE], None)


kinds = st.sampled_from([FINE, SMALL, replace(FINE, network="cnn"), replace(FINE, outputs=3)])


@given(st.lists(kinds, min_size=1, max_size=7))
def test_whatever_is_decided_fits_as_many_as_any_other_would(hellos: list[Hello]) -> None:
    def fitting(chosen: list[Hello]) -> int:
        terms = agreed({}, chosen, None)
        return sum(terms.misfit(one) is None for one in hellos)

    assert fitting(hellos) == max(fitting([replace(one, outputs=10)]) for one in hellos)


def small_images(context: Context) -> clove.ClientData:
    x, y = load_data(context).train
    return clove.ClientData(train=(x[..., :4, :4], y))


def test_an_odd_node_that_is_the_first_is_the_one_left_out(tmp_path: Path) -> None:
    grid = LocalGrid.of(digits_app(), 5)
    odd: Any = clove.flower.client(clove.classification("mlp"), small_images)
    grid.nodes[FIRST_NODE].app = odd
    with pytest.warns(
        CloveWarning, match=rf"node {FIRST_NODE} \(client 0\) is left out: its samples"
    ) as warned:
        result = serve(grid, tmp_path / "run", min_nodes=4, **ONE)
    assert len(warned) == 1
    assert result.history["participants"].tolist() == [4]


class Slow(LocalGrid):
    """A grid on which another node appears every time somebody looks."""

    def get_node_ids(self) -> list[int]:
        self.there = getattr(self, "there", 0) + 1
        return list(self.nodes)[: self.there]


@pytest.mark.filterwarnings("ignore:node .* is left out. its samples")
def test_in_place_of_who_does_not_fit_another_is_waited_for(tmp_path: Path) -> None:
    grid = Slow.of(digits_app(), 6)
    grid.nodes[FIRST_NODE + 1].app = clove.flower.client(clove.classification("mlp"), small_images)
    result = serve(grid, tmp_path / "run", min_nodes=4, outputs=10, **ONE)
    assert result.history["participants"].tolist() == [5]


@pytest.mark.parametrize("said", [None, 500])
def test_whose_labels_alone_make_the_network_wider_is_named(
    said: int | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def odd(context: Context) -> clove.ClientData:
        x, y = load_data(context).train
        assert y is not None
        return clove.ClientData(train=(x, y + 100 * (context.node_config["partition-id"] == 2)))

    app = clove.flower.client(clove.classification("mlp"), odd)
    result = serve(LocalGrid.of(app, 4), tmp_path / "run", **ONE, outputs=said)
    named = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    if said is None:
        (line,) = named
        assert f"for the labels of client 2, node {FIRST_NODE + 2}, alone: all others need" in line
    else:
        assert named == []
    assert result.history["participants"].tolist() == [4]
