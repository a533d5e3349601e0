"""Loss vectors over the rounds: one projection for all, so that points move and do not jump."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from clove.clustering import transform_losses
from clove.report.numbers import brief
from clove.report.page.read import Floats, Indices, RunRead, Vectors

MOST_FRAMES = 100
FEWEST_FRAMES = 20
MOST_NUMBERS = 250_000  # in all frames together: about two megabytes
MOST_COLUMNS = 30  # of a heat map


def loss_vectors(run: RunRead, shown: Indices) -> dict[str, Any] | None:
    """Return a frame for each round that had loss vectors, or for some where they are many.

    A frame has the places of the clients in the plane and, for the heat map, their losses. A round
    whose vectors have another length (probes) has a projection of its own.
    """
    chosen = {number: _of(run.vectors[number], shown) for number in _frames(run, len(shown))}
    chosen = {number: vectors for number, vectors in chosen.items() if len(vectors.clients)}
    if not chosen:
        return None
    frames: dict[int, dict[str, Any]] = {}
    for length in {vectors.losses.shape[1] for vectors in chosen.values()}:
        alike = {n: v for n, v in chosen.items() if v.losses.shape[1] == length}
        places, explained = in_one_plane({n: _as_clustered(run, v) for n, v in alike.items()})
        frames |= {n: _frame(run, n, v, places[n], explained) for n, v in alike.items()}
    return {
        "frames": [frames[number] for number in sorted(frames)],
        "transform": run.setting("transform", "identity"),
    }


def in_one_plane(rounds: dict[int, Floats]) -> tuple[dict[int, Floats], Floats]:
    """Project the rows of all rounds onto the two directions in which clients differ most.

    Each round is centred first: what all clients have in common, such as losses that fall as models
    learn, is no difference between them. Returns the shares of variance too.
    """
    centred = {number: rows - rows.mean(axis=0) for number, rows in rounds.items()}
    stacked = np.concatenate(list(centred.values()))
    # Principal components by numpy: scikit-learn takes longer to load than a page to make.
    _, strengths, directions = np.linalg.svd(stacked, full_matrices=False)
    plane = np.pad(directions[:2], ((0, max(0, 2 - len(directions))), (0, 0)))
    variance = np.pad(strengths**2, (0, 2))
    explained = variance[:2] / (variance.sum() or 1.0)
    return {number: rows @ _upright(plane).T for number, rows in centred.items()}, explained


def _upright(plane: Floats) -> Floats:
    """Return directions whose largest part is positive: of the two signs, the same every time."""
    largest = plane[np.arange(2), np.abs(plane).argmax(axis=1)]
    return plane * np.where(largest < 0, -1, 1)[:, None]


def nearest_groups(run: RunRead) -> dict[int, tuple[int, float]]:
    """Return for each model the one whose clients' loss vectors are nearest, and how far they are.

    The distance is between the means of the last loss vectors, as they are clustered.
    """
    if not run.vectors:
        return {}
    last = max(run.vectors)
    vectors = run.vectors[last]
    models = _models(run, last, vectors.clients)
    rows = _as_clustered(run, vectors)
    means = {int(m): rows[models == m].mean(axis=0) for m in np.unique(models[models >= 0])}
    found = {}
    for model, mean in means.items():
        others = {m: float(np.linalg.norm(mean - one)) for m, one in means.items() if m != model}
        if others:
            nearest = min(others, key=lambda m: others[m])
            found[model] = (nearest, others[nearest])
    return found


def _frames(run: RunRead, clients: int) -> list[int]:
    """Return the rounds to show: all, or the first ones, the last, and some between."""
    rounds = sorted(run.vectors)
    if not rounds:
        return []
    numbers = clients * (2 + min(run.vectors[rounds[-1]].losses.shape[1], MOST_COLUMNS))
    most = int(np.clip(MOST_NUMBERS // max(numbers, 1), FEWEST_FRAMES, MOST_FRAMES))
    if len(rounds) <= most:
        return rounds
    first = most // 4
    rest = np.linspace(first, len(rounds) - 1, most - first).round().astype(int)
    return [*rounds[:first], *(rounds[place] for place in np.unique(rest))]


def _of(vectors: Vectors, shown: Indices) -> Vectors:
    mine = np.isin(vectors.clients, shown) & np.isfinite(vectors.losses).all(axis=1)
    return Vectors(vectors.clients[mine], vectors.losses[mine])


def _as_clustered(run: RunRead, vectors: Vectors) -> Floats:
    transform = run.setting("transform", "identity")
    if transform in ("sqrt", "log"):
        return transform_losses(np.maximum(vectors.losses, 0), transform)
    return transform_losses(vectors.losses, transform)


def _models(run: RunRead, number: int, clients: Indices) -> NDArray[np.int64]:
    return np.array(run.records[number - 1]["assignment"], dtype=np.int64)[clients]


def _frame(
    run: RunRead, number: int, vectors: Vectors, places: Floats, explained: Floats
) -> dict[str, Any]:
    return {
        "round": number,
        "clients": vectors.clients.tolist(),
        "models": _models(run, number, vectors.clients).tolist(),
        "x": brief(places[:, 0]),
        "y": brief(places[:, 1]),
        "explained": brief(explained),
        "losses": [brief(row) for row in vectors.losses[:, :MOST_COLUMNS]],
        "columns": vectors.losses.shape[1],
    }
