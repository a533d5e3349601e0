"""`clove bench`: engines side by side on made-up data."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from clove.cli import app
from clove.errors import CloveError
from clove.runs.bench import SHAPES, bench, made_clients, shape_for

SMALL = ["--model", "mlp", "--clients", "4", "--points", "12", "--models", "2", "--rounds", "1"]


def test_every_engine_has_a_row_and_its_phases_add_up() -> None:
    shape = replace(shape_for("mlp"), clients=4, points=12, models=2)
    rows = bench(shape, rounds=1)
    assert [row["asked"] for row in rows] == ["sequential", "vectorized", "auto"]
    for row in rows:
        parts = sum(row[phase] for phase in ("losses", "training", "server", "evaluation"))
        assert row["seconds"] == pytest.approx(parts)
        assert row["times"] == pytest.approx(rows[0]["seconds"] / row["seconds"])


@pytest.mark.parametrize("model", SHAPES)
def test_made_up_clients_suit_their_network(model: str) -> None:
    shape = replace(SHAPES[model], clients=2, points=3, models=2)
    for client in made_clients(shape):
        assert client.train[0].shape == (3, *shape.sample)
        assert (client.train[1] is None) == (shape.task == "reconstruction")


def test_the_command_shows_a_table_or_prints_json() -> None:
    shown = CliRunner().invoke(app, ["bench", *SMALL])
    assert shown.exit_code == 0, shown.output
    assert "rounds/s" in shown.output
    assert "auto: " in shown.output
    printed = CliRunner().invoke(app, ["bench", *SMALL, "--engines", "vectorized", "--json"])
    assert json.loads(printed.stdout)["engines"][0]["engine"] == "vectorized"


def test_bad_input_is_named() -> None:
    with pytest.raises(CloveError, match="did you mean 'cnn'"):
        shape_for("cnnn")
    with pytest.raises(CloveError, match="clients must be 1 or more, not 0"):
        made_clients(replace(shape_for("mlp"), clients=0))
