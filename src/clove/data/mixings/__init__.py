"""Mixings: how a data set is divided among clients so that they come to differ."""

from clove.data.mixings.clients import MixedClients, mix
from clove.data.mixings.describe import LabelCounts, describe
from clove.data.mixings.registry import MIXINGS, Mixing, mixing_options

__all__ = [
    "MIXINGS",
    "LabelCounts",
    "MixedClients",
    "Mixing",
    "describe",
    "mix",
    "mixing_options",
]
