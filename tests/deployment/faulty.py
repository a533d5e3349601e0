"""A client's app that misbehaves as its node was told to: `--node-config 'fault="nan"'`.

It is copied into a project and takes the place of its client.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp


def without_numbers(reply: RecordDict) -> None:
    """Send NaN for every loss, and for every parameter."""
    numbers = reply.metric_records["numbers"]
    for name, values in list(numbers.items()):
        numbers[name] = [float("nan")] * len(values)
    tensors = reply.array_records["tensors"]
    for name, one in list(tensors.items()):
        data = np.full(one.shape, np.nan, dtype=one.dtype).tobytes()
        tensors[name] = Array(one.dtype, one.shape, one.stype, data)


def short(reply: RecordDict) -> None:
    """Send a vector that lacks its last loss."""
    form = json.loads(str(reply.config_records["form"]["form"]))
    losses = form["with"].get("losses")
    if losses is not None:
        losses["shape"][-1] -= 1
        numbers = reply.metric_records["numbers"]
        numbers[losses["numbers"]] = numbers[losses["numbers"]][:-1]
        reply.config_records["form"]["form"] = json.dumps(form)


def misshapen(reply: RecordDict) -> None:
    """Send parameters with an entry too many."""
    tensors = reply.array_records["tensors"]
    for name, one in list(tensors.items()):
        shape = (*one.shape[:-1], one.shape[-1] + 1)
        data = np.zeros(shape, dtype=one.dtype).tobytes()
        tensors[name] = Array(one.dtype, shape, one.stype, data)


def huge(reply: RecordDict) -> None:
    """Send a hundred megabytes beside the answer."""
    reply["more"] = ArrayRecord({"x": Array(np.random.default_rng(0).random(12_500_000))})


def garbage(reply: RecordDict) -> None:
    """Send what has nothing to do with the question."""
    reply.clear()
    reply["form"] = ConfigRecord({"form": "\x00[{]", "bytes": bytes(range(256))})
    reply["numbers"] = MetricRecord({"x": [1.0, -1.0]})


def silent(reply: RecordDict) -> None:
    """Never answer."""
    time.sleep(3600)


FAULTS = {
    "nan": without_numbers,
    "short": short,
    "misshapen": misshapen,
    "huge": huge,
    "garbage": garbage,
    "silent": silent,
}


class Faulty(ClientApp):
    """Answers as it should, then spoils the answer; greets as it should, to be let in."""

    def __call__(self, message: Message, context: Context) -> Message:
        from client import app

        reply = app(message, context)
        fault, once = context.node_config.get("fault"), context.node_config.get("until")
        greeting = message.metadata.message_type == "query.hello"
        if fault and not greeting and not (once and Path(str(once)).exists()):
            if once:
                Path(str(once)).touch()
            FAULTS[str(fault)](reply.content)
        return reply


app = Faulty()
