"""Mixings: how a data set is divided among clients so that they come to differ."""

from clove.data.mixings.mixed import MIXINGS, MixedClients, Mixing, mix, mixing_options

__all__ = ["MIXINGS", "MixedClients", "Mixing", "mix", "mixing_options"]
