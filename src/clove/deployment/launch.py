"""Running an app on a Flower server, and knowing how it ended.

`flwr run --stream` ends with 0 whatever becomes of the run; here a run that failed is an error.
"""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clove.deployment.commands import flower_command, flower_environment
from clove.deployment.flwr import (
    AS_JSON,
    CONFIG,
    CONNECTION,
    checked,
    flwr,
    flwr_json,
    home_in,
    read_json,
    write_connection,
)
from clove.deployment.processes import LOOPBACK, Processes, answers, free_port, guarded
from clove.errors import CloveError, unknown_name
from clove.extras import RAY_ALONE, RAY_BLIND, RAY_CALM

COMPLETED = "finished:completed"
GOING = ("pending", "starting", "running")
PAUSES = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0)  # seconds until a log that broke off is followed again
STEADY = 60.0  # seconds after which a log that breaks off does so for the first time
SECONDS_TO_SUBMIT = 30.0  # of a run, once interrupted
SECONDS_TO_CONNECT = 5.0
FLOWERS_OWN = ("local", "supergrid")
ABOUT = "pyproject.toml"
LEAST = "min-nodes"
TABLE = "[tool.flwr.app.config]"
Plain = bool | int | float | str


def run_app(
    app: str | Path,
    home: Path | None,
    connection: str | None = None,
    config: Mapping[str, Plain] | None = None,
    federation: Mapping[str, Plain] | None = None,
) -> None:
    """Run an app to its end, its log going to the terminal; raise if it does not complete.

    `home` is where `flwr` finds its connections (None: the user's own), `config` overrides
    settings that the app declares, `federation` those of a simulation.
    """
    folder, named = Path(app).absolute(), [] if connection is None else [connection]
    words = [str(folder), *named]
    for option, given in (
        ("--run-config", _declared(folder, config or {})),
        ("--federation-config", federation or {}),
    ):
        words += [word for name, one in given.items() for word in (option, f"{name}={_toml(one)}")]
    number = _submitted(words, named, home)
    with _stopped_if_interrupted(number, named, home):
        found = _followed(number, named, home)
    if found["status"] != COMPLETED:
        status, details = found["status"].replace(":", ", "), found["status-details"]
        raise CloveError(f"run {number} is {status}: {details or 'see the log above'}")


def _submitted(words: Sequence[str], named: Sequence[str], home: Path | None) -> str:
    """Begin a run and return its number; one that is interrupted meanwhile is stopped.

    Only by its number can it be, so that the submission is not interrupted, but waited for.
    """
    arguments = ["run", *words]
    command = [flower_command("flwr"), *arguments, *AS_JSON]
    with subprocess.Popen(
        command,
        env=flower_environment(home),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is for us
    ) as submitting:
        try:
            said, complaint = submitting.communicate()
        except KeyboardInterrupt:
            _stop_what_began(submitting, named, home)
            raise
    text = checked(command, submitting.returncode, said, complaint)
    return str(read_json(text, *arguments)["run-id"])


def _stop_what_began(
    submitting: subprocess.Popen[str], named: Sequence[str], home: Path | None
) -> None:
    """Stop the run that is being submitted, once it has a number; or say how to."""
    try:
        said, _ = submitting.communicate(timeout=SECONDS_TO_SUBMIT)
        if submitting.returncode == 0:  # else nothing has begun
            flwr("stop", str(read_json(said, "run")["run-id"]), *named, home=home)
    except (subprocess.TimeoutExpired, KeyboardInterrupt, CloveError):
        submitting.kill()
        raise CloveError(
            "interrupted while the run was submitted: it may go on. Look for it with "
            f"`{_as_typed('list', named, home)}`, and stop it with "
            f"`{_as_typed('stop RUN-ID', named, home)}`"
        ) from None


