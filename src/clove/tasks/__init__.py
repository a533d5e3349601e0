"""What is learned: network, loss, metric, and the model zoo."""

from clove.tasks.models import MODELS, build_model
from clove.tasks.task import Task, classification, initial_parameters, reconstruction, regression

__all__ = [
    "MODELS",
    "Task",
    "build_model",
    "classification",
    "initial_parameters",
    "reconstruction",
    "regression",
]
