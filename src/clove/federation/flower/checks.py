"""Whether a client's answer is one: a wrong one must harm nobody."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, RecordDict
from flwr.common.serde import recorddict_to_proto

from clove.federation import parameters as stacks
from clove.federation.flower.codec import Misread
from clove.federation.flower.forms import Form, form_of
from clove.federation.parameters import Parameters
from clove.federation.questions import (
    Answer,
    Gradients,
    Losses,
    LossVectors,
    Question,
    Recalled,
    Scores,
    Seeded,
    Summaries,
    Train,
    Trained,
)

ROOM = 1e6  # how many clients a sum has room for
COUNTS = "counts"  # the part of a summary that says how many samples are of each kind
NOT_NEGATIVE = (COUNTS, "variance")  # what parts of summaries with these names cannot be
SPARE = 1_000_000  # bytes an answer may have beyond two models: losses, summaries


def most_bytes(template: Parameters, summary: Form | None = None) -> int:
    """Return how large an answer may be, where this is a stack of one model.

    A summary of large samples may be larger than models are.
    """
    parts = (summary or {}).values()
    asked = sum(np.dtype(kind).itemsize * math.prod(shape) for kind, shape in parts)
    return max(2 * stacks.model_bytes(template), asked) + SPARE


def check_size(content: RecordDict, most: int) -> None:
    """Refuse a gigantic answer before it is read: its arrays, and all words and names around them.

    Arrays are counted as they lie here; only what is around them is written out to be measured.
    """
    size = sum(len(array.data) for one in content.array_records.values() for array in one.values())
    if size <= most:
        size += recorddict_to_proto(_without_data(content)).ByteSize()
    if size > most:
        raise Misread(f"its answer has {size:,} bytes, where {most:,} are the most")


def _without_data(content: RecordDict) -> RecordDict:
    bare = RecordDict(dict(content))
    for name, record in content.array_records.items():
        bare[name] = ArrayRecord(
            {key: Array(one.dtype, one.shape, one.stype, b"") for key, one in record.items()}
        )
    return bare


class Outgrown(Misread):
    """An answer that speaks of more samples than its client said it has."""


def check_samples(answer: Answer, most: int) -> None:
    """Refuse an answer by more samples than its client has: it would weigh as much in every mean.

    Their number is the client's own word, too; but it is bounded, and given once.
    """
    if isinstance(answer, Trained) and answer.samples[0] > most:
        of = f"it trained on {answer.samples[0]:g} samples"
    elif isinstance(answer, Summaries) and _counted(answer) > most:
        of = f"its summary counts {_counted(answer):g} samples"
    else:
        return
    raise Outgrown(f"{of}, and said it has {most}; it is greeted again, to say how many it has now")


def _counted(answer: Summaries) -> float:
    # Whole numbers may be so large that their sum would be below nought.
    return float(answer.values[COUNTS].sum(dtype=np.float64)) if COUNTS in answer.values else 0.0


@dataclass(frozen=True)
class Wanted:
    """What a client's answer must be like.

    `model` is what it has to send of a model, as a stack of one, None for nothing; `values` names
    the entries of the network that are no parameters; `rated` says whether the task has right and
    wrong answers, `summary` what one must look like, where that is known.
    """

    model: Parameters | None
    values: frozenset[str]
    rated: bool
    summary: Form | None = None


def check_answer(question: Question, answer: Answer, wanted: Wanted) -> None:
    """Refuse an answer of one client that is not what was asked for."""
    values = {part.name: getattr(answer, part.name) for part in fields(answer)}
    if isinstance(answer, Summaries):
        values |= answer.values
    for name, value in values.items():
        if isinstance(value, np.ndarray) and value.shape[:1] != (1,):
            raise Misread(f"{name} has shape {value.shape}, which is not for one client")
    if isinstance(answer, LossVectors):
        _check_losses(question, answer)
    elif isinstance(answer, Trained):
        _check_trained(question, answer, wanted)
    elif isinstance(answer, Recalled):
        if answer.models.shape != (1,) or answer.models[0] < -1:
            raise Misread("its assignment is no model's number")
    elif isinstance(answer, Scores):
        _check_scores(answer, wanted.rated)
    elif isinstance(answer, Summaries):
        _check_summary(answer, wanted.summary)


def number_of_losses(question: Losses) -> int:
    """Return how many losses are asked for."""
    models = question.models
    return models.count if isinstance(models, Seeded) else stacks.count(models)


def _check_losses(question: Question, answer: LossVectors) -> None:
    assert isinstance(question, Losses)
    expected = (1, number_of_losses(question))
    if answer.losses.shape != expected:
        raise Misread(f"its loss vector has shape {answer.losses.shape}, not {expected}")
    # Losses that are not finite are the method's business, which knows whom to leave out.
    _check_squares("its loss vector", answer.losses[np.isfinite(answer.losses)])


def _check_scores(answer: Scores, rated: bool) -> None:
    shapes = [answer.loss.shape, *([] if answer.accuracy is None else [answer.accuracy.shape])]
    if set(shapes) != {(1,)} or rated != (answer.accuracy is not None):
        raise Misread("its scores are not a loss and, where the task has one, an accuracy")
    if answer.accuracy is not None and not 0 <= answer.accuracy[0] <= 1:
        raise Misread(f"its accuracy is {answer.accuracy[0]}, which is no share")
    _check_squares("its loss", answer.loss)


def _check_summary(answer: Summaries, form: Form | None) -> None:
    """Refuse a summary of another form, or with numbers that would spoil a mean for all."""
    if form is not None and form_of(answer) != form:
        raise Misread("its summary has other names, types or shapes than was asked for")
    for name, value in answer.values.items():
        _check_squares(f"{name} of its summary", value)
        if name in NOT_NEGATIVE and value.min(initial=0) < 0:
            raise Misread(f"{name} of its summary is below nought")


def _check_squares(what: str, value: np.ndarray[Any, Any]) -> None:
    """Refuse numbers that are not finite, or whose squares could not be added up."""
    if value.dtype.kind != "f" or not value.size:
        return
    if not np.isfinite(value).all():
        raise Misread(f"{what} is not finite")
    if float(np.abs(value).max()) > float(np.finfo(value.dtype).max) ** 0.5 / ROOM:
        raise Misread(f"{what} is too large to be compared")


def _check_trained(question: Question, answer: Trained, wanted: Wanted) -> None:
    assert isinstance(question, Train | Gradients)
    samples = answer.samples
    if samples.shape != (1,) or not np.isfinite(samples[0]) or samples[0] < 1:
        raise Misread(f"its number of samples is {samples.tolist()}")
    if (answer.stable is not None) != (question.assigns and question.stable_rounds > 0):
        raise Misread("its report of stability is missing, or was not asked for")
    if answer.stable is not None and answer.stable.shape != (1,):
        raise Misread(f"its report of stability has shape {answer.stable.shape}, not (1,)")
    if answer.weights is not None:
        raise Misread("it sent weights of groups, which are the server's business")
    reports = isinstance(question, Train) and question.report_losses
    if reports != (answer.losses is not None and answer.losses.ndim == 2):
        raise Misread("its losses by step are missing, or were not asked for")
    if answer.losses is not None:
        _check_squares("a loss of one of its steps", answer.losses)
    if answer.values != wanted.values:
        raise Misread("it takes other entries of the network for running statistics")
    if (wanted.model is None) != (answer.models is None):
        raise Misread("its parameters are missing, or were not asked for")
    if answer.models is not None and wanted.model is not None:
        check_models(answer.models, wanted.model)
        _check_sums(answer.models, samples[0])


def _check_sums(models: Parameters, samples: float) -> None:
    """Refuse finite parameters that are so large that no average could hold them."""
    for name, tensor in models.items():
        if not tensor.is_floating_point() or not tensor.numel():
            continue
        largest = float(tensor.double().abs().max()) * samples
        if largest > torch.finfo(tensor.dtype).max / ROOM:
            raise Misread(f"parameter {name} is too large to be averaged")


def check_models(models: Parameters, template: Parameters) -> None:
    """Refuse parameters of other names, shapes or types, or that are not finite."""
    if models.keys() != template.keys():
        raise Misread("its parameters have other names than the model's")
    for name, tensor in template.items():
        own = models[name]
        if own.shape != tensor.shape or own.dtype != tensor.dtype:
            raise Misread(
                f"parameter {name} has shape {tuple(own.shape[1:])} of {own.dtype}, "
                f"not {tuple(tensor.shape[1:])} of {tensor.dtype}"
            )
    if not stacks.finite_rows(models)().all():
        raise Misread("its parameters are not finite (a smaller learning rate may help)")
