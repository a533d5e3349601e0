"""What a client's functions may look at and do: starts, memories, projections, preparations."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from clove.errors import CloveError
from clove.federation import (
    Extras,
    Filled,
    Kept,
    Seeded,
    Sequential,
    Settle,
    Train,
    Vectorized,
    task_loss,
)
from clove.federation import parameters as stacks

from .worlds import (
    ASSIGNMENT,
    ENGINES,
    SGD,
    UNEQUAL,
    assert_identical,
    assert_same_models,
    dense,
    everyone,
    models_for,
    on_both,
    some_clients,
    world,
)


def ask(engine, number=1, **question):
    """Ask everybody to train, in a round of its own."""
    engine.begin_round(number)
    question = {"start": ASSIGNMENT, "training": SGD, **question}
    models = question.pop("models", None) or models_for(engine)
    return engine.answer(Train(models, clients=everyone(engine), **question))


# ---------------------------------------------------------------------------------------- start


@dataclass(frozen=True)
class Pulled:
    """The loss, and a pull back to the start."""

    strength: float
    uses_start = True

    def __call__(self, learner, parameters, batch, extras):
        away = sum((p - learner.start[name]).square().sum() for name, p in parameters.items())
        return task_loss(learner, parameters, batch, extras) + self.strength * away


@pytest.mark.parametrize("name", ["mlp", "cnn with batch norm"])
def test_an_objective_can_look_at_the_model_it_was_sent(name):
    task, clients = world(name)
    found = [
        on_both(
            lambda e, s=s: ask(e, objective=Pulled(s)).models, clients, task, dtype=torch.double
        )
        for s in (0.0, 1.0)
    ]
    for alone, together in found:
        assert_same_models(together, alone)
    free, pulled = (alone for alone, _ in found)
    weight = next(iter(free))
    start = models_for(Sequential(clients, task, dtype=torch.double))[weight][ASSIGNMENT]
    assert (pulled[weight] - start).norm() < (free[weight] - start).norm()


@pytest.mark.parametrize("engine_type", ENGINES)
def test_an_objective_that_looks_at_its_start_has_to_say_so(engine_type):
    def forgetful(learner, parameters, batch, extras):
        return sum((p - learner.start[name]).sum() for name, p in parameters.items())

    with pytest.raises(CloveError, match=r"has to say so.*uses_start = True"):
        ask(engine_type(some_clients(), dense), objective=forgetful)


def test_extras_may_be_arrays_and_are_brought_to_the_networks_precision():
    def shifted(learner, parameters, batch, extras):
        outputs = learner.outputs(parameters, batch.x, batch.weight)
        return learner.loss(outputs * extras["scale"] + extras["shift"], batch)

    extras = Extras({"shift": np.arange(3.0)}, {"scale": np.linspace(0.5, 2, 5)})
    alone, together = on_both(
        lambda engine: ask(engine, objective=shifted, extras=extras).models, some_clients(), dense
    )
    assert_same_models(together, alone)
    assert alone["1.weight"].dtype == torch.float32


# --------------------------------------------------------------------------------------- losses


@pytest.mark.parametrize("size", [0, 2])
def test_the_loss_of_every_step_is_told_on_request(size):
    clients = some_clients()

    def losses(engine):
        return ask(engine, training=replace(SGD, epochs=2), report_losses=True).losses

    alone = losses(Sequential(clients, dense))
    together = losses(Vectorized(clients, dense, group_size=size))
    steps = 2 * -(-np.array(UNEQUAL) // 8)
    assert alone.shape == (5, steps.max())
    np.testing.assert_array_equal(np.isfinite(alone).sum(1), steps)
    np.testing.assert_allclose(together, alone, rtol=1e-4)
    assert ask(Vectorized(clients, dense)).losses is None


@pytest.mark.parametrize("engine_type", ENGINES)
def test_the_first_loss_is_that_of_the_start(engine_type):
    engine = engine_type(some_clients([6]), dense)
    models = models_for(engine, 1)
    training = replace(SGD, batch_size=6)
    only = np.array([0])
    engine.begin_round(1)
    trained = engine.answer(Train(models, only, only, training, report_losses=True))
    batch = engine.train_pool
    learner_loss = torch.nn.functional.cross_entropy(
        torch.func.functional_call(engine.network, stacks.one(models, 0), (batch.x,)), batch.y
    )
    np.testing.assert_allclose(trained.losses, [[learner_loss.item()]], rtol=1e-5)
    assert engine.ledger.up == trained.models["1.weight"].element_size() * 67 + 8 + 8


# ----------------------------------------------------------------------- memory: kept and read


@pytest.mark.parametrize("engine_type", ENGINES)
def test_a_client_may_keep_what_it_sends(engine_type):
    engine = engine_type(some_clients(), dense)
    answer = ask(engine, keep="model", send="all")
    assert_identical(engine.memory.kept("model", everyone(engine)), answer.models)
    head = ask(engine, keep="model", send="head").models
    assert_identical(head, {n: t for n, t in answer.models.items() if n.startswith("3")})
    assert ask(engine, keep="model").models is None
    reduced = ask(engine, keep="model", send="all", reduce=ASSIGNMENT)
    assert stacks.count(reduced.models) == 2


@pytest.mark.parametrize("engine_type", ENGINES)
def test_a_client_without_a_model_needs_to_be_told_what_to_take(engine_type):
    engine = engine_type(some_clients(), dense)
    with pytest.raises(CloveError, match=r"client 0 keeps nothing named 'own' yet"):
        ask(engine, models=Kept("own"))


@dataclass(frozen=True)
class TowardsKept:
    """The loss, and a pull to what the client keeps."""

    def __call__(self, learner, parameters, batch, extras):
        kept = learner.kept["own"]
        away = sum((p - kept[name]).square().sum() for name, p in parameters.items())
        return task_loss(learner, parameters, batch, extras) + 0.5 * away


def test_an_objective_can_look_at_what_the_client_keeps():
    def towards(engine):
        cohort = np.array([1, 3])
        engine.answer(Train(Kept("own", Seeded(3)), cohort * 0, cohort, SGD, keep="own"))
        return ask(engine, objective=TowardsKept(), reads=(Kept("own"),)).models

    alone, together = on_both(towards, some_clients(), dense, dtype=torch.double)
    assert_same_models(together, alone)
    plain = ask(Sequential(some_clients(), dense, dtype=torch.double)).models
    # Whoever keeps nothing is pulled to the model it was sent.
    pulled = ask(
        Sequential(some_clients(), dense, dtype=torch.double), objective=Pulled(0.5)
    ).models
    for client in (0, 2, 4):
        torch.testing.assert_close(alone["1.weight"][client], pulled["1.weight"][client])
    assert not torch.allclose(alone["1.weight"][1], plain["1.weight"][1])


# ---------------------------------------------------- projection, preparation, something else


@dataclass(frozen=True)
class Ball:
    """Keep the parameters together within a ball: the norm is that of one client's model."""

    radius: float

    def __call__(self, parameters):
        norm = sum(p.square().sum() for p in parameters.values()).sqrt()
        return {n: p * (self.radius / norm).clamp(max=1.0) for n, p in parameters.items()}


