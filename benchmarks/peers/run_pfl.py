"""FedAvg in pfl-research: its simulated backend, its model, its algorithm, as its docs use them.

    python run_pfl.py JOB OUT THREADS
    python -m torch.distributed.run --standalone --nproc_per_node 2 run_pfl.py JOB OUT 1

The second form shares the users out over processes, which is how pfl uses more than one core.
Its own evaluation, before and after training on every user, is on in the first round only.
"""

from __future__ import annotations

import copy
import os
import sys
import time
from importlib.metadata import version

import numpy as np
import torch
from job import read_job, report
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import nn


class WithLoss(nn.Module):
    """The network with the two methods that pfl asks for."""

    def __init__(self, network, job):
        super().__init__()
        self.network, self.job = network, job

    def loss(self, x, y, eval=False):
        self.train(not eval)
        return self.job.loss(self.network(x), x, y)

    @torch.no_grad()
    def metrics(self, x, y, eval=True):
        return {"loss": Weighted(self.loss(x, y, eval=True).item() * len(x), len(x))}


class Clock(TrainingProcessCallback):
    """Notes when every round ends."""

    def __init__(self):
        self.ends = []

    def on_train_begin(self, *, model):
        self.ends.append(time.perf_counter())
        return Metrics()

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        self.ends.append(time.perf_counter())
        return False, Metrics()


def main(path: str, out: str, threads: str) -> None:
    torch.set_num_threads(int(threads))
    np.random.seed(0)  # all processes must draw the same users
    job = read_job(path)
    users = list(range(len(job.train)))
    data = FederatedDataset(
        lambda user: PyTorchTensorDataset(job.train[user], user_id=str(user)),
        get_user_sampler("minimize_reuse", users),
    )
    network = WithLoss(copy.deepcopy(job.network), job)
    model = PyTorchModel(network, job.make_optimizer, torch.optim.SGD(network.parameters(), lr=1.0))
    clock = Clock()
    FederatedAveraging().run(
        backend=SimulatedBackend(data, data, [WeightByDatapoints()]),
        model=model,
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=job.rounds,
            evaluation_frequency=job.rounds + 1,
            train_cohort_size=len(users),
            val_cohort_size=0,
        ),
        model_train_params=NNTrainHyperParams(
            local_batch_size=job.batch_size,
            local_num_epochs=1,
            local_learning_rate=job.learning_rate,
        ),
        model_eval_params=NNEvalHyperParams(local_batch_size=500),
        callbacks=[clock],
        send_metrics_to_platform=False,
    )
    if os.environ.get("RANK", "0") == "0":
        report(out, clock.ends, job.test_loss(network.network), pfl=version("pfl"))
    if torch.distributed.is_initialized():
        torch.distributed.barrier()  # whoever leaves first aborts the others
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
