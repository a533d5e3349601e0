"""What a run leaves in the hands of its user."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn

import clove
from clove.errors import CloveError, CloveWarning
from clove.runs import build
from clove.runs.build import gather_clients
from tests.runs.small import QUICK, TINY, MyNet, digits_of, lasting, own_clients

SUMMARY = {
    *("algorithm", "dataset", "mixing", "seed", "rounds", "clients", "models", "accuracy"),
    *("test_loss", "ari", "first_round_ari_0.9", "stability_round", "history", "bytes_up"),
    *("bytes_down", "seconds", "seconds_per_round", "engine", "device"),
}


# ------------------------------------------------------------------------------------- figures


def test_figures_are_those_of_the_last_round(finished: clove.Result) -> None:
    last = finished.history.iloc[-1]
    assert finished.accuracy == last["accuracy"] > 0.8
    assert finished.test_loss == last["test_loss"]
    assert finished.ari == last["ari"] == 1.0
    assert finished.assignment.tolist() == last["assignment"]


def test_history_has_a_row_a_round_with_the_time_of_each_phase(finished: clove.Result) -> None:
    history = finished.history
    assert isinstance(history, pd.DataFrame)
    assert history["round"].tolist() == list(range(1, 9))
    assert history.columns.is_unique
    phases = history[["losses", "training", "evaluation", "server"]]
    assert np.allclose(phases.sum(axis=1), history["seconds"])


def test_the_summary_has_all_the_command_line_promises(finished: clove.Result) -> None:
    summary = finished.summary()
    assert summary.keys() >= SUMMARY
    assert (summary["rounds"], summary["clients"], summary["models"]) == (8, 25, 5)
    assert (summary["first_round_ari_0.9"], summary["stability_round"]) == (1, 3)
    assert [record["round"] for record in summary["history"]] == list(range(1, 9))
    assert summary["bytes_up"] == finished.history["bytes_up"].sum()
    assert summary["seconds_per_round"] == pytest.approx(summary["seconds"] / 8)
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary


def test_scores_of_clients_average_to_the_accuracy(finished: clove.Result) -> None:
    scores = finished.client_scores
    assert scores["accuracy"].mean() == pytest.approx(finished.accuracy)
    assert scores["loss"].mean() == pytest.approx(finished.test_loss)
    assert scores["model"].tolist() == finished.assignment.tolist()
    assert scores["group"].tolist() == np.repeat(range(5), 5).tolist()


def test_a_result_says_in_a_line_what_it_is(finished: clove.Result) -> None:
    words = repr(finished)
    assert words.startswith("<clove on digits, label-skew-1: accuracy 0.")
    assert words.endswith(f"ARI 1.00 after 8 rounds, in {finished.folder}>")
    autoencoder = clove.run(**TINY, task="reconstruction", algorithm="fedavg")
    assert repr(autoencoder).startswith("<fedavg on digits, label-skew-1: test loss 0.")
    assert repr(autoencoder).endswith("after 2 rounds>")


def test_loss_vectors_are_those_of_the_last_round_unless_told(finished: clove.Result) -> None:
    vectors = finished.loss_vectors()
    assert vectors.losses.shape == (25, 5)
    assert vectors.clients.tolist() == list(range(25))
    assert (finished.loss_vectors(8).losses == vectors.losses).all()
    assert (finished.loss_vectors(1).losses != vectors.losses).any()
    with pytest.raises(CloveError, match=r"round 9 had no loss vectors; rounds that had: \[1, 2"):
        finished.loss_vectors(9)


def test_a_method_without_loss_vectors_says_so() -> None:
    with pytest.raises(CloveError, match="fedavg does not ask for loss vectors"):
        clove.run(**TINY, algorithm="fedavg").loss_vectors()


@pytest.mark.usefixtures("drawn")
@pytest.mark.parametrize("algorithm", ["clove", "local"])
def test_a_plot_is_a_figure(algorithm: str) -> None:
    figure = clove.run(**TINY, algorithm=algorithm).plot()
    assert isinstance(figure, Figure)
    assert len(figure.axes) == (3 if algorithm == "clove" else 2)


# -------------------------------------------------------------------------------------- models


def accuracy_by_hand(result: clove.Result, models: list[nn.Module]) -> float:
    """Apply each client's model to its own test data."""
    found = []
    with torch.no_grad():
        for client, model in zip(gather_clients(result.settings).clients, models, strict=True):
            assert client.test is not None
            x, y = client.test
            right = model(torch.as_tensor(x)).argmax(1).numpy() == y
            found.append(right.mean())
    return float(np.mean(found))