def test_a_projection_is_applied_after_every_step():
    def project(engine):
        return ask(engine, project=Ball(0.7), training=replace(SGD, epochs=3)).models

    alone, together = on_both(project, some_clients(), dense, dtype=torch.double)
    assert_same_models(together, alone)
    free = ask(Sequential(some_clients(), dense, dtype=torch.double)).models
    norms, larger = (
        sum(t.flatten(1).square().sum(1) for t in models.values()).sqrt()
        for models in (alone, free)
    )
    assert (norms <= 0.7 + 1e-9).all()
    assert (norms > 0.6).all()
    assert (larger > 0.8).all()


@dataclass(frozen=True)
class Between:
    """Start between the model sent and the one the client keeps."""

    share: float

    def __call__(self, sent, kept):
        return {n: t + self.share * (kept["own"][n] - t) for n, t in sent.items()}


def test_a_preparation_makes_the_start_of_what_was_sent_and_what_is_kept():
    def prepared(engine, share):
        start = Train(Kept("own", Seeded(3)), ASSIGNMENT, everyone(engine), SGD, keep="own")
        engine.answer(start)
        own = engine.memory.kept("own", everyone(engine))
        reads = (Kept("own"),)
        return own, ask(engine, prepare=Between(share), reads=reads).models

    for share in (0.0, 0.3, 1.0):
        (own, alone), (_, together) = on_both(
            lambda engine, share=share: prepared(engine, share),
            some_clients(),
            dense,
            dtype=torch.double,
        )
        assert_same_models(together, alone)
        if share == 1.0:  # as if the client had gone on from its own model
            engine = Sequential(some_clients(), dense, dtype=torch.double)
            assert_same_models(alone, ask(engine, models=own, start=np.arange(5)).models)


