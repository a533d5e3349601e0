"""`clove data`: list, check, fetch, show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rich.console import Console
from typer.testing import CliRunner

from clove import data_cli
from clove.cli import app
from clove.data import CARDS, fetch
from clove.data import status as status_module
from clove.data.status import Check, CheckReport


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder of one's own where no data are, and print to 80 columns."""
    (tmp_path / "data").mkdir()
    monkeypatch.setenv("CLOVE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("CLOVE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(data_cli, "out", Console(width=80))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def data(*words: str | Path) -> Any:
    return CliRunner().invoke(app, ["data", *map(str, words)])


def works(*words: str | Path) -> str:
    outcome = data(*words)
    assert outcome.exit_code == 0, outcome.output
    return str(outcome.stdout)


def fails(*words: str | Path) -> str:
    outcome = data(*words)
    assert outcome.exit_code == 1, outcome.output
    assert isinstance(outcome.exception, SystemExit), outcome.exception
    assert outcome.stderr.startswith("error: ")
    return str(outcome.stderr)


def words_of(text: str) -> str:
    return "".join(text.split())


# ------------------------------------------------------------------------------------------- list


def test_the_list_names_every_data_set_and_how_to_get_it() -> None:
    lines = works("list").splitlines()
    first = {line.split()[0]: line for line in lines if line[1:2].isalpha()}
    assert set(CARDS) <= set(first)
    assert "yes" in first["digits"]
    assert " no " in first["mnist"]
    shown = words_of("\n".join(lines))
    assert "clovedatafetch" in shown
    assert "byhand:clovedatafetchfemnistsayshow" in words_of(first["femnist"]) or (
        "fetchfemnistsayshow" in shown
    )
    assert max(map(len, lines)) <= 80
    assert len(lines) < 30


def test_the_list_says_where_files_are_and_how_large(here: Path) -> None:
    draw = np.random.default_rng(0)
    arrays: dict[str, Any] = {}
    for part, number in (("train", 200), ("test", 50)):
        arrays[f"x_{part}"] = draw.integers(0, 256, (number, 28, 28), np.uint8)
        arrays[f"y_{part}"] = np.arange(number) % 10
    (here / "mine").mkdir()
    np.savez(here / "mine" / "mnist.npz", **arrays)
    lines = works("list", "--data-dir", "mine").splitlines()
    (mnist,) = [line for line in lines if line.startswith(" mnist ")]
    assert "yes" in mnist
    assert "0.2 MB" in mnist
    assert "mnist.npz" in words_of("\n".join(lines))


# ------------------------------------------------------------------------------------------ check


def test_a_check_shows_what_was_looked_at() -> None:
    shown = works("check", "digits")
    assert "ok" in shown
    assert "train points" in shown
    assert "WRONG" not in shown
    assert words_of(CARDS["digits"].description) in words_of(shown)


def test_a_check_that_finds_something_wrong_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    report = CheckReport("digits", "here", (Check("labels", False, "9 of [10]"),))
    monkeypatch.setattr("clove.data.check_dataset", lambda *_: report)
    outcome = data("check", "digits")
    assert outcome.exit_code == 1
    assert "WRONG" in outcome.stdout
    assert "9 of [10]" in outcome.stdout
    assert status_module.check_dataset("digits").ok


def test_what_is_not_there_cannot_be_checked() -> None:
    assert "data set 'mnist' was not found. Run `clove data fetch mnist`" in fails("check", "mnist")
    assert "unknown data set 'mnst': did you mean 'mnist'" in fails("check", "mnst")


# ------------------------------------------------------------------------------------------ fetch


def test_an_unknown_data_set_cannot_be_fetched() -> None:
    assert "unknown data set 'mnst': did you mean 'mnist'" in fails("fetch", "mnst")


@pytest.mark.parametrize("name", [n for n, card in CARDS.items() if not card.files])
def test_what_must_be_got_by_hand_says_how(name: str) -> None:
    said = fails("fetch", name)
    assert words_of(CARDS[name].by_hand) in words_of(said)
    assert ("needs no files" in said) == (not CARDS[name].forms)


def test_a_fetch_says_where_the_data_are(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def instant(file: Any, folder: Path, progress: Any, **_: Any) -> None:
        progress(file.name, 1, None)
        progress(file.name, 2, 2)

    monkeypatch.setattr("clove.data.download.download", instant)
    assert fetch.CARDS["mnist"].files
    shown = works("fetch", "mnist", "--folder", "mine")
    assert words_of(shown) == words_of(f"mnist is in {Path('mine', 'mnist')}")


# ------------------------------------------------------------------------------------------- show


@pytest.mark.parametrize(("mixing", "clients"), [("label-skew-1", 25), ("feature-skew", 20)])
def test_show_draws_the_clients_and_counts_their_labels(
    here: Path, mixing: str, clients: int
) -> None:
    lines = works("show", "--dataset", "digits", "--mixing", mixing).splitlines()
    assert max(map(len, lines)) <= 80
    assert not any("…" in line for line in lines)
    assert f"digits, {mixing}: {clients} clients" in lines[0]
    rows = [line for line in lines if line.split()[:1] and line.split()[0].isdigit()]
    assert len(rows) == clients
    assert lines[-1].split() == ["picture", "clients.png"]
    with Image.open(here / "clients.png") as picture:
        assert picture.format == "PNG"


def test_show_takes_options_and_a_place_for_the_picture(here: Path) -> None:
    words = ("--dataset", "digits", "--mixing", "label-skew-1", "--picture", "new/mine.png")
    shown = works("show", *words, "--set", "clusters=2", "--set", "clients_per_cluster=3")
    assert "6 clients" in shown
    assert (here / "new" / "mine.png").stat().st_size > 1000


def test_show_tells_of_points_that_ran_out() -> None:
    words = ("show", "--dataset", "digits", "--mixing", "label-skew-1")
    outcome = data(*words, "--set", "points_per_client=5000")
    assert outcome.exit_code == 0, outcome.output
    assert outcome.output.count("points_per_client=5000, but") == 1
    unasked = data("show", "--dataset", "digits", "--mixing", "none")
    assert unasked.output.count("note: points_per_client=") == 1


def test_an_option_of_another_mixing_is_said_to_be_that() -> None:
    words = ("show", "--dataset", "digits", "--mixing", "dirichlet", "--set")
    assert "'rotations' is an option of mixing feature-skew, mixed, not of dirichlet" in fails(
        *words, "rotations=[0]"
    )
    assert "'minimum' is an option of data set mnist-writers, not of digits" in fails(
        *words, "minimum=3"
    )
    assert "'label_column' is an option of tables of your own" in fails(*words, "label_column=x")


@pytest.mark.parametrize("setting", ["dataset=mnist", "mixing=none", "seed=1", "data_dir=data"])
def test_show_takes_a_setting_once(setting: str) -> None:
    words = ("show", "--dataset", "digits", "--mixing", "label-skew-1")
    name = setting.partition("=")[0]
    said = fails(*words, "--seed", "3", "--data-dir", "data", "--set", setting)
    option = f"--{name.replace('_', '-')}"
    assert f"{name} is given twice, by {option} and by --set: give it once" in said
    twice = fails(*words, "--set", "clusters=2", "--set", "clusters=3")
    assert "clusters is given twice, by --set" in twice


def test_a_seed_may_be_set_either_way() -> None:
    words = ("show", "--dataset", "digits", "--mixing", "label-skew-1")
    assert works(*words, "--seed", "3") == works(*words, "--set", "seed=3") != works(*words)


@pytest.mark.parametrize("name", ["clusters.bmpp", "file.txt"])
def test_a_picture_of_an_unknown_kind_is_refused(name: str) -> None:
    words = ("show", "--dataset", "digits", "--mixing", "label-skew-1", "--picture", name)
    assert f"unknown kind of picture '{Path(name).suffix}'" in (said := fails(*words))
    assert ".png" in said


def test_a_picture_without_a_suffix_is_a_png_and_named_so(here: Path) -> None:
    words = ("show", "--dataset", "digits", "--mixing", "label-skew-1", "--picture", "mine")
    assert works(*words).splitlines()[-1].split() == ["picture", "mine.png"]
    assert (here / "mine.png").is_file()
    assert not (here / "mine").exists()


@pytest.mark.parametrize(
    ("number", "said"), [(28, "free some space, then try again"), (13, "no permission to write")]
)
def test_a_picture_that_cannot_be_written_is_no_run(
    monkeypatch: pytest.MonkeyPatch, number: int, said: str
) -> None:
    def refuse(*given: Any, **named: Any) -> None:
        raise OSError(number, "no")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", refuse)
    told = fails("show", "--dataset", "digits", "--mixing", "label-skew-1")
    assert "cannot write the picture clients.png: " in told
    assert said in told
    assert "clove resume" not in told
    folder = fails("show", "--dataset", "digits", "--mixing", "none", "--picture", "data")
    assert "data is a folder: name a file in it for the picture" in folder


def wide(labels: int) -> list[dict[str, int | None]]:
    first = {"client": 12345, "cluster": None, "train": 67890, "test": 9}
    return [first | {f"label {label}": 1000 + label for label in range(labels)}]


def test_no_digit_is_lost_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    data_cli._print_counts(wide(62), "many labels")
    shown = capsys.readouterr().out.split()
    assert "…" not in "".join(shown)
    assert {"12345", "67890", *(str(1000 + label) for label in range(62))} <= set(shown)


@pytest.mark.parametrize("width", [40, 60, 80])
def test_on_a_terminal_whole_columns_are_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int
) -> None:
    terminal = Console(width=width, force_terminal=True, no_color=True, legacy_windows=False)
    monkeypatch.setattr(data_cli, "out", terminal)
    data_cli._print_counts(wide(62), "many labels")
    shown = capsys.readouterr().out
    assert "…" not in shown
    rows = [line for line in shown.splitlines() if "12345" in line]
    (numbers,) = [line.split() for line in rows]
    assert numbers[3:] == [str(1000 + label) for label in range(len(numbers) - 3)]
    assert 66 - len(numbers) - 1 > 0


def test_the_title_names_a_variant_other_than_the_papers() -> None:
    words = ("show", "--dataset", "digits", "--mixing", "label-skew-1")
    assert "label-skew-1: 25" in works(*words, "--set", "variant=paper")
    assert "label-skew-1 (authors): 25" in works(*words, "--set", "variant=authors")


def test_show_says_what_it_does_not_know(here: Path) -> None:
    words = ("show", "--dataset", "digits", "--mixing")
    assert "unknown mixing 'label-skew': did you mean" in fails(*words, "label-skew")
    assert "unknown setting 'cluster'" in fails(*words, "label-skew-1", "--set", "cluster=2")
    assert "--set takes KEY=VALUE" in fails(*words, "label-skew-1", "--set", "clusters")
    (here / "file").write_text("")
    assert "error: " in fails(*words, "label-skew-1", "--picture", "file/clients.png")
