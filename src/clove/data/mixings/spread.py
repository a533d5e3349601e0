"""Spreading a data set evenly over clusters that hold all classes."""

from __future__ import annotations

from clove.data.dataset import Dataset, Part
from clove.data.division import deal
from clove.data.mixings.cluster import Array
from clove.seeds import stream


def spread(dataset: Dataset, part: Part, clusters: int, seed: int) -> list[Array]:
    """Return each cluster's points: no point in two clusters, every class divided evenly."""
    generator = stream(seed, "mixing/spread", part == "test")
    labels = dataset.labels(part) if dataset.kind == "classification" else None
    return deal(dataset.size(part), clusters, generator, labels)
