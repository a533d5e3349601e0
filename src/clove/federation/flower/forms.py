"""What a summary must look like, for whoever asks for it has none to compare a client's with.

A summary has the same names, types and shapes for every client. So one is made here, of a client
whose samples are noughts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from clove.data import ClientData
from clove.federation.parameters import Parameters
from clove.federation.questions import Summaries, Summary
from clove.federation.sequential import Sequential
from clove.tasks import Task

SAMPLES = 4
Form = dict[str, tuple[str, tuple[int, ...]]]  # type and shape of each part


def form_of(answer: Summaries) -> Form:
    """Return what the parts of one client's summary look like."""
    return {name: (str(one.dtype), one.shape[1:]) for name, one in answer.values.items()}


def expected_form(
    question: Summary,
    task: Task,
    model: Parameters,
    inputs: tuple[int, ...],
    outputs: int,
    precision: str,
) -> Form | None:
    """Return what a client's summary must look like; None: none can be made of noughts."""
    alone = np.array([0])
    own = replace(question, clients=alone)
    if question.models is not None:
        own = replace(own, models=model, start=alone)
    dtype = next(iter(model.values())).dtype
    for kind in (np.float32, np.int64):  # words are whole numbers
        try:
            data = _noughts(task, (SAMPLES, *inputs), outputs, kind)
            engine = Sequential([data], task, dtype=dtype, precision=precision)
            answer = engine.answer(own)
        except Exception:  # a function of the user's own may need more than noughts
            continue
        return form_of(answer) if isinstance(answer, Summaries) else None
    return None


def _noughts(task: Task, shape: tuple[int, ...], outputs: int, kind: type) -> ClientData:
    x: np.ndarray[Any, Any] = np.zeros(shape, dtype=kind)
    if task.target == "x":
        return ClientData(train=(x, None), test=(x, None))
    rated = task.correct is not None
    labels = (len(x),) if rated or outputs == 1 else (len(x), outputs)
    y = np.zeros(labels, dtype=np.int64 if rated else np.float32)
    return ClientData(train=(x, y), test=(x, y))
