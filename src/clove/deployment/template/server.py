"""The server's half: its settings. It sees models and losses, never data."""

from pathlib import Path

from clove.flower import server
from task import task

app = server(Path(__file__).parent / "settings.toml", task=task)
