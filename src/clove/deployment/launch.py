"""Running an app on a Flower server, and knowing how it ended.

`flwr run --stream` ends with 0 whatever becomes of the run; here a run that failed is an error.
"""

from __future__ import annotations

import subprocess
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from clove.deployment.commands import flower_command, flower_environment
from clove.deployment.flwr import CONFIG, CONNECTION, flwr, flwr_json, home_in, write_connection
from clove.deployment.processes import LOOPBACK, Processes, answers, free_port, guarded
from clove.errors import CloveError, unknown_name

COMPLETED = "finished:completed"
ABOUT = "pyproject.toml"
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
    number = str(flwr_json("run", *words, home=home)["run-id"])
    with _stopped_if_interrupted(number, named, home):
        # The log ends when the run does.
        log = [flower_command("flwr"), "log", number, *named, "--stream"]
        pipe, environment = subprocess.PIPE, flower_environment(home)
        with subprocess.Popen(guarded(log), env=environment, stdin=pipe) as showing:
            showing.wait()
    found = flwr_json("list", *named, "--run-id", number, home=home)["runs"][0]
    if found["status"] != COMPLETED:
        status, details = found["status"].replace(":", ", "), found["status-details"]
        raise CloveError(f"run {number} is {status}: {details or 'see the log above'}")


def _declared(app: Path, config: Mapping[str, Plain]) -> Mapping[str, Plain]:
    """Return settings of a run if the app has them all; Flower takes no others."""
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
    known = described.get("config", {})
    for name, value in config.items():
        if name not in known:
            where = f"setting in {TABLE} of {app / ABOUT}"
            problem = unknown_name(where, name, known) if known else f"there is no {where}"
            raise CloveError(
                f"{problem}. Flower takes only settings that stand there: "
                f"add `{name} = {_toml(value)}` under {TABLE}"
            )
    return config


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
    return (home, CONNECTION) if (home / CONFIG).is_file() else (None, where)


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
        processes.start("superlink", command, flower_environment(home))
        processes.wait(lambda: answers(f"http://{address}/health"), "the server was up")
        yield home


def simulated_nodes(count: int) -> dict[str, Plain]:
    """Return a simulation's settings for this many nodes, one core each."""
    if count < 1:
        raise CloveError(f"nodes must be 1 or more, not {count}")
    return {"num-supernodes": count, "client-resources-num-cpus": 1}


@contextmanager
def _stopped_if_interrupted(run: str, named: Sequence[str], home: Path | None) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        with suppress(CloveError):  # the server may be gone
            flwr("stop", run, *named, home=home)
        raise
