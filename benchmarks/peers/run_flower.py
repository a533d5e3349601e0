"""FedAvg in Flower's simulation runtime: its strategy, its messages, ray underneath.

    python run_flower.py JOB OUT THREADS CPUS

A client gets THREADS of the CPUS in all; as many clients run at once as fit.
"""

from __future__ import annotations

import copy
import os
import sys
import tempfile
import time
from importlib.metadata import version

# Before flwr is loaded: no telemetry, no look for updates, nothing left in the home folder.
os.environ.update(
    FLWR_TELEMETRY_ENABLED="0",
    FLWR_DISABLE_UPDATE_CHECK="1",
    FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION="1",
    RAY_USAGE_STATS_ENABLED="0",
    RAY_DISABLE_IMPORT_WARNING="1",
)
os.environ.setdefault("FLWR_HOME", tempfile.mkdtemp(prefix="flwr-"))

import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from job import read_job, report
from torch.utils.data import DataLoader, TensorDataset


def client_app(path: str, threads: int) -> ClientApp:
    app = ClientApp()

    @app.train()
    def train(message, context):
        torch.set_num_threads(threads)
        job = read_job(path)
        points = TensorDataset(*job.train[int(context.node_config["partition-id"])])
        network = copy.deepcopy(job.network)
        network.load_state_dict(message.content["arrays"].to_torch_state_dict())
        network.train()
        optimizer = job.make_optimizer(network.parameters(), lr=job.learning_rate)
        for x, y in DataLoader(points, job.batch_size, shuffle=True):
            optimizer.zero_grad()
            job.loss(network(x), x, y).backward()
            optimizer.step()
        content = RecordDict(
            {
                "arrays": ArrayRecord(network.state_dict()),
                "metrics": MetricRecord({"num-examples": len(points)}),
            }
        )
        return Message(content=content, reply_to=message)

    return app


def main(path: str, out: str, threads: str, cpus: str) -> None:
    job, server = read_job(path), ServerApp()
    ends: list[float] = []
    last: list[ArrayRecord] = []

    def note(number, arrays):
        ends.append(time.perf_counter())
        last[:] = [arrays]

    @server.main()
    def serve(grid, context):
        everyone = len(job.train)
        strategy = FedAvg(
            fraction_evaluate=0.0, min_train_nodes=everyone, min_available_nodes=everyone
        )
        strategy.start(
            grid=grid,
            initial_arrays=ArrayRecord(job.network.state_dict()),
            num_rounds=job.rounds,
            evaluate_fn=note,
        )

    run_simulation(
        server,
        client_app(path, int(threads)),
        num_supernodes=len(job.train),
        backend_config={
            "init_args": {"num_cpus": int(cpus)},
            "client_resources": {"num_cpus": int(threads), "num_gpus": 0.0},
        },
    )
    network = copy.deepcopy(job.network)
    network.load_state_dict(last[0].to_torch_state_dict())
    report(out, ends, job.test_loss(network), flwr=version("flwr"), ray=version("ray"))


if __name__ == "__main__":
    main(*sys.argv[1:])
