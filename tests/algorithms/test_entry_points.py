"""Methods of a user's own package, found by its entry points."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import clove
from clove.algorithms import (
    ALGORITHMS,
    FedAvg,
    _warn_of_namesakes,
    find_algorithm,
    load_entry_points,
)
from clove.cli import app
from clove.errors import CloveError, CloveWarning
from clove.federation.registry import REGISTRIES, made

METHOD = """
from dataclasses import dataclass
from clove.algorithms import Algorithm, FedAvg
from clove.federation.objectives import objective, task_loss

@objective("doubled")
def doubled(learner, parameters, batch, extras):
    return 2 * task_loss(learner, parameters, batch, extras)

@dataclass(frozen=True)
class Doubled(FedAvg):
    '''FedAvg on twice the loss.'''

    strength: float = 2.0
    name = "doubled"

    @property
    def objective(self):
        return doubled

something = 3

@dataclass(frozen=True)
class Unfinished(Algorithm):
    name = "doubled"
    state_type = dict

class Nameless(FedAvg):
    name = None
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make a distribution that offers a method, and forget it afterwards."""
    _warn_of_namesakes.cache_clear()
    (tmp_path / "their_method.py").write_text(METHOD)
    about = tmp_path / "their_package-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: their-package\nVersion: 1.0\n")
    offer(tmp_path, "doubled = their_method:Doubled")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    ALGORITHMS.pop("doubled", None)
    sys.modules.pop("their_method", None)
    REGISTRIES["objective"]._known.pop("doubled", None)
    _warn_of_namesakes.cache_clear()


def offer(folder: Path, line: str) -> None:
    file = folder / "their_package-1.0.dist-info" / "entry_points.txt"
    file.write_text(f"[clove.algorithms]\n{line}\n")


def test_a_method_of_an_installed_package_runs_by_its_name(package):
    found = find_algorithm("doubled")
    assert issubclass(found, FedAvg)
    assert find_algorithm("doubled") is found
    options = {"clusters": 2, "clients_per_cluster": 2, "engine": "sequential"}
    result = clove.run(algorithm="doubled", rounds=1, strength=3.0, **options)
    assert result.settings.options == {"strength": 3.0}


def test_its_options_are_listed_on_the_command_line(package):
    outcome = CliRunner().invoke(app, ["options", "--algorithm", "doubled"])
    assert outcome.exit_code == 0
    assert "strength" in outcome.output


def test_its_objectives_are_known_once_it_is_loaded(package):
    with pytest.raises(CloveError, match="unknown objective 'doubled'"):
        made("objective", "doubled")
    load_entry_points()
    assert made("objective", "doubled").__name__ == "doubled"
    load_entry_points()


def test_a_misspelt_name_is_compared_with_those_of_packages_too(package):
    with pytest.raises(CloveError, match="unknown algorithm 'doubld': did you mean 'doubled'"):
        find_algorithm("doubld")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("doubled = no_such_module:Doubled", "cannot be loaded: ModuleNotFoundError"),
        ("doubled = their_method:Missing", "cannot be loaded: AttributeError"),
        ("doubled = their_method:something", "is no clove.algorithms.Algorithm, but 3"),
        ("tripled = their_method:Doubled", "calls itself 'doubled'"),
        ("doubled = their_method:Nameless", "Nameless has no `name`"),
        (
            "doubled = their_method:Unfinished",
            "Unfinished does not say what its methods begin, evaluation, round, server_models do",
        ),
    ],
)
def test_a_package_that_offers_something_else_is_named(package, line, message):
    offer(package, line)
    with pytest.raises(CloveError, match=rf"of package 'their-package' .*{message}"):
        find_algorithm(line.split()[0])


def test_one_that_fails_does_not_keep_others_from_being_known(package):
    offer(package, "broken = no_such_module:Method\ndoubled = their_method:Doubled")
    with pytest.warns(
        CloveWarning, match="'broken' of package 'their-package' .* cannot be loaded"
    ):
        load_entry_points()
    assert made("objective", "doubled").__name__ == "doubled"


def test_a_name_of_ours_is_not_taken_silently(package):
    offer(package, "fedavg = their_method:Doubled")
    with pytest.warns(
        CloveWarning, match="'fedavg' is clove's own, and not that of package 'their"
    ):
        assert find_algorithm("fedavg") is FedAvg


@pytest.mark.parametrize("name", ["doubled", "unfinished"])
def test_a_comparison_of_all_leaves_out_what_cannot_be_loaded(package, tmp_path, name):
    offer(package, f"{name} = their_method:Unfinished")
    options = {"clusters": 2, "clients_per_cluster": 2, "engine": "sequential"}
    with pytest.warns(CloveWarning, match=f"{name} is left out: algorithm '{name}' of package"):
        found = clove.compare(["fedavg", "all"], rounds=1, seeds=1, out=tmp_path / "c", **options)
    assert name not in {one["algorithm"] for one in found.summaries}
