"""Optional packages: where one is missing, a line says what installs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from clove import extras
from clove.errors import CloveError
from tests.test_cli import fails


@pytest.mark.parametrize("package", ["fastapi", "uvicorn", "httpx", "schemathesis"])
def test_the_service_can_be_tested_here(package: str) -> None:
    pytest.importorskip(package, reason=f"{package} is missing: tests/serving is left out")


@pytest.mark.parametrize("package", ["tensorboard", "mlflow"])
def test_tracking_can_be_tested_here(package: str) -> None:
    pytest.importorskip(package, reason=f"{package} is missing: tests/tracking is left out")


def test_what_is_there_is_not_asked_for() -> None:
    extras.require("anything", "nothing", "json", "sys")


def test_what_is_missing_is_named_with_what_installs_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(CloveError, match=r"this needs no_such: pip install 'clove-fl\[that\]'"):
        extras.require("this", "that", "json", "no_such")
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    said = fails("serve", tmp_path)
    assert "clove serve needs fastapi: pip install 'clove-fl[serve]'" in said
    said = fails("run", "--track", "mlflow", "--out", tmp_path / "run")
    assert "tracking by mlflow needs mlflow: pip install 'clove-fl[tracking]'" in said


def test_ray_starts_its_dashboard_again_once_ours_is_up() -> None:
    services = pytest.importorskip("ray._private.services", reason="needs Ray")
    start = services.start_api_server
    with extras.ray_blind():
        assert services.start_api_server("whatever", port=1) == (None, None)
    assert services.start_api_server is start
