"""What is learned: network, loss, metric, and the model zoo."""

from clove.tasks.models import MODELS, build_model, check_model
from clove.tasks.task import (
    TASKS,
    Task,
    classification,
    initial_parameters,
    named_task,
    reconstruction,
    regression,
)

__all__ = [
    "MODELS",
    "TASKS",
    "Task",
    "build_model",
    "check_model",
    "classification",
    "initial_parameters",
    "named_task",
    "reconstruction",
    "regression",
]
