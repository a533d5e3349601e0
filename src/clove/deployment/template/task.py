"""What is learned. Both halves know it, so that they speak of the same network."""

import clove
from torch import nn


class Network(nn.Sequential):
    """Replace this by your own: any torch module that is made without arguments."""

    def __init__(self) -> None:
        super().__init__(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


task = clove.classification(Network)
