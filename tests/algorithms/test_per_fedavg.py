from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from clove.algorithms import PerFedAvg
from clove.algorithms.per_fedavg import MetaLoss
from clove.data import ClientData
from clove.errors import CloveError
from clove.federation import Batch, LocalTraining, Sequential, Train, Vectorized
from clove.federation.learner import NetworkLearner
from clove.runs.settings import from_names
from clove.tasks import classification, regression
from tests.federation.worlds import dense_norm, models_for, some_clients

from .scripted import TRAINING, ScriptedClients, everybody, setup, weights
from .simulated import SEEDS, digits

THREE = everybody(3)
slope = regression(lambda: nn.Linear(1, 1, bias=False))


# --------------------------------------------------------------------------------- the meta-loss


def meta(objective: MetaLoss, x: list[float], w: float = 1.0) -> tuple[float, float]:
    """Return value and gradient at w of the meta-loss of (w x)², by hand easy to follow."""
    weight = torch.tensor([[w]], dtype=torch.float64, requires_grad=True)
    samples = torch.tensor(x, dtype=torch.float64)[:, None]
    batch = Batch(samples, torch.zeros_like(samples), torch.ones(len(x), dtype=torch.float64))
    learner = NetworkLearner(nn.Linear(1, 1, bias=False).double(), slope)
    value = objective(learner, {"weight": weight}, batch, {})
    value.backward()
    return value.item(), weight.grad.item()


def test_first_order_is_the_gradient_a_step_ahead():
    # D = {1}: the gradient at 1 is 2, so a quarter of it leads to 1/2. D' = {2}: there the loss
    # (1/2 · 2)² is 1, and its gradient 2 · 4 · 1/2 is 4.
    assert meta(MetaLoss(0.25), [1.0, 2.0]) == (1.0, 4.0)


@pytest.mark.parametrize("delta", [1e-3, 0.1])
def test_hessian_free_corrects_it_by_the_curvature(delta):
    # D'' = {3}: the second derivative is 2 · 9, so the gradient is (1 - 1/4 · 18) · 4. (A finite
    # difference of a straight line is exact.)
    value, gradient = meta(MetaLoss(0.25, "hessian-free", delta), [1.0, 2.0, 3.0])
    assert value == pytest.approx(1.0)
    assert gradient == pytest.approx(-14.0)


def test_it_comes_near_to_the_true_gradient_of_the_loss_after_a_step():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)).double()
    learner = NetworkLearner(network, classification(lambda: network))
    own = {n: p.detach().clone().requires_grad_() for n, p in network.named_parameters()}
    x, y = torch.randn(4, 3, dtype=torch.float64), torch.tensor([0, 1, 1, 0])
    # The same samples thrice: D, D' and D'' are then the same.
    batch = Batch(x.repeat_interleave(3, 0), y.repeat_interleave(3), torch.ones(12).double())
    inner = learner.loss(learner.outputs(own, x), Batch(x, y, torch.ones(4)))
    step = torch.autograd.grad(inner, list(own.values()), create_graph=True)
    ahead = {n: p - 0.3 * g for (n, p), g in zip(own.items(), step, strict=True)}
    after = learner.loss(learner.outputs(ahead, x), Batch(x, y, torch.ones(4)))
    exact = torch.autograd.grad(after, list(own.values()))

    def error(objective, batch):
        value = objective(learner, own, batch, {})
        assert value.item() == pytest.approx(after.item())
        found = torch.autograd.grad(value, list(own.values()))
        return sum((a - b).norm() for a, b in zip(found, exact, strict=True)).item()

    twice = Batch(x.repeat_interleave(2, 0), y.repeat_interleave(2), torch.ones(8).double())
    assert error(MetaLoss(0.3, "hessian-free"), batch) < 1e-6
    assert error(MetaLoss(0.3), twice) > 1e-2


