"""Experiment settings, the round loop, run folders, checkpoints and resume."""

from clove.runs.api import load, resume, run
from clove.runs.result import Newcomer, Result
from clove.runs.settings import Settings

__all__ = ["Newcomer", "Result", "Settings", "load", "resume", "run"]
