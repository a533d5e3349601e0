"""What a server may ask of its clients, and the engines that answer."""

from clove.federation.initial import INITIAL_MODELS, initial_models
from clove.federation.learner import check_training
from clove.federation.objectives import (
    Batch,
    Learner,
    Objective,
    cut,
    objective,
    prediction,
    preparation,
    projection,
    task_loss,
)
from clove.federation.optimizer import OPTIMIZERS
from clove.federation.parameters import Indices, Parameters
from clove.federation.questions import (
    Answer,
    Evaluate,
    Extras,
    Filled,
    Gradients,
    Kept,
    LocalTraining,
    Losses,
    LossVectors,
    Question,
    Recall,
    Recalled,
    Scores,
    Seeded,
    Settle,
    Summaries,
    Summary,
    Train,
    Trained,
    Unseen,
)
from clove.federation.sequential import Sequential
from clove.federation.server_step import averaged, descended
from clove.federation.simulation import Simulation
from clove.federation.summaries import class_means, label_counts, summary
from clove.federation.vectorized import Vectorized

__all__ = [
    "INITIAL_MODELS",
    "OPTIMIZERS",
    "Answer",
    "Batch",
    "Evaluate",
    "Extras",
    "Filled",
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
    "Settle",
    "Simulation",
    "Summaries",
    "Summary",
    "Train",
    "Trained",
    "Unseen",
    "Vectorized",
    "averaged",
    "check_training",
    "class_means",
    "cut",
    "descended",
    "initial_models",
    "label_counts",
    "objective",
    "prediction",
    "preparation",
    "projection",
    "summary",
    "task_loss",
]
