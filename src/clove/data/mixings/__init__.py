"""Mixings: how a data set is divided among clients so that they come to differ."""

from clove.data.mixings.amounts import Amounts, expected_amounts
from clove.data.mixings.clients import MixedClients, mix
from clove.data.mixings.describe import LabelCounts, describe
from clove.data.mixings.find import find_mixing, mixing_options
from clove.data.mixings.registry import MIXINGS, Mixing

__all__ = [
    "MIXINGS",
    "Amounts",
    "LabelCounts",
    "MixedClients",
    "Mixing",
    "describe",
    "expected_amounts",
    "find_mixing",
    "mix",
    "mixing_options",
]
