"""The round loop: drives an algorithm's questions through a federation, and measures."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import ceil, isfinite
from typing import Any, Protocol, get_args

import numpy as np

from clove import seeds
from clove.algorithms import Algorithm, Asking, Outcome
from clove.errors import CloveError
from clove.federation import Evaluate, Losses, LossVectors, Parameters, Scores, Vectorized
from clove.federation.engines import EngineChoice
from clove.federation.parameters import Indices
from clove.federation.precision import kernels_of
from clove.federation.questions import Gradients, Question, Summary, Train
from clove.federation.together import begin_answers, join
from clove.runs.build import Prepared
from clove.runs.folder import RunFolder
from clove.runs.settings import Settings

QUESTIONS: tuple[type, ...] = get_args(Question)
Record = dict[str, Any]
Watcher = Callable[["Progress"], None]


class Standing(Protocol):
    """How far a run has come, here or on another machine: what a watcher may ask."""

    records: list[Record]

    @property
    def round(self) -> int:
        """How many rounds are done."""

    @property
    def settings(self) -> Settings:
        """The settings, with what `auto` came out as."""

    @property
    def choice(self) -> EngineChoice:
        """Which engine, and why."""


@dataclass
class Progress:
    """A run as far as it has come."""

    prepared: Prepared
    state: Any
    records: list[Record] = field(default_factory=list)
    timings: list[Record] = field(default_factory=list)
    loss_vectors: dict[int, LossVectors] = field(default_factory=dict)
    assignment: Indices = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    scores: Scores | None = None

    @property
    def round(self) -> int:
        """How many rounds are done."""
        return len(self.records)

    @property
    def settings(self) -> Settings:
        """The settings, with what `auto` came out as."""
        return self.prepared.settings

    @property
    def choice(self) -> EngineChoice:
        """Which engine, and why."""
        return self.prepared.choice

    def models(self) -> Parameters:
        """Return the server's models, or those the clients keep."""
        prepared = self.prepared
        models = prepared.algorithm.server_models(self.state)
        if models is not None:
            return models
        return prepared.federation.kept_models("model")


PHASES = {
    Losses: "losses",
    Summary: "losses",  # what clients measure without training
    Train: "training",
    Gradients: "training",
    Evaluate: "evaluation",
}


class Stopwatch:
    """Notes how long each kind of question takes, and the server between them."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(["losses", "training", "evaluation", "server"], 0.0)
        self._last = time.perf_counter()

    def lap(self, question: Question | None = None) -> None:
        """Add the time since the last lap: to a question's phase, else to the server's."""
        now = time.perf_counter()
        phase = "server" if question is None else PHASES.get(type(question), "server")
        self.seconds[phase] += now - self._last
        self._last = now

    def add(self, question: Question, seconds: float) -> None:
        """Add time to a question's phase."""
        self.seconds[PHASES.get(type(question), "server")] += seconds

    def skip(self) -> None:
        """Leave out the time since the last lap: it was another run's."""
        self._last = time.perf_counter()


def drive(asking: Asking[Any], answer: Callable[[Question], Any]) -> Any:
    """Send a generator the answers to its questions until it returns."""
    reply: Any = None
    while True:
        try:
            question = asking.send(reply)
        except StopIteration as stop:
            return stop.value
        reply = answer(question)


def participants(seed: int, number: int, present: Indices, participation: float) -> Indices:
    """Draw the participants of a round: a share of the clients that are there, at least one."""
    if participation >= 1:
        return present
    size = max(1, ceil(participation * len(present) - 1e-9))
    draw = seeds.stream(seed, "participants", number)
    return present[np.sort(draw.choice(len(present), size=size, replace=False))]


def run_rounds(runs: Sequence[tuple[Progress, RunFolder | None, Watcher | None]]) -> None:
    """Go on with runs of one shape to their last round, and tell their watchers."""
    with closing(rounds([(progress, folder) for progress, folder, _ in runs])) as done:
        for place in done:
            progress, _, watch = runs[place]
            if watch is not None:
                watch(progress)


def rounds(
    runs: Sequence[tuple[Progress, RunFolder | None]],
) -> Generator[int, None, None]:
    """Go on with runs of one shape, all at the same round, the clients of several as one stack.

    Whenever a run has done a round and written it, its place among the runs is yielded.
    """
    progresses = [progress for progress, _ in runs]
    federations = [one.prepared.federation for one in progresses]
    stack = [one for one in federations if isinstance(one, Vectorized) and len(runs) > 1]
    if stack:
        join(stack)
    first = progresses[0]
    with kernels_of(federations[0].precision, federations[0].device):
        while first.round < first.settings.rounds:
            if stack:
                _one_round_together(progresses, stack)
            else:
                _one_round(first)
            for place, (progress, folder) in enumerate(runs):
                if folder is not None:
                    folder.add_round(progress)
                yield place


def begin(prepared: Prepared) -> Progress:
    """Return a run before its first round."""
    unseen = np.full(prepared.federation.clients, -1)
    return Progress(prepared, prepared.algorithm.begin(), assignment=unseen)


def _one_round(progress: Progress) -> None:
    watch = Stopwatch()

    def answer(question: Question) -> Any:
        watch.lap()
        found = progress.prepared.federation.answer(question)
        watch.lap(question)
        return found

    drive(_round(progress), answer)
    _note_times(progress, watch)