@pytest.mark.parametrize("engine_type", [Sequential, Vectorized])
def test_a_local_step_moves_along_it(engine_type):
    x = np.array([[1.0], [2.0]])
    client = ClientData(train=(x, 0 * x), test=(x, 0 * x))
    engine = engine_type([client], slope, dtype=torch.float64)
    models, only = models_for(engine, 1), np.array([0])
    question = Train(models, only, only, LocalTraining("sgd", 0.1, batch_size=2), MetaLoss(0.05))
    first, second = engine.train_pool.x[engine.plans(only, question).of(0)[0], 0].tolist()
    w = models["weight"].item()
    ahead = w - 0.05 * 2 * first**2 * w
    expected = w - 0.1 * 2 * second**2 * ahead
    trained = engine.answer(question).models
    assert trained["weight"].item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("engine_type", [Sequential, Vectorized])
def test_clients_of_fewer_samples_than_parts_train_too(engine_type):
    engine = engine_type(some_clients([1, 2, 5]), classification(lambda: nn.Linear(4, 3)))
    objective = MetaLoss(0.1, "hessian-free")
    question = Train(models_for(engine, 1), THREE * 0, THREE, LocalTraining(), objective)
    assert engine.answer(question).clients.tolist() == [0, 1, 2]


@pytest.mark.parametrize("engine_type", [Sequential, Vectorized])
def test_batch_normalisation_needs_two_samples_in_each_part(engine_type):
    engine = engine_type(some_clients([5, 8, 9]), classification(dense_norm))
    question = Train(
        models_for(engine, 1), THREE * 0, THREE, LocalTraining(), MetaLoss(0.1, "hessian-free")
    )
    with pytest.raises(CloveError, match=r"client 0 .* 5 samples.*two in each of 3 parts"):
        engine.answer(question)


# ------------------------------------------------------------------------------------- the method


def test_clients_train_the_meta_loss_on_batches_of_all_parts():
    for kind, parts in (("first-order", 2), ("hessian-free", 3)):
        clients = ScriptedClients([1.0, 2.0, 6.0])
        method = PerFedAvg(setup(3), personal_learning_rate=0.3, meta_gradient=kind, delta=0.1)
        outcome = clients.play(method.round(method.begin(), THREE), Train)
        question = clients.asked[0]
        assert question.objective == MetaLoss(0.3, kind, 0.1)
        assert question.training.batch_size == parts * TRAINING.batch_size
        assert weights(outcome.state.models) == [3.0]


@pytest.mark.parametrize("alpha", [0.3, 0.0])
def test_clients_take_steps_of_their_own_before_they_are_measured(alpha):
    method = PerFedAvg(setup(3), personal_learning_rate=alpha, personal_steps=4)
    assert method.objective.alpha == (alpha or TRAINING.learning_rate)
    question = method.evaluation(method.begin(), THREE)
    assert question.adapt.optimizer == "sgd"
    assert question.adapt.steps == question.adapt.epochs == 4
    assert question.adapt.learning_rate == (alpha or TRAINING.learning_rate)
    assert question.adapt.batch_size == TRAINING.batch_size
    assert question.adapt.purpose != TRAINING.purpose
    assert question.index.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"meta_gradient": "first"}, "unknown meta_gradient 'first': did you mean 'first-order'"),
        ({"personal_learning_rate": -0.1}, "personal_learning_rate must be above zero"),
        ({"delta": -1.0}, "delta must be above zero"),
        ({"personal_steps": 0}, "personal_steps must be 1 or more"),
    ],
    ids=str,
)
def test_settings_out_of_range_are_refused(options, message):
    with pytest.raises(CloveError, match=message):
        PerFedAvg(setup(3), **options)


def test_as_large_as_the_learning_rate_can_be_said_in_a_runs_settings():
    own = from_names(algorithm="per-fedavg", personal_learning_rate=0)
    assert own.options == {"personal_learning_rate": 0.0}
    with pytest.raises(CloveError, match=r"personal_learning_rate of per-fedavg cannot be None"):
        from_names(algorithm="per-fedavg", personal_learning_rate=None)


@pytest.mark.parametrize("kind", ["first-order", "hessian-free"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_step_of_ones_own_is_worth_more_than_one_model_for_all(seed, kind):
    personal = digits("per-fedavg", seed, personal_learning_rate=0.1, meta_gradient=kind)
    assert personal.accuracy > digits("fedavg", seed).accuracy + 0.1