def test_models_are_modules_that_do_as_well_in_the_users_hands(finished: clove.Result) -> None:
    models = [finished.model(int(index)) for index in finished.assignment]
    assert all(isinstance(model, nn.Module) and not model.training for model in models)
    assert accuracy_by_hand(finished, models) == pytest.approx(finished.accuracy)


def test_a_client_that_trains_alone_has_a_model_of_its_own() -> None:
    result = clove.run(**TINY, algorithm="local")
    models = [result.model(client) for client in range(4)]
    assert accuracy_by_hand(result, models) == pytest.approx(result.accuracy)


def test_a_client_that_never_took_part_has_none() -> None:
    result = clove.run(**{**TINY, "rounds": 1}, algorithm="local", participation=0.5)
    absent = int(np.flatnonzero(result.assignment < 0)[0])
    assert set(result.client_scores["client"]) == set(np.flatnonzero(result.assignment >= 0))
    with pytest.raises(CloveError, match=f"client {absent} never took part: it has no model"):
        result.model(absent)


@pytest.mark.parametrize("index", [-1, 5, 100])
def test_a_model_that_is_not_there_is_refused(finished: clove.Result, index: int) -> None:
    with pytest.raises(CloveError, match=f"there is no model {index}: this run has 5, from 0"):
        finished.model(index)


# ----------------------------------------------------------------------------------- newcomers


@pytest.mark.parametrize("loaded", [False, True])
def test_a_newcomer_gets_the_model_of_its_group(finished: clove.Result, loaded: bool) -> None:
    assert finished.folder is not None
    result = clove.load(finished.folder) if loaded else finished
    for group in range(5):
        newcomer = result.assign(*digits_of((2 * group, 2 * group + 1)))
        assert isinstance(newcomer, clove.Newcomer)
        assert newcomer.model == result.assignment[5 * group]
        assert newcomer.distances.shape == (5,)
        assert newcomer.distances.argmin() == newcomer.model
        assert 0.2 < newcomer.sure <= 1


def test_a_newcomer_between_two_groups_is_less_sure(finished: clove.Result) -> None:
    clear, unclear = (finished.assign(*digits_of(classes)) for classes in ((0, 1), (0, 1, 2, 3)))
    assert unclear.sure < clear.sure


def test_every_model_is_measured_on_the_newcomers_data(finished: clove.Result) -> None:
    x, y = digits_of((0, 1))
    found = finished.assign(x, y)
    assert found.accuracy is not None
    with torch.no_grad():
        outputs = [finished.model(number)(torch.as_tensor(x)) for number in range(5)]
    right = [float((one.argmax(1).numpy() == y).mean()) for one in outputs]
    losses = [float(nn.functional.cross_entropy(one, torch.as_tensor(y))) for one in outputs]
    assert found.accuracy.tolist() == pytest.approx(right)
    assert found.loss.tolist() == pytest.approx(losses)
    assert found.accuracy.argmax() == found.loss.argmin() == found.model


def test_test_data_measure_and_do_not_decide(finished: clove.Result) -> None:
    x, y = digits_of((0, 1))
    other = digits_of((2, 3))
    found, alone = finished.assign(x, y, test=other), finished.assign(x, y)
    assert found.accuracy is not None
    assert found.distances.tolist() == alone.distances.tolist()
    assert found.model == alone.model != found.accuracy.argmax()


def test_without_right_and_wrong_a_newcomers_losses_are_compared() -> None:
    result = clove.run(**TINY, task="reconstruction")
    x, _ = digits_of((0, 1))
    found = result.assign(x)
    assert found.accuracy is None
    assert found.loss.shape == (2,)


