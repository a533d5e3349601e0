"""From clusters to clients: who holds which points."""

from __future__ import annotations

from clove.data.dataset import Part
from clove.data.mixings.cluster import Array, Cluster, Holding, Piece
from clove.errors import CloveError
from clove.seeds import stream


def cut(
    clusters: list[Cluster], part: Part, clients: int, most: int | None, seed: int
) -> list[Holding]:
    """Return what each client holds, those of the first cluster first; at most so many points."""
    holdings: list[Holding] = []
    for number, cluster in enumerate(clusters):
        divide = _evenly if cluster.hands is None else _as_dealt
        shares = divide(cluster, number, part, clients, seed)
        holdings += [[Piece(cluster, share[:most])] for share in shares]
    return holdings


def _evenly(cluster: Cluster, number: int, part: Part, clients: int, seed: int) -> list[Array]:
    """Shuffle a cluster's points and cut them into equal chunks."""
    points = cluster.indices(part)
    chunk = len(points) // clients
    if chunk == 0:
        raise CloveError(
            f"cluster {number} has {len(points)} {part} points for {clients} clients: "
            "lower clients_per_cluster or the number of clusters"
        )
    order = stream(seed, "mixing/clients", part == "test", number).permutation(points)
    return [order[first : first + chunk] for first in range(0, clients * chunk, chunk)]


def _as_dealt(cluster: Cluster, number: int, part: Part, clients: int, seed: int) -> list[Array]:
    """Shuffle each client's own points, so that the first of them are any of them."""
    assert cluster.hands is not None
    hands = cluster.hands[part]
    for client, hand in enumerate(hands):
        if len(hand) == 0:
            raise CloveError(
                f"client {client} of cluster {number} gets no {part} points: "
                "lower the number of clients, or raise alpha"
            )
    return [
        stream(seed, "mixing/clients", part == "test", number, client).permutation(hand)
        for client, hand in enumerate(hands)
    ]
