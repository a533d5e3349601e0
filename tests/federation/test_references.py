"""Engines held against sums written out by hand in plain torch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from clove.data import ClientData
from clove.federation import (
    Evaluate,
    Gradients,
    LocalTraining,
    Losses,
    Train,
    Unseen,
)
from clove.federation import parameters as stacks
from clove.federation.batches import batch_plan, consecutive, split_by_share
from clove.tasks import regression

from .worlds import (
    ASSIGNMENT,
    ENGINES,
    SGD,
    TRAINING,
    UNEQUAL,
    assert_identical,
    assert_same_models,
    dense,
    everyone,
    models_for,
    normalised,
    some_clients,
    train_rounds,
)

SEED, ROUND = 11, 3

pytestmark = pytest.mark.parametrize("engine_type", ENGINES)


def make(engine_type, task=dense, clients=None):
    engine = engine_type(some_clients() if clients is None else clients, task, seed=SEED)
    engine.begin_round(ROUND)
    return engine


def samples(client, split="train"):
    x, y = getattr(some_clients()[client], split)
    return torch.as_tensor(x, dtype=torch.float32), torch.as_tensor(y)


def loaded(task, model):
    network = task.build()
    network.load_state_dict(dict(model))
    return network


def trained_by_hand(task, model, client, training, part=None):
    """Train a client's model step by step, the way torch's own tutorials do."""
    network = loaded(task, model).train()
    x, y = samples(client)
    rows = np.arange(len(x)) if part is None else part
    optimizer = {
        "adam": lambda: torch.optim.Adam(network.parameters(), lr=training.learning_rate),
        "sgd": lambda: torch.optim.SGD(
            network.parameters(), lr=training.learning_rate, momentum=training.momentum
        ),
    }[training.optimizer]()
    for batch in batch_plan(SEED, ROUND, client, rows, training, pairs=task is normalised):
        optimizer.zero_grad()
        F.cross_entropy(network(x[batch]), y[batch]).backward()
        optimizer.step()
    return {name: tensor.detach() for name, tensor in network.state_dict().items()}


@pytest.mark.parametrize("task", [dense, normalised], ids=["plain", "batch norm"])
@pytest.mark.parametrize(
    "training",
    [replace(TRAINING, epochs=2), LocalTraining("sgd", 0.1, batch_size=8, momentum=0.9)],
    ids=["adam", "sgd"],
)
def test_clients_train_as_a_plain_torch_loop_does(engine_type, task, training):
    engine = make(engine_type, task)
    models, cohort = models_for(engine), np.array([4, 0, 1])
    trained = engine.answer(Train(models, np.array([1, 0, 1]), cohort, training))
    for place, (client, start) in enumerate([(4, 1), (0, 0), (1, 1)]):
        expected = trained_by_hand(task, stacks.one(models, start), client, training)
        assert_same_models(stacks.one(trained.models, place), expected, 1e-5)


def test_training_on_a_share_never_sees_the_rest(engine_type):
    engine = make(engine_type)
    models = models_for(engine, 1)
    trained = engine.answer(Train(models, np.array([0]), np.array([1]), TRAINING, share=0.6))
    part, rest = split_by_share(SEED, 1, UNEQUAL[1], 0.6)
    assert (len(part), len(rest)) == (12, 8)
    expected = trained_by_hand(dense, stacks.one(models, 0), 1, TRAINING, part)
    assert_same_models(stacks.one(trained.models, 0), expected, 1e-5)


def test_answers_by_group_are_the_sample_weighted_means_of_those_by_client(engine_type):
    engine = make(engine_type)
    models, cohort = models_for(engine), everyone(engine)
    single = engine.answer(Train(models, ASSIGNMENT, cohort, TRAINING))
    grouped = engine.answer(Train(models, ASSIGNMENT, cohort, TRAINING, reduce=ASSIGNMENT))
    np.testing.assert_array_equal(grouped.weights, [7 + 3, 20 + 16 + 17])
    for name, tensor in single.models.items():
        shares = torch.tensor([7, 20, 3, 16, 17]).view(-1, *[1] * (tensor.dim() - 1)) * tensor
        by_hand = [(shares[0] + shares[2]) / 10, (shares[1] + shares[3] + shares[4]) / 53]
        torch.testing.assert_close(grouped.models[name], torch.stack(by_hand))


def test_a_group_nobody_is_in_has_no_weight(engine_type):
    engine = make(engine_type)
    groups = np.array([0, 2])
    trained = engine.answer(
        Train(models_for(engine, 3), groups, np.array([0, 1]), SGD, reduce=groups)
    )
    np.testing.assert_array_equal(trained.weights, [7, 0, 20])


def test_gradients_are_those_of_the_mean_loss_over_all_of_a_clients_samples(engine_type):
    engine = make(engine_type)
    models = models_for(engine)
    answer = engine.answer(Gradients(models, np.array([1, 0]), np.array([1, 2]), TRAINING))
    assert answer.values == frozenset()
    for place, (client, start) in enumerate([(1, 1), (2, 0)]):
        network = loaded(dense, stacks.one(models, start))
        x, y = samples(client)
        F.cross_entropy(network(x), y).backward()
        expected = {name: p.grad for name, p in network.named_parameters()}
        assert_same_models(stacks.one(answer.models, place), expected, 1e-5)


def test_running_statistics_in_a_gradient_answer_are_values(engine_type):
    engine = make(engine_type, normalised)
    answer = engine.answer(Gradients(models_for(engine), np.array([0]), np.array([1]), TRAINING))
    assert answer.values == {"1.running_mean", "1.running_var", "1.num_batches_tracked"}
    assert answer.models["1.num_batches_tracked"].tolist() == [3]


def test_an_answer_to_training_names_its_running_statistics(engine_type):
    engine = make(engine_type, normalised)
    answer = engine.answer(Train(models_for(engine), np.array([0]), np.array([1]), TRAINING))
    assert answer.values == {"1.running_mean", "1.running_var", "1.num_batches_tracked"}


def test_losses_are_the_mean_losses_of_every_model_on_every_client(engine_type):
    engine = make(engine_type)
    models, cohort = models_for(engine, 3), np.array([2, 0, 4])
    answer = engine.answer(Losses(models, cohort))
    expected = np.zeros((3, 3))
    for row, client in enumerate(cohort):
        for column in range(3):
            x, y = samples(client)
            with torch.no_grad():
                logits = loaded(dense, stacks.one(models, column)).eval()(x)
            expected[row, column] = F.cross_entropy(logits, y)
    np.testing.assert_array_equal(answer.clients, cohort)
    np.testing.assert_allclose(answer.losses, expected, rtol=1e-5)


def test_losses_by_batch_statistics_are_those_of_a_network_in_training(engine_type):
    engine = make(engine_type, normalised)
    models = train_rounds(engine, rounds=1)
    answer = engine.answer(Losses(models, everyone(engine), batch_statistics=8))
    for client, size in enumerate(UNEQUAL):
        x, y = samples(client)
        network = loaded(normalised, stacks.one(models, 1)).train()
        with torch.no_grad():
            logits = torch.cat([network(x[part]) for part in consecutive(np.arange(size), 8)])
        np.testing.assert_allclose(answer.losses[client, 1], F.cross_entropy(logits, y), rtol=1e-5)


def test_an_unseen_entry_is_measured_on_held_back_samples_and_the_others_on_all(engine_type):
    engine = make(engine_type)
    models, cohort = models_for(engine), np.array([1, 3])
    everything = engine.answer(Losses(models, cohort)).losses
    held = engine.answer(Losses(models, cohort, unseen=Unseen(np.array([1, -1]), 0.7))).losses
    x, y = samples(1)
    _, rest = split_by_share(SEED, 1, UNEQUAL[1], 0.7)
    with torch.no_grad():
        logits = loaded(dense, stacks.one(models, 1))(x[rest])
    np.testing.assert_allclose(held[0, 1], F.cross_entropy(logits, y[rest]), rtol=1e-5)
    held[0, 1] = everything[0, 1]
    np.testing.assert_allclose(held, everything, rtol=1e-6)


@pytest.mark.parametrize("split", ["train", "test"])
def test_scores_are_mean_loss_and_share_of_right_answers(engine_type, split):
    engine = make(engine_type)
    models, cohort, index = models_for(engine), np.array([4, 1]), np.array([0, 1])
    scores = engine.answer(Evaluate(models, cohort, index, split))
    for place, client in enumerate(cohort):
        x, y = samples(client, split)
        with torch.no_grad():
            logits = loaded(dense, stacks.one(models, place)).eval()(x)
        np.testing.assert_allclose(scores.loss[place], F.cross_entropy(logits, y), rtol=1e-5)
        right = (logits.argmax(1) == y).double().mean()
        np.testing.assert_allclose(scores.accuracy[place], right)


def test_clients_never_assigned_do_not_answer_an_evaluation(engine_type):
    engine = make(engine_type)
    models, cohort = models_for(engine), np.array([3, 1])
    engine.answer(Train(models, np.array([0, 1]), cohort, SGD, assigns=True))
    scores = engine.answer(Evaluate(models, everyone(engine)))
    np.testing.assert_array_equal(scores.clients, [1, 3])
    by_index = engine.answer(Evaluate(models, np.array([1, 3]), np.array([1, 0])))
    np.testing.assert_array_equal(scores.loss, by_index.loss)


def test_numbers_may_be_predicted_from_labels_of_either_shape(engine_type):
    draw = np.random.default_rng(0)
    x, weights = draw.normal(size=(12, 4)), np.array([1.0, -1.0, 2.0, 0.5])

    def models(y):
        data = ClientData((x, y), (x, y))
        engine = make(engine_type, regression().for_data((4,), 1), [data, data])
        return train_rounds(engine, SGD, np.array([0, 1]))

    assert_identical(models(x @ weights), models((x @ weights)[:, None]))


def test_questions_do_not_change_the_models_they_send(engine_type):
    engine = make(engine_type, normalised)
    models, cohort = models_for(engine), everyone(engine)
    before = {name: tensor.clone() for name, tensor in models.items()}
    for question in (
        Train(models, ASSIGNMENT, cohort, SGD),
        Train(models, ASSIGNMENT, cohort, SGD, reduce=ASSIGNMENT),
        Gradients(models, ASSIGNMENT, cohort, SGD),
        Losses(models, cohort),
        Losses(models, cohort, batch_statistics=8),
        Evaluate(models, cohort, ASSIGNMENT),
    ):
        engine.answer(question)
        assert_identical(models, before)
