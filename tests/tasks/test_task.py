from __future__ import annotations

from math import log

import pytest
import torch
from torch import nn
from torch.func import vmap

from clove.errors import CloveError
from clove.tasks import (
    TASKS,
    classification,
    initial_parameters,
    named_task,
    reconstruction,
    regression,
)

MAKERS = [classification, regression, reconstruction]


# -------------------------------------------------------------------------------------- losses


def test_cross_entropy_is_the_surprise_at_the_right_label():
    logits = torch.tensor([[0.0, 0.0], [log(3.0), 0.0]])
    losses = classification().loss(logits, torch.tensor([0, 1]))
    torch.testing.assert_close(losses, torch.tensor([log(2.0), log(4.0)]))


def test_the_largest_logit_is_the_answer():
    logits = torch.tensor([[1.0, 2.0, 0.0], [5.0, -1.0, 4.0]])
    assert classification().correct(logits, torch.tensor([1, 2])).tolist() == [True, False]


@pytest.mark.parametrize("task", [regression(), reconstruction()])
def test_squared_error_is_the_mean_over_a_samples_numbers(task):
    outputs = torch.tensor([[1.0, 2.0], [0.0, 0.0]])
    targets = torch.tensor([[1.0, 0.0], [3.0, 1.0]])
    assert task.loss(outputs, targets).tolist() == [2.0, 5.0]


def test_targets_may_have_another_shape_of_as_many_numbers():
    outputs = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    assert reconstruction().loss(outputs, torch.zeros(1, 2, 2)).tolist() == [7.5]
    column = torch.tensor([[1.0], [2.0]])
    assert regression().loss(column, torch.tensor([0.0, 0.0])).tolist() == [1.0, 4.0]
    assert regression().loss(column[:, 0], torch.zeros(2, 1)).tolist() == [1.0, 4.0]


def test_outputs_and_targets_must_be_as_many_numbers():
    with pytest.raises(CloveError, match=r"\(2, 1\), its targets \(2, 3\): they must hold as many"):
        regression().loss(torch.zeros(2, 1), torch.zeros(2, 3))


@pytest.mark.parametrize("make", MAKERS)
def test_losses_can_be_mapped_over_stacked_clients(make):
    task, outputs = make(), torch.randn(3, 5, 4)
    targets = torch.randint(4, (3, 5)) if task.correct else torch.randn(3, 5, 4)
    by_client = torch.stack([task.loss(*pair) for pair in zip(outputs, targets, strict=True)])
    torch.testing.assert_close(vmap(task.loss)(outputs, targets), by_client)


def test_tasks_with_right_answers_are_judged_by_accuracy_and_others_by_their_loss():
    assert [make().metric for make in MAKERS] == ["accuracy", "test_loss", "test_loss"]


def test_only_reconstruction_compares_with_the_sample_itself():
    assert [make().target for make in MAKERS] == ["y", "y", "x"]


# ------------------------------------------------------------------------------------ networks


@pytest.mark.parametrize("make", MAKERS)
def test_a_network_itself_is_refused(make):
    with pytest.raises(CloveError, match="pass the class or a function that makes the network"):
        make(nn.Linear(2, 2))


@pytest.mark.parametrize("network", [3, None, [nn.Linear]])
def test_what_cannot_make_a_network_is_refused(network):
    with pytest.raises(CloveError, match="must be a class, a function or a name"):
        classification(network)


def test_a_factory_must_make_a_network():
    with pytest.raises(CloveError, match="'classification' returned str, not"):
        classification(lambda: "mlp").build()


def test_a_class_or_a_function_makes_a_new_network_each_time():
    task = classification(lambda: nn.Linear(2, 2))
    assert isinstance(task.build(), nn.Linear)
    assert not torch.equal(task.build().weight, task.build().weight)
    assert isinstance(classification(nn.Identity).build(), nn.Identity)


def test_a_network_of_the_zoo_must_be_fitted_to_data_first():
    with pytest.raises(CloveError, match="'classification' has to be fitted to data first"):
        classification("mlp").build()


def test_a_network_of_the_zoo_is_made_for_the_data():
    network = classification("mlp").for_data((3, 2), 7).build()
    assert network(torch.zeros(1, 3, 2)).shape == (1, 7)


def test_a_network_of_ones_own_is_left_as_it_is():
    task = classification(nn.Identity)
    assert task.for_data((3, 2), 7) is task


# --------------------------------------------------------------------------------------- names


@pytest.mark.parametrize(("kind", "usual"), [(kind, usual) for kind, (_, usual) in TASKS.items()])
def test_tasks_are_made_by_name_with_their_usual_network(kind, usual):
    task = named_task(kind)
    assert (task.name, task.network) == (kind, usual)
    assert named_task(kind, "linear").network == "linear"


def test_unknown_names_are_refused_with_the_nearest():
    with pytest.raises(CloveError, match="unknown task 'regresion': did you mean 'regression'"):
        named_task("regresion")
    with pytest.raises(CloveError, match="unknown model 'autoencode': did you mean 'autoencoder'"):
        named_task("reconstruction", "autoencode")


# ---------------------------------------------------------------------------------- parameters


def normalising() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))


def test_initial_parameters_are_all_a_network_has():
    made = initial_parameters(classification(normalising), 0)
    assert list(made) == list(normalising().state_dict())
    assert not any(tensor.requires_grad for tensor in made.values())


def test_a_seed_means_the_same_parameters_every_time():
    first, again, other = (
        initial_parameters(classification(normalising), seed)["0.weight"] for seed in (4, 4, 5)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_making_parameters_leaves_torchs_generator_alone():
    before = torch.get_rng_state()
    initial_parameters(classification(normalising), 0)
    assert torch.equal(torch.get_rng_state(), before)
