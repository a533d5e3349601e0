"""Settings: given by name, checked, and written as a file that repeats the run."""

from __future__ import annotations

import math
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Optional

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from clove.errors import CloveError
from clove.runs.settings import (
    SECTIONS,
    Settings,
    algorithm_options,
    checked_type,
    data_options,
    from_names,
    read_settings,
    write_settings,
)

# ------------------------------------------------------------------------------------- by name


def test_names_are_sorted_into_general_settings_and_options() -> None:
    settings = from_names(rounds=7, probes="trained", clusters=3, learning_rate=0.1)
    assert (settings.rounds, settings.learning_rate) == (7, 0.1)
    assert settings.options == {"probes": "trained"}
    assert settings.data == {"clusters": 3}


def test_none_stands_for_the_default() -> None:
    assert from_names(rounds=None, probes=None, clusters=None) == from_names()
    assert from_names(dataset="fmnist") == Settings(dataset="fmnist")


def test_digits_have_batches_that_suit_their_small_clients() -> None:
    assert from_names().batch_size == 10
    assert from_names(batch_size=64).batch_size == 64
    assert from_names(dataset="mnist").batch_size == 64


def test_settings_can_be_given_again_by_their_own_names() -> None:
    settings = from_names(algorithm="ifca", models=4, points_per_client=30, seed=5)
    assert from_names(**settings.flat()) == settings


def test_every_general_setting_stands_in_one_section() -> None:
    listed = [name for names in SECTIONS.values() for name in names]
    assert sorted(listed) == sorted(Settings().flat())


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"algorithm": "clov"}, "unknown algorithm 'clov': did you mean 'clove'"),
        ({"dataset": "digit"}, "unknown dataset 'digit': did you mean 'digits'"),
        ({"mixing": "label-skew"}, "unknown mixing 'label-skew': did you mean 'label-skew-"),
        ({"learning_rat": 0.1}, "unknown setting 'learning_rat': did you mean 'learning_rate'"),
        ({"max_model": 4}, "unknown setting 'max_model': did you mean 'max_models'"),
        ({"cluster": 4}, "unknown setting 'cluster': did you mean 'clusters'"),
        (
            {"algorithm": "fedavg", "probes": "trained"},
            "'probes' is an option of algorithm clove, not",
        ),
        ({"model": "mpl"}, "unknown model 'mpl': did you mean 'mlp'"),
        ({"task": "classify"}, "unknown task 'classify'"),
        ({"precision": "float16"}, "unknown precision 'float16'"),
        ({"optimizer": "adan"}, "unknown optimizer 'adan': did you mean 'adam'"),
        ({"rounds": 2.5}, "rounds must be int, not 2.5"),
        ({"rounds": True}, "rounds must be int, not True"),
        ({"dataset": 3}, "dataset must be str, not 3"),
        ({"data_dir": 3}, "data_dir must be str, not 3"),
        ({"models": "five"}, "models must be int, not 'five'"),
        ({"early_stopping": 1}, "early_stopping must be bool, not 1"),
        ({"participation": "all"}, "participation must be float, not 'all'"),
        ({"rounds": 0}, "rounds must be 1 or more"),
        ({"evaluate_every": 0}, "evaluate_every must be 1 or more"),
        ({"seed": -1}, "seed must not be negative"),
        ({"threads": -1}, "threads must not be negative"),
        ({"group_size": -1}, "group_size must not be negative"),
        ({"momentum": -0.1}, "momentum must not be negative"),
        ({"weight_decay": -0.1}, "weight_decay must not be negative"),
        ({"participation": 0}, "participation must be in"),
        ({"participation": 1.1}, "participation must be in"),
        ({"learning_rate": 0.0}, "learning_rate must be above zero"),
        ({"learning_rate": math.nan}, "learning_rate must be a finite number, not nan"),
        ({"learning_rate": math.inf}, "learning_rate must be a finite number, not inf"),
        ({"batch_size": 0}, "batch_size must be above zero"),
        ({"local_epochs": 0}, "local_epochs must be above zero"),
        ({"learning_rate_decay": 0.0}, "learning_rate_decay must be in"),
        ({"learning_rate_decay": 1.1}, "learning_rate_decay must be in"),
        ({"keep_momentum": True}, "keep_momentum is for SGD with momentum"),
        ({"keep_momentum": True, "optimizer": "sgd"}, "keep_momentum is for SGD with momentum"),
    ],
)
def test_a_wrong_setting_is_named(names: dict[str, Any], message: str) -> None:
    with pytest.raises(CloveError, match=f"^{message}"):
        from_names(**names)


