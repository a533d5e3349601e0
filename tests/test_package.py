"""The package as a whole: quick to import, typed, and each room within its walls."""

from __future__ import annotations

import ast
import doctest
import importlib
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import clove

SOURCE = Path(clove.__file__).parent
WITH_EXAMPLES = sorted(
    ".".join(["clove", *file.relative_to(SOURCE).with_suffix("").parts]).removesuffix(".__init__")
    for file in SOURCE.rglob("*.py")
    if ">>>" in file.read_text(encoding="utf-8")
)


# ------------------------------------------------------------------------------------ the surface


def test_importing_clove_imports_nothing_heavy() -> None:
    heavy = "'torch', 'sklearn', 'scipy', 'pandas', 'numpy', 'matplotlib', 'rich', 'typer'"
    code = f"import sys, clove; print(sorted(set(sys.modules) & {{{heavy}}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("name", clove.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(clove, name) is not None
    assert name in dir(clove)


def test_the_surface_of_the_blueprint_is_public() -> None:
    promised = {"run", "load", "resume", "compare", "ClientData", "classification"}
    assert promised | {"reconstruction", "regression", "register"} <= set(clove.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'clove' has no attribute 'runn'"):
        clove.runn  # noqa: B018


def test_the_package_ships_its_types_and_the_command() -> None:
    build = tomllib.loads((SOURCE.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    assert (SOURCE / "py.typed").is_file()
    files = [
        path
        for each in build["tool"]["setuptools"]["package-data"]["clove"]
        for path in SOURCE.glob(each)
    ]
    shipped = {path for path in files if path.is_file()}
    assert SOURCE / "py.typed" in shipped
    others = {p for p in SOURCE.rglob("*") if p.is_file() and p.suffix not in (".py", ".pyc")}
    assert others <= shipped, "data files that an installation would lack"
    assert build["project"]["scripts"] == {"clove": "clove.cli:main"}


# ------------------------------------------------------------------------------ examples that hold


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_in_docstrings_hold(name: str) -> None:
    tried = doctest.testmod(importlib.import_module(name))
    assert tried.attempted > 0
    assert tried.failed == 0


# ------------------------------------------------------------------------------- the rooms' walls


def imports(file: Path) -> Iterator[str]:
    """Return the modules a file imports, wherever in it."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None
            assert node.level == 0, "imports are absolute"
            whole = node.module != "clove"
            yield from [node.module] if whole else (f"clove.{name.name}" for name in node.names)


def parts(room: str) -> set[str]:
    """Return what a room imports: other parts of clove by their names, libraries by theirs."""
    found = set()
    for file in set((SOURCE / room).rglob("*.py")) - set((SOURCE / room).glob("template/*")):
        for module in imports(file):
            top, _, rest = module.partition(".")
            found.add(f"clove.{rest.partition('.')[0]}" if top == "clove" else top)
    return found - {f"clove.{room}", *sys.stdlib_module_names}


COMMON = {"clove.errors", "clove.seeds", "clove.folders"}
WALLS = {
    "clustering": {"numpy", "scipy", "sklearn", "clove.errors"},
    # The last two only where they are installed, for Flower's partitioners.
    "data": {"numpy", "scipy", "sklearn", "pandas", "PIL", *COMMON, "datasets", "flwr_datasets"},
    "tasks": {"torch", "safetensors", "clove.errors", "clove.extras"},
    "federation": {
        *("numpy", "torch", *COMMON, "clove.clustering", "clove.data", "clove.tasks"),
        # For clients that are elsewhere, where Flower is installed.
        *("flwr", "clove.trees", "clove.__version__"),
        "triton",  # where it is installed: it comes with torch for a GPU
    },
    # Torch for local objectives, which are functions of tensors; the rest for the server's step.
    "algorithms": {
        *("numpy", "scipy", "sklearn", "threadpoolctl", "torch", *COMMON),
        *("clove.clustering", "clove.federation"),
    },
    "report": {
        *("numpy", "pandas", "matplotlib", "cycler", "sklearn", "rich"),
        # For the page, which reads run folders by itself.
        *("jinja2", "markupsafe", "safetensors", "clove.errors", "clove.folders"),
        *("clove.clustering", "clove.extras"),
        *("clove.web", "starlette", "sse_starlette", "watchfiles"),  # where they are installed
    },
    # Each library only where it is installed.
    "tracking": {"numpy", "PIL", "torch", "tensorboard", "mlflow", "clove.errors", "clove.extras"},
    "serving": {
        *("numpy", "torch", "safetensors", "clove.errors", "clove.clustering", "clove.data"),
        *("clove.federation", "clove.tasks", "clove.runs", "clove.__version__"),
        *("clove.web", "fastapi", "pydantic", "starlette"),  # where they are installed
    },
    # Flower is called by its commands; the last two only where it is installed.
    "deployment": {"clove.errors", "clove.extras", "clove.folders", "cryptography", "flwr"},
    # The last of the rooms: it knows all before it, but nobody on a network.
    "paper": {
        *("numpy", "pandas", "torch", "matplotlib", "rich", "clove.errors", "clove.folders"),
        # For section 4, which is checked without an engine.
        *("scipy", "sklearn", "threadpoolctl", "clove.clustering", "clove.seeds"),
        *("clove.data", "clove.tasks", "clove.federation", "clove.algorithms"),
        *("clove.runs", "clove.report"),
    },
}


@pytest.mark.parametrize("room", WALLS)
def test_a_room_knows_only_the_rooms_it_may(room: str) -> None:
    assert parts(room) <= WALLS[room]


def test_no_room_knows_the_command_line() -> None:
    assert "clove.cli" not in set().union(*(parts(room) for room in [*WALLS, "runs"]))


def test_an_algorithm_sees_of_a_federation_only_its_questions() -> None:
    seen = {
        module
        for file in (SOURCE / "algorithms").glob("*.py")
        for module in imports(file)
        if module.startswith("clove.federation")
    }
    assert seen <= {
        f"clove.federation.{part}"
        for part in ("objectives", "parameters", "questions", "server_step", "summaries")
    }


def test_every_walled_room_is_there() -> None:
    rooms = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").is_file()}
    assert rooms == {*WALLS, "runs"}


def test_the_public_names_of_clustering_are_there_in_any_order() -> None:
    code = (
        "import clove.clustering.estimator, clove.clustering as c; "
        "print([name for name in c.__all__ if type(getattr(c, name)) is type(c)])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_client_on_a_network_loads_no_clustering() -> None:
    code = "import sys, clove.federation, clove.data; print({'sklearn', 'scipy'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
