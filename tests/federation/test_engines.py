from __future__ import annotations

import json
from copy import deepcopy

import pytest
import torch
from torch import nn

from clove.errors import CloveError, TooLittleMemory
from clove.federation import LocalTraining, Sequential, Vectorized, engines
from clove.federation.budget import (
    fitting_group,
    free_bytes,
    is_out_of_memory,
    memory_limit,
    share_memory,
)
from clove.federation.engines import Trial, find_device, make_engine
from clove.federation.layers import KERNELS
from clove.tasks import classification

from .worlds import (
    TRAINING,
    Peeking,
    convolved,
    dense,
    everyone,
    some_clients,
    train_rounds,
)

peeking = classification(Peeking)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Give every test a cache folder of its own; return the file choices are remembered in."""
    monkeypatch.setenv("CLOVE_CACHE", str(tmp_path))
    return tmp_path / "engine-choices.json"


@pytest.fixture
def trial(monkeypatch):
    """Let trials come out as told: seconds for a client alone, and among others."""

    def outcome(alone, together):
        def seconds(engine, training, clients):
            return alone if isinstance(engine, Sequential) else together

        monkeypatch.setattr(engines, "_seconds_per_client", seconds)

    return outcome


@pytest.fixture
def no_trial(monkeypatch):
    """Fail where a trial is made."""

    def fail():
        monkeypatch.setattr(Trial, "measured", lambda *_: pytest.fail("a trial was made"))

    return fail


def make(name="auto", task=dense, training=TRAINING, **options):
    return make_engine(name, some_clients(), task, training, **options)


# ------------------------------------------------------------------------------------- by name


@pytest.mark.parametrize(("name", "kind"), [("sequential", Sequential), ("vectorized", Vectorized)])
def test_an_engine_is_made_by_name(name, kind):
    engine, choice = make(name, seed=7, dtype=torch.float64)
    assert type(engine) is kind
    assert (engine.name, choice.engine, choice.reason) == (name, name, "as asked")
    assert (engine.seed, engine.dtype) == (7, torch.float64)


def test_an_unknown_engine_is_refused_with_the_nearest_name():
    with pytest.raises(CloveError, match="unknown engine 'vectorised': did you mean 'vectorized'"):
        make("vectorised")


def test_a_group_size_asked_for_is_used():
    engine, choice = make("vectorized", group_size=3)
    assert engine.group_size == choice.group_size == 3


def test_without_one_groups_are_of_moderate_size():
    engine, choice = make("vectorized")
    assert 1 <= engine.group_size == choice.group_size <= 16


def test_fewer_clients_fit_at_once_where_each_takes_more():
    engine = Vectorized(some_clients([200] * 2), dense)
    wide, narrow = (
        fitting_group(engine, LocalTraining(batch_size=size), 1 << 30) for size in (200, 2)
    )
    assert narrow > wide > 1
    assert fitting_group(engine, TRAINING, 1) == 1


def test_a_limit_of_memory_bounds_the_group():
    tight, _ = make("vectorized", memory=1e-6)
    assert tight.group_size == 1
    assert make("vectorized", memory=0)[0].group_size > 1
    with pytest.raises(CloveError, match=r"memory must be .* above zero, or 0 for half .*, not -1"):
        make("vectorized", memory=-1)


def test_free_memory_is_what_the_machine_says():
    free = free_bytes(torch.device("cpu"))
    assert 1 << 20 < free < 1 << 50
    assert memory_limit(0, torch.device("cpu")) < free
    assert memory_limit(2, torch.device("cpu")) == 2_000_000_000


def test_processes_that_share_a_machine_have_equal_parts_of_its_memory():
    cpu = torch.device("cpu")
    whole = free_bytes(cpu)
    share_memory(4, cpu)
    try:
        assert free_bytes(cpu) < whole / 2
    finally:
        share_memory(1, cpu)
    assert free_bytes(cpu) > whole / 2


def test_a_part_of_a_gpus_memory_is_that_of_the_gpu_in_use(monkeypatch):
    """Torch wants a number, which a device called "cuda" does not have."""
    parts = {}
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (90 * 10**9, 100 * 10**9))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(
        torch.cuda,
        "set_per_process_memory_fraction",
        lambda part, device: parts.update({device: part}),
    )
    try:
        share_memory(4, torch.device("cuda"))
        share_memory(2, torch.device("cuda", 3))
        assert parts == {1: pytest.approx(95 / 400), 3: pytest.approx(97 / 200)}
    finally:
        share_memory(1, torch.device("cuda"))
    assert parts[1] == 1.0


@pytest.mark.parametrize(
    ("layer", "precision", "tried"),
    [
        (nn.Conv2d(1, 6, 3, padding=1), "tf32", True),
        (nn.Conv2d(1, 6, 3, padding=1), "bf16", True),
        (nn.Conv2d(1, 6, 3, padding=1), "fp32", False),  # no tensor cores for that
        (nn.Conv2d(1, 64, 3, stride=2, padding=1), "tf32", False),  # which tiles cannot do
        (nn.Identity(), "tf32", False),
    ],
    ids=str,
)
def test_tiles_are_tried_where_they_suit(monkeypatch, layer, precision, tried):
    monkeypatch.setattr(engines, "can_tile", lambda device, dtype: True)
    network = nn.Sequential(layer, nn.Flatten(), nn.LazyLinear(3))
    network(torch.zeros(2, 1, 4, 4))
    engine = Vectorized(some_clients(shape=(1, 4, 4)), classification(lambda: deepcopy(network)))
    engine.precision = precision
    trial = Trial(engine, TRAINING, 4, 0, None, -1, "auto")
    assert trial._worth_trying([KERNELS[-1]], 4) is tried


def test_a_device_that_fails_in_training_is_not_blamed_on_the_network():
    engine = Vectorized(some_clients(), classification(lambda: nn.Linear(4, 3)))
    for error in (torch.AcceleratorError("CUDA error"), RuntimeError("CUDNN_STATUS_INTERNAL")):
        with pytest.raises(type(error), match="CUD"), engine.said_plainly():
            raise error
    with pytest.raises(CloveError, match="cannot run this network"), engine.said_plainly():
        raise RuntimeError("no rule for this")


def test_what_a_client_takes_includes_its_layers_outputs():
    shape = (1, 28, 28)
    engine = Vectorized(some_clients([64] * 2, shape, 10), convolved)
    # 6×24² and 16×8² numbers twice (before and after ReLU), their pooled quarters, a flat, ten.
    outputs = 2 * 3456 + 864 + 2 * 1024 + 256 + 256 + 10
    per_client = (7 * 5142 + 3 * 64 * outputs) * 4
    assert fitting_group(engine, LocalTraining(batch_size=64), 1 << 30) == (1 << 30) // per_client


# ---------------------------------------------------------------------------------- by a trial


def test_auto_measures_both_engines_and_says_why_it_took_one(cache):
    engine, choice = make()
    assert engine.name == choice.engine in ("sequential", "vectorized")
    assert "as fast as" in choice.reason
    assert json.loads(cache.read_text())
    train_rounds(engine)


def test_auto_takes_the_vectorized_engine_unless_it_is_clearly_slower(trial):
    trial(alone=1.0, together=0.5)
    engine, choice = make()
    assert (type(engine), choice.reason.split(",")[0]) == (
        Vectorized,
        "2.0× as fast as sequential in a trial",
    )
    assert engine.group_size == choice.group_size == 4
    trial(alone=1.0, together=1.1)
    assert make(training=LocalTraining(batch_size=9))[1].engine == "vectorized"


def test_auto_takes_the_sequential_engine_where_it_is_clearly_faster(trial):
    trial(alone=0.5, together=1.0)
    engine, choice = make()
    assert (type(engine), choice.engine) == (Sequential, "sequential")
    assert choice.reason == "2.0× as fast as vectorized in a trial, 1 thread"
    train_rounds(engine)


def test_the_fastest_combination_of_engine_group_and_threads_wins():
    alone, together = {1: 1.0, 2: 0.8}, {(4, 1): 0.5, (16, 1): 0.4, (4, 2): 0.3, (16, 2): 0.6}
    choice = engines._fastest(alone, together)
    assert (choice.engine, choice.group_size, choice.threads) == ("vectorized", 4, 2)
    assert choice.reason == "2.7× as fast as sequential in a trial, 4 clients at once, 2 threads"
    choice = engines._fastest({1: 0.1, 2: 0.2}, together)
    assert (choice.engine, choice.threads) == ("sequential", 1)


def test_groups_too_large_for_memory_are_halved_in_a_trial(monkeypatch):
    def seconds(engine, training, clients):
        return 1.0 if isinstance(engine, Sequential) else 0.1 if clients <= 2 else float("inf")

    monkeypatch.setattr(engines, "_seconds_per_client", seconds)
    choice = make()[1]
    assert (choice.engine, choice.group_size) == ("vectorized", 2)


def test_where_no_stack_fits_in_memory_clients_train_one_by_one():
    choice = engines._fastest({1: 1.0}, {(1, 1): float("inf")})
    assert choice.engine == "sequential"
    assert choice.reason == "a stack of one client does not fit in memory"


def test_where_not_even_one_client_fits_that_is_said_and_not_remembered(trial, cache):
    trial(alone=float("inf"), together=float("inf"))
    with pytest.raises(TooLittleMemory, match="1 client at once does not fit in memory: use small"):
        make()
    assert not cache.exists()


def test_what_was_chosen_with_a_part_of_the_memory_is_not_taken_for_all_of_it(trial):
    trial(alone=0.5, together=float("inf"))
    share_memory(6, torch.device("cpu"))
    try:
        assert make()[1].engine == "sequential"
    finally:
        share_memory(1, torch.device("cpu"))
    trial(alone=1.0, together=0.1)
    assert make()[1].engine == "vectorized"


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        TooLittleMemory("does not fit"),
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_errors_that_mean_too_little_memory(error):
    assert is_out_of_memory(error)
    assert not is_out_of_memory(RuntimeError("shapes do not match"))
    assert not is_out_of_memory(CloveError("out of memory of man"))


def test_a_number_of_threads_that_was_asked_for_is_used():
    before = torch.get_num_threads()
    try:
        assert make(threads=2)[1].threads == torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_trial_leaves_nothing_behind():
    engine, _ = make()
    assert (engine.round, engine.ledger.down, engine.ledger.up) == (0, 0, 0)
    assert (engine.memory.assignments(everyone(engine)) == -1).all()


def test_a_choice_is_remembered(trial, no_trial):
    trial(alone=0.5, together=1.0)
    first = make()[1]
    no_trial()
    assert make()[1] == first


@pytest.mark.parametrize(
    "other", [{"training": LocalTraining(batch_size=9)}, {"dtype": torch.float64}], ids=str
)
def test_other_work_is_another_choice(other, trial):
    trial(alone=0.5, together=1.0)
    assert make()[1].engine == "sequential"
    trial(alone=1.0, together=0.5)
    assert make(**other)[1].engine == "vectorized"
    assert make()[1].engine == "sequential"


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe\x00", b"[]", b"null", b"3"])
def test_a_damaged_memory_is_made_anew(cache, content, no_trial):
    cache.write_bytes(content)
    first = make()[1]
    no_trial()
    assert make()[1] == first


@pytest.mark.parametrize("entry", [3, {}, {"engine": "sequential"}, None])
def test_a_damaged_entry_is_ignored(cache, entry):
    make()
    cache.write_text(json.dumps(dict.fromkeys(json.loads(cache.read_text()), entry)))
    assert "as fast as" in make()[1].reason


def test_a_cache_that_cannot_be_written_is_harmless(tmp_path, monkeypatch):
    blocked = tmp_path / "a file"
    blocked.write_text("")
    monkeypatch.setenv("CLOVE_CACHE", str(blocked / "below"))
    assert "as fast as" in make()[1].reason


# ----------------------------------------------------------------- networks that do not stack


def test_auto_falls_to_the_sequential_engine_where_a_network_cannot_be_stacked():
    engine, choice = make(task=peeking)
    assert (type(engine), choice.engine) == (Sequential, "sequential")
    assert "cannot be stacked" in choice.reason
    train_rounds(engine)


def test_the_vectorized_engine_names_the_other_where_a_network_cannot_be_stacked():
    with pytest.raises(CloveError, match=r"cannot run this network.*--engine sequential"):
        make("vectorized", peeking)


# ------------------------------------------------------------------------------------- kernels


def test_kernels_are_measured_for_each_convolution_and_can_be_said():
    clients, shape = some_clients([20] * 3, (1, 28, 28), 10), {"device": "cpu"}
    engine, choice = make_engine("vectorized", clients, convolved, TRAINING, **shape)
    assert len(choice.kernels) == len(engine.stack.convolutions) == 2
    assert set(choice.kernels) <= set(KERNELS)
    engine, choice = make_engine(
        "vectorized", clients, convolved, TRAINING, kernels="unfolded,one by one", models_at_once=3
    )
    assert [layer.kernel for layer in engine.stack.convolutions] == ["unfolded", "one by one"]
    assert engine.models_at_once == 3


@pytest.mark.parametrize(
    ("kernels", "complaint"),
    [
        ("unfoldet,grouped", "unknown kernel 'unfoldet': did you mean 'unfolded'"),
        ("grouped", "kernels names 1, but the network has 2 convolutions"),
    ],
)
def test_kernels_that_do_not_fit_are_refused(kernels, complaint):
    clients = some_clients([20] * 3, (1, 28, 28), 10)
    with pytest.raises(CloveError, match=complaint):
        make_engine("vectorized", clients, convolved, TRAINING, kernels=kernels)


# ------------------------------------------------------------------------------------- devices


def test_devices_are_found_by_name(monkeypatch):
    assert find_device("cpu") == torch.device("cpu")
    for there, expected in ((False, "cpu"), (True, "cuda")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        assert find_device("auto") == torch.device(expected)
    assert find_device("cuda:1") == torch.device("cuda", 1)


def test_an_unknown_device_is_refused_with_the_nearest_name(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for name in ("cud", "cuda:x"):
        with pytest.raises(CloveError, match=f"unknown device '{name}': did you mean 'cuda'"):
            find_device(name)


def test_a_gpu_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(CloveError, match="torch sees no GPU; use --device cpu"):
        find_device("cuda")