def test_whole_numbers_do_for_real_ones_and_numpy_numbers_and_paths_for_plain_ones() -> None:
    settings = from_names(participation=1, seed=np.int64(3), data_dir=Path("some/folder"))
    assert (settings.participation, settings.seed) == (1.0, 3)
    assert type(settings.participation) is float
    assert type(settings.seed) is int
    assert settings.data_dir == "some/folder"


@pytest.mark.parametrize(
    ("kind", "fine", "wrong", "message"),
    [
        (Optional[int], 3, "a", "option must be int, not 'a'"),  # noqa: UP045
        (Literal["fast", "slow"], "slow", "slo", "unknown option 'slo': did you mean 'slow'"),
        (list[int] | None, [1, 2], 3, "option must be list, not 3"),
        (float | None, 0.5, "half", "option must be float, not 'half'"),
    ],
)
def test_options_may_be_typed_in_any_common_way(
    kind: Any, fine: object, wrong: object, message: str
) -> None:
    assert checked_type("option", fine, kind) == fine
    assert kind == Literal["fast", "slow"] or checked_type("option", None, kind) is None
    with pytest.raises(CloveError, match=message):
        checked_type("option", wrong, kind)


# --------------------------------------------------------------------------------------- files


def read_back(settings: Settings, folder: Path, **made: object) -> Settings:
    file = folder / "settings.toml"
    file.write_text(write_settings(settings, made), encoding="utf-8")
    return from_names(**read_settings(file))


def complete(settings: Settings) -> Settings:
    """Return the same settings with every option that has a default set to it, as TOML has it."""
    known = {name: default for name, (_, default) in algorithm_options(settings.algorithm).items()}
    data = {**data_options(settings.dataset, settings.mixing), **settings.data}
    return replace(
        settings,
        data={n: _listed(v) for n, v in data.items() if v is not None},
        options={n: v for n, v in {**known, **settings.options}.items() if v is not None},
    )


def _listed(value: object) -> object:
    return [_listed(one) for one in value] if isinstance(value, list | tuple) else value


general = st.fixed_dictionaries(
    {},
    optional={
        "algorithm": st.sampled_from(["clove", "ifca", "fedavg", "local"]),
        "mixing": st.sampled_from(["label-skew-1", "none", "feature-skew", "concept-shift"]),
        "rounds": st.integers(1, 10**6),
        "seed": st.integers(0, 2**70),
        "data_dir": st.text(),
        "learning_rate": st.floats(1e-300, 1e300),
        "participation": st.floats(0, 1, exclude_min=True),
        "momentum": st.floats(0, 1e300),
        "precision": st.sampled_from(["fp32", "fp64"]),
        "clients_per_cluster": st.integers(1, 100),
    },
)


@examples(deadline=None)
@given(names=general)
def test_a_settings_file_is_complete_and_reads_back_as_the_same_settings(
    names: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    settings = from_names(**names)
    assert read_back(settings, tmp_path_factory.mktemp("toml")) == complete(settings)


def test_options_of_the_algorithm_read_back(tmp_path: Path) -> None:
    settings = from_names(probes="random", probe_models=7, early_stopping=True, stable_share=0.5)
    assert read_back(settings, tmp_path) == complete(settings)


values = st.recursive(
    st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=8,
)


@examples(deadline=None)
@given(value=values)
@example(value="\x7f \x00 \r\n \u2028 😀")
def test_whatever_value_is_written_is_valid_toml_for_the_same_value(value: object) -> None:
    assert tomllib.loads(write_settings(Settings(), {"x": value}))["made"]["x"] == value


def test_what_has_no_value_is_named_in_a_comment() -> None:
    assert "# max_models is not set\n" in write_settings(Settings(), {})


def test_how_a_run_was_made_is_no_setting(tmp_path: Path) -> None:
    assert read_back(Settings(), tmp_path, torch="2.0", rounds=9) == complete(Settings())


def written(folder: Path, text: str) -> Path:
    file = folder / "mine.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_tables_are_for_the_eye_only(tmp_path: Path) -> None:
    text = 'rounds = 4\n[whatever]\nseed = 3\nprobes = "random"\n[training]\nclusters = 2\n'
    read = read_settings(written(tmp_path, text))
    assert read == {"rounds": 4, "seed": 3, "probes": "random", "clusters": 2}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rounds = 3\n[training]\nrounds = 4\n", "sets 'rounds' twice"),
        ("rounds = \n", "is not valid TOML"),
        ("rounds = 3\nrounds = 4\n", "is not valid TOML"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(CloveError, match=f"mine.toml {message}"):
        read_settings(written(tmp_path, text))


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(CloveError, match="is not valid TOML"):
        read_settings(file)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CloveError, match=r"there is no settings file .*nowhere\.toml"):
        read_settings(tmp_path / "nowhere.toml")


def test_a_folder_in_place_of_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CloveError, match="cannot read the settings file"):
        read_settings(tmp_path)