@pytest.mark.parametrize("engine_type", ENGINES)
def test_a_preparation_must_make_a_whole_model(engine_type):
    def half(sent, kept):
        return {name: tensor for name, tensor in sent.items() if name.startswith("3")}

    with pytest.raises(CloveError, match=r"no others: see 1\.bias, 1\.weight"):
        ask(engine_type(some_clients(), dense), prepare=half)


@dataclass(frozen=True)
class Blended:
    """The loss of a model between the one sent and the one kept, each number by its own weight."""

    def __call__(self, learner, parameters, batch, extras):
        return task_loss(
            learner, blend(learner.start, learner.kept["own"], parameters), batch, extras
        )


def blend(sent, own, weights):
    return {
        name: own[name] + (tensor - own[name]) * weights.get(name, 1.0)
        for name, tensor in sent.items()
    }


@dataclass(frozen=True)
class Clipped:
    def __call__(self, parameters):
        return {name: p.clamp(0, 1) for name, p in parameters.items()}


@dataclass(frozen=True)
class BlendedStart:
    def __call__(self, sent, kept):
        return blend(sent, kept["own"], kept["weights"])


WEIGHTS = Kept("weights", Filled(1.0, "head"))
BLENDING = {
    "objective": Blended(),
    "reads": (Kept("own"),),
    "trains": WEIGHTS,
    "keep": "weights",
    "project": Clipped(),
    "training": replace(SGD, learning_rate=5.0),
}


@pytest.mark.parametrize("name", ["mlp", "cnn with batch norm"])
def test_something_else_than_the_model_can_be_trained(name):
    """A toy of adaptive local aggregation: weights between the client's model and the sent one."""

    def rounds(engine):
        own = Train(Kept("own", Seeded(3)), ASSIGNMENT, everyone(engine), SGD, keep="own")
        engine.answer(own)
        for number in (1, 2):
            answer = ask(engine, number, **BLENDING, share=0.8, share_anew=True)
            assert answer.models is None
        weights = engine.memory.kept("weights", everyone(engine))
        trained = ask(engine, 2, prepare=BlendedStart(), reads=(Kept("own"), WEIGHTS))
        return weights, trained.models

    task, clients = world(name)
    (weights, alone), (same, together) = on_both(rounds, clients, task, dtype=torch.double)
    assert_same_models(same, weights)
    assert_same_models(together, alone)
    assert list(weights) == [n for n in alone if n.startswith(("3.", "5."))]
    for tensor in weights.values():
        assert 0 <= tensor.min() < 1
        assert tensor.max() <= 1