def _one_round_together(progresses: Sequence[Progress], federations: list[Vectorized]) -> None:
    """Let every run go on until it asks, and answer all their questions at once."""
    watches = [Stopwatch() for _ in progresses]
    asking = [_round(progress) for progress in progresses]
    asked: dict[int, Question | None] = dict.fromkeys(range(len(asking)))
    answers: list[Callable[[], Any]] = [lambda: None] * len(asking)
    while asked:
        questions: dict[int, Question] = {}
        for (number, question), answer in zip(asked.items(), answers, strict=True):
            watches[number].skip()
            reply = answer()
            watches[number].lap(question)
            with suppress(StopIteration):
                questions[number] = asking[number].send(reply)
            watches[number].lap()
        start = time.perf_counter()
        answers = begin_answers([federations[n] for n in questions], list(questions.values()))
        for number, question in questions.items():
            watches[number].add(question, (time.perf_counter() - start) / len(questions))
        asked = dict(questions)
    for progress, watch in zip(progresses, watches, strict=True):
        watch.skip()  # the others' time, since this run's last question
        _note_times(progress, watch)


def _note_times(progress: Progress, watch: Stopwatch) -> None:
    watch.lap()
    total = sum(watch.seconds.values())
    progress.timings.append({"round": progress.round, "seconds": total, **watch.seconds})


def _asked(algorithm: Algorithm[Any], state: Any, cohort: Indices) -> Asking[Outcome[Any]]:
    """Pass on the questions of an algorithm's round, if they are any; return what came of it."""
    asking, reply = algorithm.round(state, cohort), None
    if not isinstance(asking, Generator):
        raise CloveError(f"the round of {algorithm.name} must yield its questions")
    while True:
        try:
            question = asking.send(reply)
        except StopIteration as stop:
            outcome = stop.value
            break
        if not isinstance(question, QUESTIONS):
            known = ", ".join(one.__name__ for one in QUESTIONS)
            raise CloveError(
                f"a round of {algorithm.name} asked {question!r}, which is no question. Those of "
                f"clove.federation.questions are {known}"
            )
        reply = yield question
    if not isinstance(outcome, Outcome):
        raise CloveError(f"a round of {algorithm.name} must return an Outcome, not {outcome!r}")
    return outcome


def _round(progress: Progress) -> Asking[None]:
    """Ask all questions of a round, and note what came of it."""
    number = progress.round + 1
    progress.prepared.federation.begin_round(number)
    _make_room(progress)
    prepared = progress.prepared
    settings, federation = prepared.settings, prepared.federation
    cohort = participants(settings.seed, number, federation.present, settings.participation)
    outcome = yield from _asked(prepared.algorithm, progress.state, cohort)
    federation.end_round(len(outcome.clients))
    progress.state = outcome.state
    if outcome.assignment is not None:
        progress.assignment = progress.assignment.copy()
        progress.assignment[outcome.clients] = outcome.assignment
    if outcome.loss_vectors is not None:
        progress.loss_vectors[number] = outcome.loss_vectors
    scores = None
    if number % settings.evaluate_every == 0 or number == settings.rounds:
        scores = yield prepared.algorithm.evaluation(progress.state, federation.present)
        progress.scores = scores
    progress.records.append(_record(number, progress, outcome, scores))


def _make_room(progress: Progress) -> None:
    """Make room for clients that joined since the last round."""
    prepared, clients = progress.prepared, progress.prepared.federation.clients
    new = clients - len(progress.assignment)
    if new <= 0:
        return
    progress.assignment = np.concatenate([progress.assignment, np.full(new, -1)])
    setup = replace(prepared.algorithm.setup, clients=clients)
    progress.prepared = replace(
        prepared,
        clients=replace(prepared.clients, groups=prepared.federation.true_groups),
        algorithm=replace(prepared.algorithm, setup=setup),
    )


def _record(
    number: int, progress: Progress, outcome: Outcome[Any], scores: Scores | None
) -> Record:
    """Return one round's line of metrics: nothing in it depends on the machine's speed."""
    prepared, ledger = progress.prepared, progress.prepared.federation.ledger
    accuracy = None if scores is None or scores.accuracy is None else scores.accuracy
    record: Record = {
        "round": number,
        "accuracy": None if accuracy is None or not len(accuracy) else float(accuracy.mean()),
        "test_loss": None if scores is None or not len(scores.loss) else float(scores.loss.mean()),
        "ari": None,
        "ari_seen": None,
        "participants": len(outcome.clients),
        "stable": outcome.stable,
        "bytes_up": ledger.up,
        "bytes_down": ledger.down,
    }
    groups = prepared.clients.groups
    if prepared.algorithm.clusters and groups is not None and len(outcome.clients):
        seen = np.flatnonzero(progress.assignment >= 0)
        record["ari"] = _ari(groups[outcome.clients], progress.assignment[outcome.clients])
        everyone = np.array_equal(seen, outcome.clients)
        record["ari_seen"] = (
            record["ari"] if everyone else _ari(groups[seen], progress.assignment[seen])
        )
    record["assignment"] = progress.assignment.tolist()
    return {name: plain(value) for name, value in (record | outcome.notes).items()}


def plain(value: Any) -> Any:
    """Return a value as JSON has it: no arrays, and None for numbers that are not finite.

    >>> plain({"loss": float("nan"), "models": np.arange(3)})
    {'loss': None, 'models': [0, 1, 2]}
    """
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def _ari(groups: Indices, assignment: Indices) -> float:
    return _known_ari(tuple(groups.tolist()), tuple(assignment.tolist()))


@lru_cache(maxsize=64)  # once stable, the same question comes every round
def _known_ari(groups: tuple[int, ...], assignment: tuple[int, ...]) -> float:
    from sklearn.metrics import adjusted_rand_score  # slow to load, so when needed

    return float(adjusted_rand_score(groups, assignment))
