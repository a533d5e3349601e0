"""The networks of the zoo, and one's own by name."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from clove.data import ClientData
from clove.errors import CloveError
from clove.federation import LocalTraining, Losses, Simulation, Train
from clove.tasks import MODELS, Task, build_model, classification, named_task, reconstruction
from tests.federation.worlds import assert_same_models, models_for, on_both, some_clients

TABLE = Path(__file__).resolve().parents[2] / "docs" / "models.md"

# What each network was made for: shape of a sample, outputs, parameters.
HOME: dict[str, tuple[tuple[int, ...], int, int]] = {
    "mlp": ((1, 8, 8), 10, 64 * 64 + 64 + 64 * 10 + 10),
    "cnn": ((1, 28, 28), 10, 5_142),
    "cifar-cnn": ((3, 32, 32), 10, 4_181_002),
    "text-cnn": ((100,), 4, 3_321_504),
    "amazon-mlp": ((5000,), 2, 5_551_802),
    "autoencoder": ((1, 28, 28), 1, 2_000_964),
    "conv-autoencoder": ((3, 32, 32), 1, 712_835),
    "linear": ((20,), 1, 20),
}
REBUILDS = ("autoencoder", "conv-autoencoder")
DROPPING = ("cifar-cnn", "text-cnn")


def size(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def samples(name: str, number: int, shape: tuple[int, ...]) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    if name == "text-cnn":
        return torch.randint(20_000, (number, *shape), generator=generator)
    return torch.randn(number, *shape, generator=generator)


@pytest.mark.parametrize("name", MODELS)
def test_networks_have_the_papers_sizes(name: str) -> None:
    inputs, outputs, parameters = HOME[name]
    assert size(build_model(name, inputs, outputs)) == parameters


def test_sizes_follow_the_data() -> None:
    assert size(build_model("cnn", (1, 28, 28), 62)) == 18_506
    assert size(build_model("autoencoder", (784,), 1)) == 2_000_964


@pytest.mark.parametrize("name", MODELS)
def test_networks_give_what_they_were_made_for(name: str) -> None:
    inputs, outputs, _ = HOME[name]
    made = build_model(name, inputs, outputs)(samples(name, 3, inputs))
    assert made.shape == (3, int(np.prod(inputs)) if name in REBUILDS else outputs)


def multiply_adds(name: str) -> int:
    """Count multiply-adds for one sample; torch counts each as two operations."""
    inputs, outputs, _ = HOME[name]
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        build_model(name, inputs, outputs).eval()(samples(name, 1, inputs))
    return counter.get_total_flops() // 2


def test_the_table_in_the_documents_is_right() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \|.*\| ([\d,]+) \| ([\d,]+) \|$", TABLE.read_text(), re.M)
    shown = {name: (parameters, count) for name, parameters, count in rows}
    assert shown == {name: (f"{HOME[name][2]:,}", f"{multiply_adds(name):,}") for name in MODELS}


@pytest.mark.parametrize("name", [n for n in MODELS if n not in ("text-cnn", "conv-autoencoder")])
@settings(deadline=None, max_examples=10)
@given(
    channels=st.integers(1, 3),
    height=st.integers(16, 24),
    width=st.integers(16, 24),
    outputs=st.integers(1, 5),
)
def test_networks_are_made_to_measure(name, channels, height, width, outputs):
    shape = (channels, height, width)
    given_back = build_model(name, shape, outputs)(torch.randn(2, *shape))
    numbers = channels * height * width
    assert given_back.shape == (2, numbers if name == "autoencoder" else outputs)


@pytest.mark.parametrize("name", ["cnn", "cifar-cnn"])
@pytest.mark.parametrize("shape", [(784,), (28, 28), (1, 15, 28), (1, 28, 15)])
def test_convolutions_are_for_images_they_can_look_at(name, shape):
    with pytest.raises(CloveError, match=rf"'{name}' needs images of at least 16×16 as"):
        build_model(name, shape, 10)


@pytest.mark.parametrize(("shape", "words"), [((3, 4, 8), "at least 8×8"), ((3, 28, 32), "by 8")])
def test_the_convolutional_autoencoder_halves_its_sides_three_times(shape, words):
    with pytest.raises(CloveError, match=words):
        build_model("conv-autoencoder", shape, 1)


@pytest.mark.parametrize("shape", [(4,), (10, 10)])
def test_texts_are_rows_of_words(shape):
    with pytest.raises(CloveError, match="texts of at least five word numbers"):
        build_model("text-cnn", shape, 4)


def test_an_autoencoder_gives_numbers_between_zero_and_one():
    made = build_model("autoencoder", (16,), 1)(100 * torch.randn(8, 16))
    assert 0 <= made.min() < made.max() <= 1


def test_a_convolutional_autoencoder_gives_numbers_between_minus_one_and_one():
    made = build_model("conv-autoencoder", (3, 8, 8), 1)(100 * torch.randn(8, 3, 8, 8))
    assert -1 <= made.min() < 0 < made.max() <= 1


def test_padding_says_nothing():
    network = build_model("text-cnn", (6,), 4)
    assert not network.words.weight[0].any()


def test_a_linear_model_starts_as_random_unit_vectors():
    weight = build_model("linear", (5, 4), 3).weight
    torch.testing.assert_close(weight.norm(dim=1), torch.ones(3))
    assert not torch.allclose(weight[0], weight[1])


def test_a_linear_model_is_a_scalar_product():
    network = build_model("linear", (2, 2), 1)
    x = torch.randn(3, 2, 2)
    torch.testing.assert_close(network(x)[:, 0], x.flatten(1) @ network.weight[0])


def test_an_unknown_model_is_refused_with_the_nearest_name():
    with pytest.raises(CloveError, match="unknown model 'cnnn': did you mean 'cnn'"):
        build_model("cnnn", (1, 28, 28), 10)


# ---------------------------------------------------------------------------------------- engines

# Smaller than what they were made for, where they can be.
SMALL = {"cnn": (1, 16, 16), "cifar-cnn": (1, 16, 16), "text-cnn": (12,), "amazon-mlp": (30,)}
SMALL |= {"autoencoder": (1, 4, 4), "conv-autoencoder": (1, 8, 8)}


def learners(name: str) -> tuple[Task, list[ClientData]]:
    """Return the task a network is for, and three clients with few samples each."""
    shape = SMALL.get(name, HOME[name][0])
    kind = "reconstruction" if name in REBUILDS else "classification"
    kind = "regression" if name == "linear" else kind
    classes = {"reconstruction": 0, "regression": 1, "classification": 2}[kind]
    clients = some_clients((5, 9, 4), shape, classes)
    if name == "text-cnn":
        words = [samples(name, len(client.train[0]), shape).numpy() for client in clients]
        clients = [
            ClientData((x, client.train[1]), (x, client.train[1]))
            for x, client in zip(words, clients, strict=True)
        ]
    return named_task(kind, name).for_data(shape, classes), clients


def one_round(engine: Simulation) -> Any:
    everyone, start = np.arange(3), np.array([0, 1, 0])
    models = models_for(engine)
    engine.begin_round(1)
    losses = engine.answer(Losses(models, everyone)).losses
    # Plain steps: Adam's divide rounding errors of gradients that are zero by rights.
    training = LocalTraining("sgd", learning_rate=0.01, batch_size=4)
    trained = engine.answer(Train(models, start, everyone, training)).models
    return losses, trained, {name: models[name][start] for name in models}


@pytest.mark.parametrize("name", MODELS)
def test_each_network_learns_on_both_engines_and_they_agree(name: str) -> None:
    task, clients = learners(name)
    alone, together = on_both(one_round, clients, task, dtype=torch.float64)
    np.testing.assert_allclose(together[0], alone[0], rtol=1e-8)
    if name not in DROPPING:
        assert_same_models(together[1], alone[1])
    for _, trained, before in (alone, together):
        assert any(not torch.equal(trained[one], before[one]) for one in before)
        assert all(torch.isfinite(tensor).all() for tensor in trained.values())


# ----------------------------------------------------------------------------------- one's own


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Put a module with networks and a loss into the working directory; return its name."""
    name = f"networks_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(
        """
from torch import nn

class Whole(nn.Module):
    pass

class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(6, 4))

def made_to_measure(inputs, outputs, hidden=3):
    return nn.Sequential(nn.Linear(inputs[0], hidden), nn.Linear(hidden, outputs))

def asks_too_much(a, b, c):
    pass

def gives_words():
    return "a network"

def doubled(outputs, targets):
    return 2 * nn.functional.cross_entropy(outputs, targets, reduction="none")

number = 3
"""
    )
    monkeypatch.chdir(tmp_path)
    yield name
    sys.modules.pop(name, None)


