"""Benchmarks that try causes, and that read the number of clusters, ask for what there is."""

from __future__ import annotations

import pandas as pd
import pytest

from benchmarks import causes, choice_of_k
from clove.runs.settings import from_names


@pytest.mark.parametrize("trial", causes.trials(), ids=lambda trial: trial.name)
def test_every_trial_is_of_settings_that_runs_have(trial: causes.Trial) -> None:
    settings = from_names(
        dataset="fmnist", mixing=trial.mixing, algorithm=trial.algorithm, **trial.settings
    )
    assert set(trial.settings) <= {*settings.flat(), *settings.options, *settings.data}
    if trial.network is not None:
        assert trial.network()[-1].out_features == 10


def test_trials_have_names_of_their_own() -> None:
    names = [trial.name for trial in causes.trials()]
    assert len(names) == len(set(names))


def test_readings_of_k_are_counted_by_what_was_clustered() -> None:
    about = {"dataset": "mnist", "probe_epochs": 3, "selection": "merge-ratio", "seed": 1}
    about |= {"cpu": "some", "commit": "abc", "date": "2026-11-19"}
    rows = [
        {**about, "mixing": "none", "transform": "sqrt", "true": 10, "found": 10},
        {**about, "mixing": "label-skew-3", "transform": "sqrt", "true": 5, "found": 4},
        {**about, "mixing": "none", "transform": "row", "true": 10, "found": 10},
    ]
    words = choice_of_k.in_words(pd.DataFrame(rows))
    assert "| mnist | 3 | merge-ratio | sqrt | 1 of 2 | label-skew-3 (1) |" in words
    assert "| mnist | 3 | merge-ratio | row | 1 of 1 | – |" in words