def _followed(run: str, named: Sequence[str], home: Path | None) -> dict[str, Any]:
    """Show a run's log until the run is over, and return what became of it.

    The log ends when the run does, but it may end before: when the connection is lost.
    """
    pauses = iter(PAUSES)
    while True:
        began = time.monotonic()
        _show_log(run, named, home)
        if time.monotonic() - began > STEADY:
            pauses = iter(PAUSES)
        try:
            found: dict[str, Any] | None = _status(run, named, home)
        except CloveError:
            found = None
        if found is not None and found["status"] not in GOING:
            return found
        pause = next(pauses, None)
        if pause is None:
            raise CloveError(_lost(run, found is not None, named, home))
        time.sleep(pause)


def _show_log(run: str, named: Sequence[str], home: Path | None) -> None:
    log = [flower_command("flwr"), "log", run, *named, "--stream"]
    pipe, environment = subprocess.PIPE, flower_environment(home)
    with subprocess.Popen(
        guarded(log), env=environment, stdin=pipe, start_new_session=True
    ) as showing:
        showing.wait()


def _status(run: str, named: Sequence[str], home: Path | None) -> dict[str, Any]:
    runs: list[dict[str, Any]] = flwr_json("list", *named, "--run-id", run, home=home)["runs"]
    if not runs:
        raise CloveError(f"the server knows no run {run}")
    return runs[0]


def _how(run: str, named: Sequence[str], home: Path | None) -> str:
    """Say how to follow and to stop a run."""
    return (
        f"follow it with `{_as_typed(f'log {run}', named, home)}`, stop it with "
        f"`{_as_typed(f'stop {run}', named, home)}`"
    )


def _lost(run: str, there: bool, named: Sequence[str], home: Path | None) -> str:
    """Say what to do about a run that cannot be followed, though it is not known to be over."""
    how = _how(run, named, home)
    if there:
        return f"the log of run {run} has broken off again and again, but the run goes on: {how}"
    return (
        f"the server is not there any more, so that nothing is known of run {run}. If it has "
        "ended, start it again: the same command then goes on from the last round that was done. "
        f"If it is only out of reach, the run goes on: {how}"
    )


def _as_typed(words: str, named: Sequence[str], home: Path | None) -> str:
    """Return a command of `flwr` as one types it."""
    where = "" if home is None else f"FLWR_HOME={shlex.quote(str(home))} "
    return where + " ".join(["flwr", words, *named])


def _declared(app: Path, config: Mapping[str, Plain]) -> Mapping[str, Plain]:
    """Return settings of a run if the app has them all; Flower takes no others."""
    known = _known(app)
    for name, value in config.items():
        if name not in known:
            where = f"setting in {TABLE} of {app / ABOUT}"
            problem = unknown_name(where, name, known) if known else f"there is no {where}"
            raise CloveError(
                f"{problem}. Flower takes only settings that stand there: "
                f"add `{name} = {_toml(value)}` under {TABLE}"
            )
        if _kind(value) != _kind(known[name]):
            raise CloveError(
                f"{name} must be {_kind(known[name])}, as it is in {app / ABOUT}, "
                f"and {value!r} is {_kind(value)}"
            )
    return config


def _kind(value: Plain) -> str:
    """Return what a setting is, in words."""
    if isinstance(value, bool):
        return "true or false"
    return "a text" if isinstance(value, str) else "a number"


