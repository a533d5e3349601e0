"""What a server may ask of its clients, and the engines that answer."""

from clove.federation.initial import INITIAL_MODELS, initial_models
from clove.federation.learner import check_training
from clove.federation.optimizer import OPTIMIZERS
from clove.federation.parameters import Indices, Parameters
from clove.federation.questions import (
    Answer,
    Batch,
    Evaluate,
    Extras,
    Gradients,
    Kept,
    Learner,
    LocalTraining,
    Losses,
    LossVectors,
    Objective,
    Question,
    Recall,
    Recalled,
    Scores,
    Seeded,
    Train,
    Trained,
    Unseen,
    task_loss,
)
from clove.federation.sequential import Sequential
from clove.federation.server_step import averaged, descended
from clove.federation.simulation import Simulation
from clove.federation.vectorized import Vectorized

__all__ = [
    "INITIAL_MODELS",
    "OPTIMIZERS",
    "Answer",
    "Batch",
    "Evaluate",
    "Extras",
    "Gradients",
    "Indices",
    "Kept",
    "Learner",
    "LocalTraining",
    "LossVectors",
    "Losses",
    "Objective",
    "Parameters",
    "Question",
    "Recall",
    "Recalled",
    "Scores",
    "Seeded",
    "Sequential",
    "Simulation",
    "Train",
    "Trained",
    "Unseen",
    "Vectorized",
    "averaged",
    "check_training",
    "descended",
    "initial_models",
    "task_loss",
]
