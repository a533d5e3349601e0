"""Child processes that never outlive their parent, nor does what they have started."""

from __future__ import annotations

import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType

from clove.deployment import guard
from clove.errors import CloveError

LOOPBACK = "127.0.0.1"
SECONDS_TO_START, SECONDS_TO_END = 60.0, 8.0
SECONDS_TO_NOTICE = 0.5
PAUSE, LAST_LINES = 0.1, 15


class Processes:
    """Processes that are started here and taken down together, whatever they started included.

    Each has a name, under which its output stands in the folder of logs.
    """

    def __init__(self, logs: Path) -> None:
        self.logs = logs
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Processes:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start a process; one of the same name must have ended."""
        self.logs.mkdir(parents=True, exist_ok=True)
        with self._log(name).open("ab") as file:
            self._running[name] = subprocess.Popen(
                guarded(command),
                env=environment,
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for us: we take them down in order
            )

    def __getitem__(self, name: str) -> subprocess.Popen[bytes]:
        return self._running[name]

    def log(self, name: str) -> str:
        """Return what a process has written so far."""
        return self._log(name).read_text(encoding="utf-8", errors="replace")

    def wait(self, ready: Callable[[], bool], what: str, more: float = 0.0) -> None:
        """Wait until something is ready; if a process ends meanwhile, show its last words.

        It may take so many seconds `more` than a single process has to start.
        """
        seconds = SECONDS_TO_START + more
        end = time.monotonic() + seconds
        alive = {name: one for name, one in self._running.items() if one.poll() is None}
        while not ready():
            for name, process in alive.items():
                if process.poll() is not None and not ready():
                    raise CloveError(f"{name} ended before {what}. {self._last_words(name)}")
            if time.monotonic() > end:
                raise CloveError(f"waited {seconds:.0f} seconds until {what}: see {self.logs}")
            time.sleep(PAUSE)

    def outlast(self, name: str, tell: Callable[[str], None]) -> None:
        """Stay for as long as a process runs, which should be until we are interrupted.

        If another ends by itself, that is told, and the rest goes on.
        """
        watched = dict(self._running)
        while (code := self._running[name].poll()) is None:
            for other, process in list(watched.items()):
                if process.poll() is not None:
                    del watched[other]
                    if process.returncode:
                        what = f"{other} ended by itself ({process.returncode})"
                        tell(f"{what}: see {self._log(other)}")
            time.sleep(SECONDS_TO_NOTICE)
        raise CloveError(f"{name} ended by itself ({code}). {self._last_words(name)}")

    def stop(self) -> None:
        """End all processes, with what they have started: politely, then by force.

        The one that was started first ends last: of it the others may want to take their leave.
        """
        every = list(self._running.values())
        for group in (every[1:], every[:1]):
            for process in group:
                process.terminate()
            for process in group:
                process.wait()  # a guard comes to an end by itself
                assert process.stdin is not None
                process.stdin.close()
        self._running.clear()

    def _last_words(self, name: str) -> str:
        return "It said:\n" + "\n".join(self.log(name).splitlines()[-LAST_LINES:])

    def _log(self, name: str) -> Path:
        return self.logs / f"{name}.log"


def guarded(command: Sequence[str]) -> list[str]:
    """Return a command that ends, with all it has started, when its standard input is closed.

    That is a pipe to us: it is closed when we end, even by force.
    """
    return [sys.executable, "-IS", guard.__file__, str(SECONDS_TO_END), *command]


@contextmanager
def end_on_termination() -> Iterator[None]:
    """Take SIGTERM, and a terminal that is closed, as Ctrl-C is taken: what is open is closed."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {one: signal.signal(one, interrupt) for one in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def free_port() -> int:
    """Return a port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def answers(address: str, authority: Path | None = None) -> bool:
    """Say whether a server answers; if it must be trusted, `authority` is who vouches for it."""
    trusted = None if authority is None else ssl.create_default_context(cafile=str(authority))
    try:
        # Not by a proxy that the environment names: it is this machine that is asked.
        direct = urllib.request.ProxyHandler({})
        secured = urllib.request.HTTPSHandler(context=trusted)
        with urllib.request.build_opener(direct, secured).open(address, timeout=1):
            return True
    except (urllib.error.URLError, TimeoutError, ConnectionError):
        return False
