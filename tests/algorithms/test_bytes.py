"""What each method sends over the network, by hand: eight bytes a number, four a parameter."""

from __future__ import annotations

import pytest

from .simulated import digits

MODEL = 4 * (64 * 64 + 64 + 64 * 10 + 10)
CLIENTS, MODELS, NUMBER = 25, 5, 8

# For each client: the model it trains, and which one that is; its model, sample count and (where
# assignments are noted) whether it is stable.
TRAIN_DOWN, TRAIN_UP = MODEL + NUMBER, MODEL + 2 * NUMBER


def bytes_by_round(algorithm, **options):
    history = digits(algorithm, **options).history
    return history["bytes_down"].tolist(), history["bytes_up"].tolist()


@pytest.mark.parametrize(
    ("algorithm", "down", "up"),
    [
        # All models come down for their losses, so none has to come down again for training.
        ("clove", MODELS * MODEL + NUMBER, MODELS * NUMBER + TRAIN_UP),
        ("ifca", MODELS * MODEL + NUMBER, MODELS * NUMBER + TRAIN_UP),
        ("fedavg", TRAIN_DOWN, MODEL + NUMBER),
        # The model a client started from, and its personal steps, cost nothing more.
        ("fedprox", TRAIN_DOWN, MODEL + NUMBER),
        ("per-fedavg", TRAIN_DOWN, MODEL + NUMBER),
        ("cfl-s", TRAIN_DOWN, MODEL + NUMBER),
        ("fesem", TRAIN_DOWN, MODEL + NUMBER),
        # A seed for the initial model with its number, and which model to train; a sample count.
        ("local", 3 * NUMBER, NUMBER),
    ],
)
def test_a_round_of_each_method(algorithm, down, up):
    assert bytes_by_round(algorithm, rounds=2) == ([CLIENTS * down] * 2, [CLIENTS * up] * 2)


CLASSES, FEATURES = 10, 64
PROTOTYPES, MEANS = 4 * CLASSES * FEATURES + CLASSES, (4 * FEATURES + NUMBER) * CLASSES


def test_prototypes_travel_instead_of_models():
    down, up = bytes_by_round("fedproto", rounds=2)
    # A seed with its number for a first model, and which model to train; its summary asks for what
    # the client keeps by then. Prototypes come with a flag for each class.
    once = 3 * NUMBER
    assert down == [CLIENTS * once, CLIENTS * (once + PROTOTYPES)]
    assert up == [CLIENTS * (MEANS + NUMBER)] * 2


def test_learning_to_blend_costs_no_second_model():
    down, up = bytes_by_round("fedala", rounds=2)
    assert down == [CLIENTS * TRAIN_DOWN, CLIENTS * (TRAIN_DOWN + NUMBER)]
    assert up == [CLIENTS * (MODEL + NUMBER), CLIENTS * (MODEL + 2 * NUMBER)]


def test_bodies_heads_and_statistics_travel_once_each():
    down, up = bytes_by_round("fedpac", rounds=2)
    kept = NUMBER  # the training of the body; summaries are of what the client keeps
    statistics = 4 * (CLASSES * FEATURES + 1)
    assert down == [CLIENTS * (TRAIN_DOWN + kept), CLIENTS * (TRAIN_DOWN + kept + PROTOTYPES)]
    assert up == [CLIENTS * (MODEL + 2 * NUMBER + statistics + MEANS)] * 2


def test_after_stability_each_client_is_sent_one_model_and_sends_no_losses():
    down, up = bytes_by_round("clove", rounds=4, early_stopping=True, stable_rounds=2)
    assert down[:2] == [CLIENTS * (MODELS * MODEL + NUMBER)] * 2
    assert up[:2] == [CLIENTS * (MODELS * NUMBER + TRAIN_UP)] * 2
    assert down[2:] == [CLIENTS * TRAIN_DOWN] * 2
    assert up[2:] == [CLIENTS * TRAIN_UP] * 2  # which model it has, the server told it before


def test_pretraining_costs_a_model_each_way_once():
    down, up = bytes_by_round("flexcfl", rounds=2)
    assert down == [CLIENTS * (MODEL + NUMBER + TRAIN_DOWN), CLIENTS * TRAIN_DOWN]
    assert up == [CLIENTS * (MODEL + NUMBER + TRAIN_UP), CLIENTS * TRAIN_UP]


def test_trained_probes_travel_once_up_and_once_down_to_everybody():
    probes = 3 * MODELS
    down, up = bytes_by_round("clove", rounds=2, probes="trained")
    # Each prober is also told which entry of its loss vector to measure on data held back.
    probing = probes * (TRAIN_DOWN + NUMBER)
    assert down[0] == probing + CLIENTS * (probes * MODEL + TRAIN_DOWN)
    assert up[0] == probes * (MODEL + NUMBER) + CLIENTS * (probes * NUMBER + TRAIN_UP)
    assert down[1] == CLIENTS * (MODELS * MODEL + NUMBER)


def test_random_probes_travel_as_a_seed_and_their_number():
    down, up = bytes_by_round("clove", rounds=2, probes="random", probe_models=30)
    assert down[0] == CLIENTS * (2 * NUMBER + TRAIN_DOWN)
    assert up[0] == CLIENTS * (30 * NUMBER + TRAIN_UP)
    assert down[1] == CLIENTS * (MODELS * MODEL + NUMBER)


def test_newcomers_after_stability_are_sent_the_saved_models_for_their_losses():
    options = {"participation": 0.4, "early_stopping": True, "stable_rounds": 1}
    result = digits("clove", rounds=2, **options)
    first, second = (
        {client for client, model in enumerate(models) if model >= 0}
        for models in result.history["assignment"]
    )
    new = len(second - first)
    assert new > 0
    assert result.history["bytes_down"][1] == 10 * TRAIN_DOWN + new * MODELS * MODEL
    # A newcomer is asked which model it has, and says none; then it sends its losses.
    assert result.history["bytes_up"][1] == 10 * TRAIN_UP + new * (1 + MODELS) * NUMBER
