"""Which samples a client uses in which step: one plan that serves every engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np
from numpy.typing import NDArray

from clove import seeds
from clove.federation.parameters import Indices
from clove.federation.questions import LocalTraining


def split_by_share(
    seed: int, client: int, samples: int, share: float, *index: int
) -> tuple[Indices, Indices]:
    """Split a client's samples into a part to train on and a part held back.

    The same split every time for the same seed and client (and `index`, such as the round). At
    least one sample stays in each part where there are two or more.
    """
    if share >= 1:
        return np.arange(samples), np.arange(0)
    order = seeds.stream(seed, "share", client, *index).permutation(samples)
    cut = min(max(ceil(share * samples), 1), max(samples - 1, 1))
    return np.sort(order[:cut]), np.sort(order[cut:])


def consecutive(rows: Indices, size: int) -> list[Indices]:
    """Cut rows into batches as they come; a lone last one joins the batch before it.

    Because batch statistics of a single sample say nothing.
    """
    cuts = list(range(size, len(rows), size))
    if size > 1 and cuts and len(rows) - cuts[-1] == 1:
        cuts.pop()
    return np.split(rows, cuts)


@dataclass(frozen=True, eq=False)
class Plans:
    """The batches of several clients, step by step, in a round.

    `orders[epoch, client]` are the client's rows in the order it uses them, of which the first
    `used[client]` count. An epoch's last batch may be short. `most` steps are made at most, unless
    it is 0.
    """

    orders: Indices
    used: Indices
    batch_size: int
    most: int = 0

    @property
    def steps(self) -> Indices:
        """How many steps each client makes."""
        steps = len(self.orders) * -(-self.used // self.batch_size)
        return np.minimum(steps, self.most) if self.most else steps

    @property
    def width(self) -> int:
        """Return the size of the largest batch."""
        return min(self.batch_size, int(self.used.max()))

    def batch(self, client: int, step: int) -> Indices:
        """Return the rows of one step of the client at this place."""
        rows, sizes = self.stacked(np.array([client]), step)
        return rows[0, : sizes[0]]

    def of(self, client: int) -> list[Indices]:
        """Return all batches of the client at this place."""
        return [self.batch(client, step) for step in range(int(self.steps[client]))]

    def stacked(self, clients: Indices, step: int) -> tuple[Indices, Indices]:
        """Return the rows of one step of several clients, and how many of each count.

        Clients that are done have one row, of no meaning: somebody must fill the place. Short
        batches are filled up with the client's first row.
        """
        used = self.used[clients]
        in_epoch = -(-used // self.batch_size)
        epoch, number = np.divmod(step, in_epoch)
        going = epoch < len(self.orders)
        epoch, first = np.where(going, epoch, 0), np.where(going, number, 0) * self.batch_size
        sizes = np.where(going, np.minimum(used - first, self.batch_size), 1)
        places = first[:, None] + np.arange(sizes.max())
        places = np.where(places < (first + sizes)[:, None], places, 0)
        return self.orders[epoch[:, None], clients[:, None], places], sizes

    def pick(self, clients: Indices) -> Plans:
        """Return the plans of some of the clients."""
        return replace(self, orders=self.orders[:, clients], used=self.used[clients])

    def first(self, steps: int) -> Plans:
        """Return plans of the first few steps only."""
        used = np.minimum(self.used, steps * self.batch_size)
        return replace(self, orders=self.orders[:1], used=used)


def joined(plans: Sequence[Plans]) -> Plans:
    """Return the plans of several sets of clients as one; batches and epochs must be the same."""
    most = max(one.orders.shape[2] for one in plans)
    padded = [np.pad(p.orders, ((0, 0), (0, 0), (0, most - p.orders.shape[2]))) for p in plans]
    used = np.concatenate([one.used for one in plans])
    return replace(plans[0], orders=np.concatenate(padded, axis=1), used=used)


def batch_plans(
    seed: int,
    round_number: int,
    clients: Indices,
    rows: Sequence[Indices],
    training: LocalTraining,
    pairs: bool,
    parts: int = 1,
) -> Plans:
    """Plan a round's training of several clients, each with its rows.

    Each epoch is a new random order, cut into batches; the last may be short. With `pairs` a last
    batch of a single sample is left out where there are others, because batch normalisation cannot
    use it. The same goes for each of the `parts` that an objective cuts a batch into.
    """
    sizes = np.array([len(own) for own in rows])
    epochs, batch_size = training.epochs, training.batch_size
    if training.steps:  # no more orders than are used
        epochs = min(epochs, -(-training.steps // -(-int(sizes.min()) // batch_size)))
    places = random_orders(
        seeds.integer(seed, training.purpose, round_number), clients, sizes, epochs
    )
    table = np.zeros((len(rows), sizes.max()), dtype=np.int64)
    for place, own in enumerate(rows):
        table[place, : len(own)] = own
    orders = np.take_along_axis(table[None], places, axis=2)
    last = sizes % batch_size
    useless = (sizes > batch_size) & (last < parts * (2 if pairs else 1))
    return Plans(orders, sizes - last * useless, batch_size, training.steps)


def batch_plan(
    seed: int, round_number: int, client: int, rows: Indices, training: LocalTraining, pairs: bool
) -> list[Indices]:
    """Return the rows of every step of one client's training in a round; see `batch_plans`."""
    return batch_plans(seed, round_number, np.array([client]), [rows], training, pairs).of(0)


def random_orders(key: int, clients: Indices, sizes: Indices, epochs: int) -> Indices:
    """Return a random order of each client's samples for each epoch, padded to equal length.

    An order depends on the key, the client's number and the epoch alone, whoever else is asked
    for: each place gets a hashed key of its own, and places are sorted by it. So the orders of
    thousands of clients are drawn at once, and a client by itself draws the same.
    """
    own = _hashed(np.uint64(key), clients)
    by_epoch = _hashed(own, np.arange(epochs)[:, None])
    keys = _hashed(by_epoch[:, :, None], np.arange(sizes.max()))
    keys[:, np.arange(sizes.max()) >= sizes[:, None]] = np.iinfo(np.uint64).max  # padding is last
    return np.argsort(keys, axis=2)  # of keys that are all different, but for padding


def _hashed(key: NDArray[np.uint64] | np.uint64, number: Indices) -> NDArray[np.uint64]:
    """Mix a number into a key, every bit of the result depending on every bit of both.

    The step and finaliser of SplitMix64 (Steele, Lea, Flood, 2014).
    """
    with np.errstate(over="ignore"):  # arithmetic modulo 2**64 is meant
        mixed = key + (number.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(mixed ^ (mixed >> np.uint64(31)))
