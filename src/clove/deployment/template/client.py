"""The client's half: the data of this node."""

import clove
from clove.data import load_dataset, mix
from clove.flower import client
from flwr.app import Context
from task import task


def load_data(context: Context) -> clove.ClientData:
    """Return the data of this node, which never leave it.

    Replace this by your own: read files of this machine, and return arrays,
    `clove.ClientData(train=(x, y), test=(x_test, y_test))`. Here six clients hold digits: two have
    zeros and ones, two have twos and threes, two have fours and fives.
    """
    mixed = mix(load_dataset("digits"), "label-skew-1", seed=0, clusters=3, clients_per_cluster=2)
    return mixed.clients[int(context.node_config["partition-id"])]


app = client(task, load_data)
