"""The paper's experiments as data, run by one command, with the paper's own figures beside ours."""

from clove.paper.experiment import EXPERIMENTS, Cell, Experiment, find_experiments
from clove.paper.published import published
from clove.paper.results import Results

__all__ = ["EXPERIMENTS", "Cell", "Experiment", "Results", "find_experiments", "published"]
