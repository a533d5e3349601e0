"""Data sets, mixings (how clients come to differ) and one's own data as clients."""

from clove.data.client_data import ClientData, check_clients, holdout
from clove.data.dataset import Dataset
from clove.data.datasets import DATASETS, dataset_options, load_dataset
from clove.data.mixings import MIXINGS, MixedClients, mix, mixing_options

__all__ = [
    "DATASETS",
    "MIXINGS",
    "ClientData",
    "Dataset",
    "MixedClients",
    "check_clients",
    "dataset_options",
    "holdout",
    "load_dataset",
    "mix",
    "mixing_options",
]