def _known(app: Path) -> Mapping[str, Any]:
    """Return the settings that an app declares, with what they are where a run says nothing."""
    try:
        about = tomllib.loads((app / ABOUT).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CloveError(f"there is no {ABOUT} in {app}: is it a project of Flower?") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CloveError(f"{app / ABOUT} cannot be read: {error}") from None
    described = about.get("tool", {}).get("flwr", {}).get("app")
    if described is None:
        raise CloveError(
            f"{app / ABOUT} does not describe an app of Flower: it has no [tool.flwr.app]. "
            "`clove flower new FOLDER` writes one that does"
        )
    known: Mapping[str, Any] = described.get("config", {})
    return known


def _toml(value: Plain) -> str:
    """Write a value as Flower reads it, which knows no way to write quotes within quotes."""
    if not isinstance(value, str):
        return str(value).lower()
    if any(letter in value for letter in '"\\\n'):
        raise CloveError(
            f"Flower takes no settings with quotes, backslashes or line ends: {value!r}"
        )
    return f'"{value}"'


def find_server(where: str) -> tuple[Path | None, str]:
    """Return the home and the name by which `flwr` finds a server.

    It is one of `clove flower up`, by its folder, or one that `flwr` knows already, by its name.
    """
    home = home_in(Path(where).absolute())
    if (home / CONFIG).is_file():
        _refuse_absent(where, home / CONFIG)
        return home, CONNECTION
    own = Path(os.environ.get("FLWR_HOME") or Path.home() / ".flwr") / CONFIG
    if where not in _servers(own):
        raise CloveError(
            f"{where} is neither a folder of `clove flower up` (start one: `clove flower up "
            f"{shlex.quote(where)}`) nor a server that `flwr` knows ([superlink.NAME] in {own})"
        )
    return None, where


def _refuse_absent(where: str, config: Path) -> None:
    """Refuse a folder whose server has ended: it is one of this machine."""
    host, _, port = str(_superlinks(config)[CONNECTION]["address"]).rpartition(":")
    try:
        socket.create_connection((host, int(port)), SECONDS_TO_CONNECT).close()
    except OSError:
        raise CloveError(
            f"no server runs in {where} any more: start it with `clove flower up "
            f"{shlex.quote(where)}`, and give this command again when its nodes are up"
        ) from None


def _servers(file: Path) -> Sequence[str]:
    """Return the names of servers in a file of Flower's, or those it writes there at first."""
    try:
        known = _superlinks(file)
    except FileNotFoundError:
        return FLOWERS_OWN
    return [name for name, one in known.items() if isinstance(one, dict)]


def _superlinks(file: Path) -> Mapping[str, Any]:
    """Return what a file of Flower's says of servers."""
    try:
        known: Mapping[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CloveError(f"{file} cannot be read: {error}") from None
    found: Mapping[str, Any] = known.get("superlink", {})
    return found


@contextmanager
def simulated(folder: Path) -> Iterator[Path]:
    """Start a server that simulates its nodes; give the home in which `flwr` finds it.

    `flwr run` by itself would start one too, and leave it running.
    """
    port = free_port()
    address, home = f"{LOOPBACK}:{port}", home_in(folder)
    write_connection(home, address, None)
    command = [
        flower_command("flower-superlink"),
        *("--insecure", "--simulation", "--host", LOOPBACK, "--port", str(port)),
    ]
    with Processes(folder / "logs") as processes:
        environment = {**RAY_CALM, **RAY_BLIND, **flower_environment(home), **RAY_ALONE}
        processes.start("superlink", command, environment)
        processes.wait(lambda: answers(f"http://{address}/health"), "the server was up")
        yield home


def simulated_nodes(
    count: int, app: str | Path, config: Mapping[str, Plain] | None = None
) -> dict[str, Plain]:
    """Return a simulation's settings for this many nodes, one core each.

    All are there from the start: a run that needs more of them would wait in vain.
    """
    if count < 1:
        raise CloveError(f"nodes must be 1 or more, not {count}")
    least = {**_known(Path(app).absolute()), **(config or {})}.get(LEAST, count)
    if isinstance(least, int) and least > count:
        raise CloveError(
            f"{count} nodes are simulated, and the run waits for {LEAST} = {least}: give "
            f"`--nodes {least}`, or `--set {LEAST}={count}`"
        )
    return {"num-supernodes": count, "client-resources-num-cpus": 1}


@contextmanager
def _stopped_if_interrupted(run: str, named: Sequence[str], home: Path | None) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        try:
            flwr("stop", run, *named, home=home)
        except (KeyboardInterrupt, CloveError):
            if named:  # else its server is ours, and ends with us
                raise CloveError(
                    f"interrupted, but run {run} could not be stopped and may go on: "
                    f"{_how(run, named, home)}"
                ) from None
        raise