@pytest.mark.parametrize("algorithm", ["ifca", "fedavg"])
def test_newcomers_find_their_place_in_other_methods(algorithm: str) -> None:
    result = clove.run(**{**QUICK, "rounds": 6}, learning_rate=0.01, algorithm=algorithm)
    assert result.assign(*digits_of((0, 1))).model == result.assignment[0]


def test_probes_place_newcomers_too() -> None:
    result = clove.run(**{**QUICK, "rounds": 1}, probes="random")
    assert result.assign(*digits_of((4, 5))).model == result.assignment[10]


@pytest.mark.parametrize("precision", ["fp32", "fp64"])
def test_newcomers_are_placed_in_the_precision_of_the_run(precision: str) -> None:
    result = clove.run(**TINY, precision=precision)
    assert result.assign(*digits_of((0, 1))).model == result.assignment[0]


def test_newcomers_that_cannot_be_placed_are_told_why(finished: clove.Result) -> None:
    x, y = digits_of((0, 1))
    with pytest.raises(CloveError, match=r"samples have shape \(64,\), the run's \(1, 8, 8\)"):
        finished.assign(x.reshape(-1, 64), y)
    with pytest.raises(CloveError, match=r"newcomer.* holds NaN or infinite values"):
        finished.assign(np.where(x > 0.5, np.nan, x), y)
    with pytest.raises(CloveError, match=r"x has .* points but y has"):
        finished.assign(x, y[:-1])
    with pytest.raises(CloveError, match="needs labels"):
        finished.assign(x)
    with pytest.raises(CloveError, match="local has no model to give to a newcomer"):
        clove.run(**TINY, algorithm="local").assign(x, y)


def test_nobody_can_be_placed_before_the_first_clustering() -> None:
    result = clove.run(**{**TINY, "rounds": 1}, first_round="random")
    with pytest.raises(CloveError, match="nothing has been clustered yet"):
        result.assign(*digits_of((0, 1)))


# -------------------------------------------------------------------------------------- export


def test_parameters_are_exported_as_they_are(tmp_path: Path, finished: clove.Result) -> None:
    path = finished.export(tmp_path / "two.safetensors", cluster=2)
    read, state = load_file(path), finished.model(2).state_dict()
    assert read.keys() == state.keys()
    assert all(read[name].equal(state[name]) for name in state)
    with safe_open(path, framework="pt") as file:
        about = file.metadata()
    assert (about["network"], about["task"]) == ("mlp", "classification")
    assert (about["inputs"], about["from"].split(", ")[-1]) == ("[1, 8, 8]", "model-2")


def test_a_clients_model_is_that_of_its_cluster(tmp_path: Path, finished: clove.Result) -> None:
    mine = finished.export(tmp_path / "a", client=7)
    group = finished.export(tmp_path / "b", cluster=int(finished.assignment[7]))
    one, other = load_file(mine), load_file(group)
    assert all(one[name].equal(other[name]) for name in other)


def test_a_model_of_a_clients_own_is_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = clove.run(**TINY, algorithm="local")
    path = result.export(client=3, format="torchscript")
    assert path == Path("client-3.pt")
    x = torch.rand(5, 1, 8, 8)
    torch.testing.assert_close(torch.jit.load(path)(x), result.model(3)(x))
    with pytest.raises(CloveError, match="local has a model for each client: name a client"):
        result.export(cluster=0)


def test_what_is_not_there_cannot_be_exported(finished: clove.Result) -> None:
    for wrong, said in {
        (9, None, "safetensors"): "there is no model 9: this run has 5, from 0",
        (None, 25, "safetensors"): "there is no client 25: this run has 25, from 0",
        (None, None, "safetensors"): "name either a cluster or a client",
        (1, 1, "safetensors"): "name either a cluster or a client",
        (1, None, "tensors"): "unknown format 'tensors': did you mean 'safetensors'",
    }.items():
        cluster, client, kind = wrong
        with pytest.raises(CloveError, match=said):
            finished.export(cluster=cluster, client=client, format=kind)


