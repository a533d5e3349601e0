"""Stacks made by several processes of this machine, one of which may die without the others.

They share its memory alike. What does not fit in a process's part is made at the end, by one alone.
"""

from __future__ import annotations

import os
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from threading import Timer
from typing import Any

import torch
from threadpoolctl import threadpool_limits

from clove.paper.choice import Stack
from clove.paper.making import Made, Tell, make, told_since
from clove.paper.pace import Queue

TRIES = 2  # of a stack whose process dies
GRACE = 5.0  # seconds after the time is up in which a round may end
POLL = 0.2  # seconds between looks at how far the processes are


class Seat:
    """A process that makes one stack after another; when it died, the next one has a new process.

    Each has a pool of its own: a process that dies takes all of a pool with it.
    """

    def __init__(self, keep_models: bool, among: int) -> None:
        self.keep_models, self.among = keep_models, among
        self.stack: Stack | None = None
        self.told = 0  # rounds of this stack
        self.begun = 0.0
        self._context = get_context("spawn")  # a forked process cannot use a GPU
        self._pool: ProcessPoolExecutor | None = None
        self._news: Any = None
        self.doing: Future[Made] = Future()

    def begin(self, stack: Stack, until: float | None) -> None:
        """Begin a stack."""
        if self._pool is None:
            self._news = self._context.SimpleQueue()
            beginning = (self._news, self.among)
            self._pool = ProcessPoolExecutor(1, self._context, _begin_worker, beginning)
        self.stack, self.told, self.begun = stack, 0, time.time()
        self.doing = self._pool.submit(_work, stack, self.keep_models, until)

    def hear(self, tell: Tell) -> None:
        """Pass on which rounds are done."""
        while not self._news.empty():
            rounds = self._news.get()
            self.told += rounds
            tell(rounds)

    def done(self) -> tuple[Stack, Made | None, str]:
        """Return the stack and what came of it; nothing, and a line, where the process died."""
        stack, self.stack = self.stack, None
        assert stack is not None
        error = self.doing.exception()
        if isinstance(error, BrokenProcessPool):
            self.leave()
            return stack, None, f"its process died{told_since(stack, self.begun) or f': {error}'}"
        if error is not None:
            return stack, Made(error=f"{type(error).__name__}: {error}"), ""
        return stack, self.doing.result(), ""

    def leave(self, wait: bool = False) -> None:
        """Let the process go, and wait until it is gone if so asked."""
        if self._pool is not None:
            self._pool.shutdown(wait=wait, cancel_futures=True)
        self._pool = None


def side_by_side(
    queue: Queue, tell: Tell, workers: int, keep_models: bool
) -> Iterator[tuple[Stack, Made]]:
    """Make stacks in processes of their own, so many at a time, and yield each when it is done.

    A stack that fails for want of memory, or whose process dies again and again, is made once more
    when all others are done, with no other beside it.
    """
    starved: list[Stack] = []
    died: Counter[str] = Counter()
    seats = [Seat(keep_models, workers) for _ in range(workers)]
    for stack, made in _made(queue, tell, seats, died):
        if made.starved:
            starved.append(stack)
            continue
        queue.note(stack, made)
        yield stack, made
    for stack in reversed(starved):
        queue.put_back(stack)
    for stack, made in _made(queue, tell, [Seat(keep_models, 1)], died):
        queue.note(stack, made)
        yield stack, made


def _made(
    queue: Queue, tell: Tell, seats: list[Seat], died: Counter[str]
) -> Iterator[tuple[Stack, Made]]:
    """Make stacks until the queue gives no more.

    One whose process dies is tried once more: that may have been the want of memory, and what was
    done of it is kept.
    """
    ended = False
    try:
        while busy := _seated(seats, queue):
            wait([seat.doing for seat in busy], timeout=POLL, return_when=FIRST_COMPLETED)
            for seat in busy:
                is_done = seat.doing.done()
                seat.hear(tell)
                if not is_done:
                    continue
                stack, made, reason = seat.done()
                if made is None or made.error is not None:
                    tell(-seat.told)  # the next try tells of them again
                if made is None:
                    died[stack.cell.key] += 1
                    if queue.is_over or died[stack.cell.key] < TRIES:
                        queue.put_back(stack)
                        continue
                    told = f"{reason}; what is done is kept, the same command goes on"
                    made = Made(error=told, starved=True)  # for all that is known
                yield stack, made
        ended = True
    finally:
        for seat in seats:
            seat.leave(wait=ended)  # so that its memory is free for others


def _seated(seats: list[Seat], queue: Queue) -> list[Seat]:
    """Give every free seat a stack, and return those that have one."""
    for seat in seats:
        if seat.stack is None and (stack := queue.take()) is not None:
            seat.begin(stack, queue.until)
    return [seat for seat in seats if seat.stack is not None]


# ------------------------------------------------------------------------------- in such a process

_news: Any = None  # where it tells of rounds
_among = 1  # how many processes share the machine


def _begin_worker(news: Any, among: int) -> None:
    global _news, _among
    _news, _among = news, among
    _share_cores(among)
    warnings.simplefilter("ignore")  # what there is to say stands in the runs' folders


def _share_cores(among: int) -> None:
    """Keep to a part of the cores: threads of all processes on all cores wait for each other."""
    mine = max((os.cpu_count() or 1) // among, 1)
    torch.set_num_threads(mine)
    threadpool_limits(mine)  # of libraries that are loaded,
    os.environ["OMP_NUM_THREADS"] = str(mine)  # and of those that will be


def _work(stack: Stack, keep_models: bool, until: float | None) -> Made:
    """Make a stack; what cannot stop between two rounds in time, such as compiling, is ended.

    A process that the device answers no more ends here, so that the stack is tried by another.
    """
    made = _in_time(stack, keep_models, until)
    if made.broken:
        os._exit(1)
    return made


def _in_time(stack: Stack, keep_models: bool, until: float | None) -> Made:
    if until is None:
        return make(stack, _news.put, keep_models, among=_among)
    end = Timer(max(0.0, until + GRACE - time.time()), os._exit, (0,))
    end.daemon = True
    end.start()
    try:
        return make(stack, _news.put, keep_models, until, _among)
    finally:
        end.cancel()