def test_weights_between_two_equal_models_stay_as_they_are():
    engine = Vectorized(some_clients(), dense)
    ask(engine, **BLENDING)  # nobody keeps a model: both are the one that was sent
    weights = engine.memory.kept("weights", everyone(engine))
    assert all(torch.equal(t, torch.ones_like(t)) for t in weights.values())


def test_a_fresh_share_differs_by_round_and_a_fixed_one_does_not():
    engine = Sequential(some_clients([40]), dense)

    def rows(number, anew):
        engine.begin_round(number)
        only = np.array([0])
        question = Train(models_for(engine), only, only, SGD, share=0.5, share_anew=anew)
        return set(np.concatenate(engine.plans(only, question).of(0)))

    assert rows(1, False) == rows(2, False)
    assert rows(1, True) == rows(1, True) != rows(2, True)
    assert len(rows(1, True)) == 20


# ------------------------------------------------------------------------------------- settling


def settling(engine, number=1, most=60, threshold=0.01, cohort=None):
    """Let clients train a head until it settles."""
    engine.begin_round(number)
    cohort = everyone(engine) if cohort is None else cohort
    head = Kept("head", Filled(0.0, "head"))
    settle = Settle(window=4, threshold=threshold, most=most)
    objective = HeadOnly()
    question = Train(
        models_for(engine, 1),
        cohort * 0,
        cohort,
        SGD,
        objective,
        trains=head,
        keep="head",
        settle=settle,
    )
    engine.answer(question)
    return engine.memory.kept("head", cohort)


@dataclass(frozen=True)
class HeadOnly:
    """Train a head on top of the body that was sent."""

    def __call__(self, learner, parameters, batch, extras):
        return task_loss(learner, {**learner.start, **parameters}, batch, extras)


def test_who_trains_for_the_first_time_goes_on_until_the_losses_settle(monkeypatch):
    counts = {}
    for engine_type in ENGINES:
        times = np.zeros(5, dtype=int)
        train = engine_type.train_group

        def counted(self, work, times=times, train=train):
            times[work.clients] += 1
            return train(self, work)

        monkeypatch.setattr(engine_type, "train_group", counted)
        engine = engine_type(some_clients(), dense, dtype=torch.double)
        settling(engine, cohort=np.array([0, 1, 2]))
        first = times.copy()
        counts[engine_type.__name__] = first
        assert (first[:3] >= 4).all()
        assert len(set(first[:3])) > 1  # each in its own time
        assert (first[3:] == 0).all()
        settling(engine, 2)
        assert (times[:3] == first[:3] + 1).all()  # once is enough from now on
        assert (times[3:] >= 4).all()
    np.testing.assert_array_equal(counts["Sequential"], counts["Vectorized"])


def test_where_sizes_need_preparing_few_are_used_and_nothing_else_changes(monkeypatch):
    sizes, train = [], Vectorized.train_group

    def counted(self, work):
        sizes.append(len(work.clients))
        return train(self, work)

    monkeypatch.setattr(Vectorized, "train_group", counted)
    engine, prepared = (Vectorized(some_clients(), dense, dtype=torch.double) for _ in range(2))
    expected, plainly = settling(engine), sizes[:]
    sizes.clear()
    prepared.prepares_sizes = True  # as on a GPU
    assert_same_models(settling(prepared), expected)
    assert len(sizes) == len(plainly)
    assert set(sizes) < set(plainly)


def test_engines_agree_on_what_settles():
    alone, together = on_both(settling, some_clients(), dense, dtype=torch.double)
    assert_same_models(together, alone)


@pytest.mark.parametrize("engine_type", ENGINES)
def test_settling_ends_after_so_many_times_at_the_latest(engine_type):
    engine, other = (engine_type(some_clients(), dense, dtype=torch.double) for _ in range(2))
    few = settling(engine, most=2, threshold=0.0)
    more = settling(other, most=6, threshold=0.0)
    assert not torch.allclose(few["3.weight"], more["3.weight"])