def test_a_model_nobody_uses_is_exported_with_a_word(tmp_path: Path) -> None:
    result = clove.run(**TINY, max_models=4, clustering="agglomerative")
    unused = int(np.flatnonzero(result.users() == 0)[0])
    with pytest.warns(CloveWarning, match=f"model {unused} has no clients and may be untrained"):
        result.export(tmp_path / "file", cluster=unused)


def test_a_network_of_ones_own_is_exported_with_or_without_it(tmp_path: Path) -> None:
    task = clove.classification(MyNet)
    run = clove.run(clients=own_clients(), task=task, models=2, rounds=1, out=tmp_path / "run")
    bare = clove.load(tmp_path / "run")
    assert load_file(bare.export(tmp_path / "a", cluster=0)).keys() == MyNet().state_dict().keys()
    with pytest.raises(CloveError, match=r"a task or a network of your own: clove\.load"):
        bare.export(tmp_path / "b", cluster=0, format="torchscript")
    named = clove.load(tmp_path / "run", network="tests.runs.small:MyNet")
    program = torch.jit.load(named.export(tmp_path / "b", cluster=0, format="torchscript"))
    x = torch.rand(3, 4)
    torch.testing.assert_close(program(x), run.model(0)(x))


# ------------------------------------------------------------------------------ saving, loading


@pytest.mark.parametrize("algorithm", ["clove", "local"])
def test_a_run_saved_later_is_the_folder_it_would_have_written(
    tmp_path: Path, algorithm: str
) -> None:
    clove.run(**TINY, algorithm=algorithm, out=tmp_path / "at once")
    result = clove.run(**TINY, algorithm=algorithm)
    assert result.folder is None
    assert result.save(tmp_path / "later") == result.folder == tmp_path / "later"
    assert lasting(tmp_path / "later") == lasting(tmp_path / "at once")


@pytest.mark.parametrize("algorithm", ["clove", "ifca", "fedavg", "local"])
def test_a_run_is_loaded_without_its_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: str
) -> None:
    result = clove.run(**TINY, algorithm=algorithm, out=tmp_path / "run")

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the data were asked for")

    monkeypatch.setattr(build, "load_dataset", refuse)
    loaded = clove.load(tmp_path / "run")
    assert loaded.summary() == result.summary()
    pd.testing.assert_frame_equal(loaded.history, result.history)
    pd.testing.assert_frame_equal(loaded.client_scores, result.client_scores)
    assert loaded.settings.flat().items() >= result.settings.flat().items()
    assert isinstance(loaded.plot(), Figure)
    here, there = loaded.model(0).state_dict(), result.model(0).state_dict()
    assert all(here[name].equal(there[name]) for name in there)


def test_a_loaded_run_is_saved_as_a_copy(tmp_path: Path, run_folder: Path) -> None:
    saved = clove.load(run_folder).save(tmp_path / "copy")
    assert lasting(saved) == lasting(run_folder)


def test_nothing_is_saved_over(tmp_path: Path, finished: clove.Result) -> None:
    assert finished.folder is not None
    with pytest.raises(CloveError, match="holds a run already"):
        clove.run(**TINY).save(finished.folder)
    with pytest.raises(CloveError, match="exists already: choose another folder"):
        clove.load(finished.folder).save(tmp_path)


def test_a_copy_that_cannot_be_written_is_named(tmp_path: Path, run_folder: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CloveError, match=r"cannot write the run folder .*copy"):
        clove.load(run_folder).save(tmp_path / "file" / "copy")


# ----------------------------------------------------------------------------------- divergence


@pytest.mark.parametrize("algorithm", ["clove", "ifca", "fedavg", "local"])
def test_a_run_that_diverges_ends_without_numbers_that_are_none(
    tmp_path: Path, algorithm: str
) -> None:
    wild = {**TINY, "optimizer": "sgd", "learning_rate": 1e30, "batch_size": 64}
    with pytest.warns(CloveWarning, match="not finite|diverged"):
        result = clove.run(**wild, algorithm=algorithm, out=tmp_path / "run")
    assert result.test_loss is None
    json.dumps(result.summary(), allow_nan=False)
    for name in ("metrics.jsonl", "summary.json"):
        text = (tmp_path / "run" / name).read_text()
        assert "NaN" not in text
        assert "Infinity" not in text
