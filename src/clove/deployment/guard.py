"""Runs a command and ends with it whatever it has started; a program by itself.

    python -IS guard.py SECONDS COMMAND...

Its standard input is a pipe that its parent holds: when the parent has ended, in whatever way, the
pipe is closed, and the guard takes the command down: so many seconds it has to end by itself. A
signal that asks a single child to end with its parent would not do: what is to end are children's
children, in sessions of their own and under names of their own (Ray's agents), whose parents may
have ended before. On Linux the guard is the one to whom these fall (a "subreaper"), so that all
that was started is found below it; elsewhere it ends the command's group of processes.

It knows nothing of clove, so that it is up at once.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

LINUX = sys.platform == "linux"
SET_CHILD_SUBREAPER = 36  # of prctl
SECONDS_TO_KILL = 8.0
PAUSE = 0.02
HEARD = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)


def main(seconds: str, *command: str) -> int:
    """Run a command until it ends, or until it is to end; return its code as shells do."""
    heard = _listen()
    child = _started(command)
    code = _until_it_is_to_end(child, heard)
    if code is None:
        os.kill(child, signal.SIGTERM)
        code = _within(float(seconds), child)
    _end_all(child)
    return 128 + signal.SIGKILL if code is None else code


def _listen() -> int:
    """Return what signals can be read from."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    for one in HEARD:  # a function, and not SIG_IGN, which the command would inherit
        signal.signal(one, lambda *_: None)
    return reader


def _started(command: tuple[str, ...]) -> int:
    own_group: dict[str, Any] = {} if LINUX else {"setpgroup": 0}
    if LINUX:
        ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    nothing = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
    return os.posix_spawnp(command[0], command, os.environ, file_actions=[nothing], **own_group)


def _until_it_is_to_end(child: int, heard: int) -> int | None:
    """Return the child's code, or None if it is to be ended."""
    while (code := _reaped(child)) is None:
        ready, _, _ = select.select([0, heard], [], [])
        if 0 in ready and not os.read(0, 1):
            return None
        if heard in ready and signal.SIGTERM in os.read(heard, 4096):
            return None
    return code


def _within(seconds: float, child: int) -> int | None:
    end = time.monotonic() + seconds
    while (code := _reaped(child)) is None and time.monotonic() < end:
        time.sleep(PAUSE)
    return code


def _reaped(child: int) -> int | None:
    """Take note of all who have ended; return the child's code if it is among them."""
    code = None
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                found = os.waitstatus_to_exitcode(ended[1])
                code = found if found >= 0 else 128 - found
    return code


def _end_all(child: int) -> None:
    """End by force all that is left, and what that may have started meanwhile."""
    if not LINUX:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)
        return
    end = time.monotonic() + SECONDS_TO_KILL
    while (left := below(os.getpid())) and time.monotonic() < end:
        for one in left:
            with suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        time.sleep(PAUSE)
        _reaped(child)


def below(top: int) -> set[int]:
    """Return the children of a process, and theirs, and so on."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has just ended
            # Behind the name, which is in brackets and may hold anything: state, parent.
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
    found, to_ask = set[int](), [top]
    while to_ask:
        own = children.get(to_ask.pop(), [])
        found.update(own)
        to_ask += own
    return found


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
