"""What FedAvg and IFCA would have sent on the same settings: arithmetic, by the ledger's rules.

A participant of FedAvg is sent the model and the number it starts from, and answers with its model
and its number of samples. One of IFCA is sent all K models, which it holds until the round is over,
answers with K losses, is told which to train, and answers with that model, its number of samples
and whether its choice is stable.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from clove.report.page.read import RunRead

NUMBER = 8  # bytes of a number that is no parameter


@dataclass(frozen=True)
class Traffic:
    """Bytes by round."""

    up: list[int]
    down: list[int]


def references(run: RunRead) -> dict[str, Traffic]:
    """Return the traffic of other methods with these rounds, participants and models."""
    if run.model_bytes is None:
        return {}
    asked = [_asked(run, record) for record in run.records]
    replied = [int(record["participants"]) for record in run.records]
    found = {"fedavg": fedavg(run.model_bytes, asked, replied)}
    models = models_of_ifca(run)
    if models is not None:
        found["ifca"] = ifca(run.model_bytes, models, asked, replied)
    return {name: traffic for name, traffic in found.items() if name != run.algorithm}


def fedavg(model: int, asked: list[int], replied: list[int]) -> Traffic:
    """Return FedAvg's traffic with models of that size."""
    return Traffic([n * (model + NUMBER) for n in replied], [n * (model + NUMBER) for n in asked])


def ifca(model: int, models: int, asked: list[int], replied: list[int]) -> Traffic:
    """Return IFCA's traffic with so many models of that size."""
    up = models * NUMBER + model + 2 * NUMBER
    return Traffic([n * up for n in replied], [n * (models * model + NUMBER) for n in asked])


def models_of_ifca(run: RunRead) -> int | None:
    """Return the K that IFCA would be run with: as set, as true, or as many as were found."""
    told = run.setting("models")
    if told is not None:
        return int(told)
    if run.groups is not None:
        return len(set(run.groups.tolist()))
    found = set(run.assignment.tolist()) - {-1}
    return len(found) if len(found) > 1 and not run.personal else None


def _asked(run: RunRead, record: dict[str, object]) -> int:
    """Return how many clients were asked in a round: on a network, they may become more."""
    clients = record["assignment"]
    assert isinstance(clients, list)
    share = float(run.setting("participation", 1.0))
    return max(1, ceil(share * len(clients) - 1e-9))
