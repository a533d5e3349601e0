"""Options of methods, as users give them: by name, among all other settings."""

from __future__ import annotations

import pytest

from clove.algorithms import ALGORITHMS
from clove.data import DATASETS, MIXINGS, dataset_options, mixing_options
from clove.runs.settings import GENERAL, algorithm_options

OF_DATA = {
    *(name for dataset in DATASETS for name in dataset_options(dataset)),
    *(name for mixing in MIXINGS for name in mixing_options(mixing)),
}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_no_option_has_the_name_of_another_setting(algorithm):
    assert not set(algorithm_options(algorithm)) & {*GENERAL, *OF_DATA}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_method_says_what_crosses_the_network_and_explains_its_options(algorithm):
    text = ALGORITHMS[algorithm].__doc__
    assert "Network:" in text
    for option in algorithm_options(algorithm):
        assert option in text