def test_a_network_of_ones_own_is_made_by_its_import_name(mine: str) -> None:
    assert build_model(f"{mine}:Net", (2, 3), 4)(torch.zeros(5, 2, 3)).shape == (5, 4)
    assert type(build_model(f"{mine}:Whole", (2, 3), 4)).__name__ == "Whole"
    assert build_model("torch.nn:Identity", (2,), 2)(torch.zeros(1)) == 0


def test_a_factory_with_two_arguments_gets_shape_and_outputs(mine: str) -> None:
    network = build_model(f"{mine}:made_to_measure", (7,), 2)
    assert network(torch.zeros(5, 7)).shape == (5, 2)


def test_the_working_directory_is_not_left_on_the_path(mine: str) -> None:
    before = list(sys.path)
    build_model(f"{mine}:Net", (6,), 4)
    assert sys.path == before


def test_a_task_may_have_a_loss_of_ones_own(mine: str) -> None:
    logits, targets = torch.randn(3, 2), torch.tensor([0, 1, 1])
    doubled = named_task("classification", loss=f"{mine}:doubled").loss(logits, targets)
    torch.testing.assert_close(doubled, 2 * classification().loss(logits, targets))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no_such_module:Net", "cannot be imported: No module named 'no_such_module'"),
        ("{}:Nett", "has no attribute 'Nett'. Write package.module:name, and mind the folder"),
        (":Net", "cannot be imported"),
        ("{}:", "cannot be imported"),
        ("{}:number", "is not a function or a class, but int"),
        ("{}:asks_too_much", "needs 3 arguments: a factory takes the shape of a sample"),
    ],
)
def test_a_name_that_makes_no_network_is_refused(mine: str, name: str, said: str) -> None:
    with pytest.raises(CloveError, match=re.escape(said)):
        build_model(name.format(mine), (6,), 4)


def test_a_factory_that_returns_no_network_is_refused(mine: str) -> None:
    task = reconstruction(f"{mine}:gives_words").for_data((6,), 1)
    with pytest.raises(CloveError, match=r"returned str, not a torch\.nn\.Module"):
        task.build()


def test_a_loss_that_is_not_there_is_refused(mine: str) -> None:
    with pytest.raises(CloveError, match="has no attribute 'tripled'"):
        named_task("classification", loss=f"{mine}:tripled")


def test_an_autoencoder_needs_room_for_a_code():
    with pytest.raises(CloveError, match="at least four features"):
        build_model("autoencoder", (3,), 1)
