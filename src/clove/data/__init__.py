"""Data sets, mixings (how clients come to differ) and one's own data as clients."""

from clove.data.card import DataCard
from clove.data.client_data import ClientData, check_clients, holdout
from clove.data.dataset import Dataset
from clove.data.datasets import (
    CARDS,
    DATASETS,
    dataset_card,
    dataset_options,
    load_dataset,
)
from clove.data.fetch import fetch_dataset
from clove.data.hugging_face import clients_from_hugging_face
from clove.data.mixings import (
    MIXINGS,
    Amounts,
    LabelCounts,
    MixedClients,
    describe,
    expected_amounts,
    find_mixing,
    mix,
    mixing_options,
)
from clove.data.own import (
    client_from_file,
    clients_from_folder,
    clients_from_path,
    clients_from_table,
    read_clients,
)
from clove.data.pooled import pool_training_data
from clove.data.status import Check, CheckReport, DataStatus, check_dataset, data_status

__all__ = [
    "CARDS",
    "DATASETS",
    "MIXINGS",
    "Amounts",
    "Check",
    "CheckReport",
    "ClientData",
    "DataCard",
    "DataStatus",
    "Dataset",
    "LabelCounts",
    "MixedClients",
    "check_clients",
    "check_dataset",
    "client_from_file",
    "clients_from_folder",
    "clients_from_hugging_face",
    "clients_from_path",
    "clients_from_table",
    "data_status",
    "dataset_card",
    "dataset_options",
    "describe",
    "expected_amounts",
    "fetch_dataset",
    "find_mixing",
    "holdout",
    "load_dataset",
    "mix",
    "mixing_options",
    "pool_training_data",
    "read_clients",
]
