"""The same federated work by clove and by others, in one run: seconds a round, as ratios.

    CLOVE_DATA=folder/with/fmnist/and/cifar10 python benchmarks/peers.py [--quick] [--device cuda]

Contestants: a bare PyTorch loop (loop.py), clove's engines, pfl-research and Flower's simulation;
the latter two are installed into an environment of their own (--env) and left out on a GPU. All
start from the same parameters and take turns. Writes results/peers.csv and peers.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import signal
import subprocess
import tempfile
import time
import venv
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from loop import Client, Training, rounds, scores
from origin import in_words, origin
from sklearn.metrics import adjusted_rand_score
from works import MODELS, QUICK, WITHOUT_PEERS, WORKS, Prepared, Work, client_data

import clove

HERE = Path(__file__).resolve().parent
WARM_UP, MEASURED = 1, 3
ROUNDS = WARM_UP + MEASURED
REFERENCE = "clove, auto"
PEER_LIMIT = 300  # seconds after which a peer is given up
BUSY = 0.7  # a load above which others had a part in the figures
SHARED_PINS = ("torch", "numpy", "scipy")


# ------------------------------------------------------------------------------------ contestants


@dataclass(frozen=True)
class Measured:
    """Seconds of every round, and what came out, to see that everybody did the same work."""

    seconds: list[float]
    test_loss: float
    accuracy: float | None = None
    ari: float | None = None
    note: str = ""
    versions: dict[str, str] = field(default_factory=dict)


def by_loop(prepared: Prepared, device: str, threads: int) -> Measured:
    work, groups = prepared.work, [client.group for client in prepared.clients]
    how = Training(
        getattr(torch.optim, work.optimizer),
        work.learning_rate,
        work.batch_size,
        work.reconstruct,
        device,
    )
    clients = [Client(client.train, client.test, work.batch_size) for client in prepared.clients]
    states = [{name: t.to(device) for name, t in state.items()} for state in prepared.states]
    network = prepared.network.to(device)
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    whole = work.algorithm == "clove"  # FedAvg's rounds are timed without evaluation
    done = list(rounds(network, states, clients, how, ROUNDS, evaluation=whole))
    last = done[-1]
    loss, accuracy = scores(network, last.states, clients, last.assignment, how)
    return Measured(
        [one.seconds for one in done],
        float(np.mean(loss)),
        None if work.reconstruct else float(np.mean(accuracy)),
        float(adjusted_rand_score(groups, last.assignment)) if whole else None,
    )


def by_clove(prepared: Prepared, device: str, threads: int, engine: str) -> Measured:
    work, whole = prepared.work, prepared.work.algorithm == "clove"
    result = clove.run(
        clients=prepared.clients,
        task=work.task,
        algorithm=work.algorithm,
        rounds=ROUNDS,
        seed=0,
        optimizer=work.optimizer.lower(),
        learning_rate=work.learning_rate,
        batch_size=work.batch_size,
        evaluate_every=1 if whole else ROUNDS,
        engine=engine,
        device=device,
        threads=threads,
        **({"models": MODELS} if whole else {}),
    )
    history, settings = result.history, result.settings
    seconds = history["seconds"] - (0 if whole else history["evaluation"])
    at_once = f", {settings.group_size} at once" if settings.engine == "vectorized" else ""
    chosen = f"{settings.engine}{at_once}, threads: {settings.threads}"
    return Measured(seconds.tolist(), result.test_loss, result.accuracy, result.ari, chosen)


class PeerFailed(Exception):
    """A peer could not be run; the message says why."""


def by_peer(
    prepared: Prepared,
    python: Path | PeerFailed,
    script: str,
    threads: int,
    *more: int,
    processes: int = 1,
) -> Measured:
    """Run a peer's script in the peers' environment."""
    if isinstance(python, PeerFailed):
        raise python
    with tempfile.TemporaryDirectory() as folder:
        job, out = Path(folder) / "job.pt", Path(folder) / "out.json"
        torch.save(handed_over(prepared), job)
        launch = [str(python)]
        if processes > 1:
            launch += ["-m", "torch.distributed.run", "--standalone"]
            launch += ["--nproc_per_node", str(processes)]
        arguments = [str(HERE / "peers" / script), str(job), str(out), str(threads)]
        run_to_its_end([*launch, *arguments, *map(str, more)], threads)
        return Measured(**json.loads(out.read_text(encoding="utf-8")))


def handed_over(prepared: Prepared) -> dict[str, Any]:
    """Return the work as tensors and a plain torch module, which the peers' torch can read."""

    def tensors(part: Any) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.as_tensor(part[0]), torch.as_tensor(part[1])

    work = prepared.work
    prepared.network.load_state_dict(prepared.states[0])
    return {
        "network": prepared.network,
        "train": [tensors(client.train) for client in prepared.clients],
        "test": [tensors(client.test) for client in prepared.clients],
        "optimizer": work.optimizer,
        "learning_rate": work.learning_rate,
        "batch_size": work.batch_size,
        "rounds": ROUNDS,
        "reconstruct": work.reconstruct,
    }


def run_to_its_end(command: list[str], threads: int, limit: float = PEER_LIMIT) -> None:
    """Run a command in a group of its own, so that nothing of it is left if it takes too long."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    process = subprocess.Popen(
        command,
        env=kept | {"OMP_NUM_THREADS": str(threads)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise PeerFailed(f"gave no result within {limit:.0f} s") from None
    if process.returncode:
        raise PeerFailed(reason(said)[:200] or f"status {process.returncode}")


def reason(said: str) -> str:
    """Return the line of a program's output that tells why it failed.

    That is the end of its last traceback; of several processes, the end of theirs, not of the one
    that started them, which only says that some process failed.

    >>> reason("Traceback (most recent call last):\\n  ...\\nValueError: too few\\n=====")
    'ValueError: too few'
    """
    lines = [re.sub(r"^\[rank\d+\]:\s?", "", line) for line in said.splitlines() if line.strip()]
    ends, inside = [], False
    for line in lines:
        if line.startswith("Traceback (most recent call last)"):
            inside = True
        elif inside and not line[0].isspace():
            ends.append(line)
            inside = False
    own = [line for line in ends if "ChildFailedError" not in line]
    killed = [line for line in lines if re.search(r"\bSignal \d+", line)]
    in_letters = [line for line in lines if re.search(r"\w", line)]
    return next((found[-1].strip() for found in (own, killed, in_letters) if found), "")


def peers_python(folder: Path) -> Path | PeerFailed:
    """Return the interpreter of the peers' environment, made where it is not there yet."""
    python, ready = folder / "bin" / "python", folder / "ready"
    wanted = (HERE / "peers" / "requirements.txt").read_text(encoding="utf-8") + shared_pins()
    if ready.exists() and ready.read_text(encoding="utf-8") == wanted:
        return python
    print(f"installing pfl-research and Flower into {folder}: some minutes", flush=True)
    pins = folder / "pins.txt"
    asked = ["-c", str(pins), "-r", str(HERE / "peers" / "requirements.txt")]
    try:
        venv.create(folder, with_pip=True, symlinks=os.name != "nt")
        pins.write_text(shared_pins(), encoding="utf-8")
        run_to_its_end([str(python), "-m", "pip", "install", "-q", *asked], 1, limit=1800)
    except (PeerFailed, OSError, subprocess.SubprocessError) as error:
        return PeerFailed(f"could not be installed: {error}")
    ready.write_text(wanted, encoding="utf-8")
    return python


def shared_pins() -> str:
    lines = (HERE.parent / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return "".join(f"{line}\n" for line in lines if line.partition("==")[0] in SHARED_PINS)


@dataclass(frozen=True)
class Contestant:
    """Who does the work, and what that means."""

    run: Callable[[Prepared], Measured]
    words: str
    peer: bool = False  # has FedAvg only, and takes seconds to start


def contestants(device: str, threads: int, env: Path | None) -> dict[str, Contestant]:
    on = f"{threads} threads" if threads > 1 else "one thread"
    who = {
        "loop": Contestant(
            lambda p: by_loop(p, device, threads), f"bare PyTorch loop, one client at a time, {on}"
        ),
        "loop, one thread": Contestant(lambda p: by_loop(p, device, 1), "the same, one thread"),
        "clove, sequential": Contestant(
            lambda p: by_clove(p, device, threads, "sequential"), f"one client at a time, {on}"
        ),
        "clove, vectorized": Contestant(
            lambda p: by_clove(p, device, threads, "vectorized"), f"clients as one stack, {on}"
        ),
        "clove, auto": Contestant(
            lambda p: by_clove(p, device, 0, "auto"),
            "engine, group size and threads by its own short trial",
        ),
    }
    if threads == 1 or device != "cpu":
        del who["loop, one thread"]
    if env is None or device != "cpu":
        return who
    return who | peer_contestants(threads, peers_python(env))


def peer_contestants(threads: int, python: Path | PeerFailed) -> dict[str, Contestant]:
    def peer(words: str, *given: Any, **more: Any) -> Contestant:
        return Contestant(lambda p: by_peer(p, python, *given, **more), words, True)

    pfl, flower = "run_pfl.py", "run_flower.py"
    who = {
        "pfl": peer(f"one process, threads: {threads}", pfl, threads),
        "pfl, one thread": peer("one process, one thread", pfl, 1),
        "pfl, a process a core": peer(
            f"processes of one thread: {threads}", pfl, 1, processes=threads
        ),
        "Flower, a client a core": peer(f"clients at once: {threads}", flower, 1, threads),
        "Flower, all cores a client": peer(
            f"one client at a time, threads: {threads}", flower, threads, threads
        ),
    }
    if threads == 1:
        for same in ("pfl, one thread", "pfl, a process a core", "Flower, all cores a client"):
            del who[same]
    return who


# -------------------------------------------------------------------------------------- measuring


def compete(
    works: dict[str, Prepared], who: dict[str, Contestant], repeats: int, patience: float
) -> Iterator[list[dict[str, Any]]]:
    """Let all take turns; after each, yield all that was measured so far.

    A contestant that has used up its patience on a work does not repeat it.
    """
    rows: list[dict[str, Any]] = []
    spent: dict[tuple[str, str], float] = {}
    for turn in range(repeats):
        for name, prepared in works.items():
            for title, contestant in who.items():
                if not takes_part(contestant, name) or spent.get((name, title), 0.0) > patience:
                    continue
                start = time.perf_counter()
                row = one_row(prepared, contestant)
                took = time.perf_counter() - start
                failed = np.isnan(row["seconds"])
                spent[name, title] = np.inf if failed else spent.get((name, title), 0.0) + took
                rows.append({"work": name, "contestant": title, "turn": turn, **row, "took": took})
                print(
                    f"{turn + 1}/{repeats} {name}, {title}: {row['seconds']:.3f} s a round, "
                    f"{took:.0f} s in all {row['note']}",
                    flush=True,
                )
        yield rows


def takes_part(contestant: Contestant, work: str) -> bool:
    return not contestant.peer or (WORKS[work].algorithm == "fedavg" and work not in WITHOUT_PEERS)


def one_row(prepared: Prepared, contestant: Contestant) -> dict[str, Any]:
    threads = torch.get_num_threads()
    try:
        found = contestant.run(prepared)
    except (PeerFailed, OSError, subprocess.SubprocessError) as error:
        return {"seconds": np.nan, "note": f"did not run: {without_paths(str(error))}"}
    finally:
        torch.set_num_threads(threads)
    measured = found.seconds[WARM_UP:]
    return {
        "seconds": float(np.median(measured)),
        "least": min(measured),
        "most": max(measured),
        "rounds": len(measured),
        "first_round": found.seconds[0],
        "test_loss": found.test_loss,
        "accuracy": found.accuracy,
        "ari": found.ari,
        "note": found.note,
        "versions": ", ".join(f"{name} {number}" for name, number in found.versions.items()),
    }


def without_paths(text: str) -> str:
    """Return a message with file names but not the folders they are in.

    >>> without_paths("no module in /home/me/x.py")
    'no module in …/x.py'
    """
    return re.sub(r"(?<![\w.])(?:/[\w.+-]+)+/", "…/", text)


# ---------------------------------------------------------------------------------------- telling


def with_ratios(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Add each row's ratio to clove's auto engine on the same work in the same turn."""
    runs = pd.DataFrame(rows)
    reference = runs[runs["contestant"] == REFERENCE].set_index(["work", "turn"])["seconds"]
    usual = reference.groupby("work").median()
    runs["ratio"] = [
        one.seconds / reference.get((one.work, one.turn), usual[one.work])
        for one in runs.itertuples()
    ]
    return runs


def told(runs: pd.DataFrame, who: dict[str, Contestant], made: dict[str, str]) -> str:
    lines = [
        "# The same work by clove and by others",
        "",
        f"Made with `benchmarks/peers.py` on {made['machine']}; {made['versions']}; "
        f"{in_words(made)}. Seconds a round are medians of at least {MEASURED} rounds, the first "
        f"left out, all contestants taking turns; ratios are to `{REFERENCE}` in the same turn, "
        "so more than 1 is slower than clove. Everybody starts from the same parameters; test "
        f"losses after {ROUNDS} rounds show that the work was the same (batches are shuffled "
        "differently; pfl's are not shuffled). Start-up is not counted.",
        "",
        "CLoVE: losses of 5 models on every client's training points, clustering, one local "
        "epoch, averages by group, and every client's model on its test points. FedAvg: one "
        "local epoch and the average, without evaluation. 28×28: Adam 1e-3, batch 64. "
        "pfl-research's shape: all 50 clients every round, SGD 0.1, batch 10.",
        "",
        *(f"- **{name}**: {one.words}" for name, one in who.items()),
        "",
        *short_table(runs),
    ]
    for name, some in runs.groupby("work", sort=False):
        lines += ["", *work_table(WORKS[name], some)]
    return "\n".join(lines) + "\n"


def short_table(runs: pd.DataFrame) -> list[str]:
    """Return everybody's time by clove's, each with the settings that are best for it."""
    runs = runs.assign(by=runs["contestant"].str.partition(", ")[0].where(~is_clove(runs)))
    middle = runs.groupby(["work", "by", "contestant"], sort=False)["ratio"].median()
    best = middle.groupby(["work", "by"], sort=False).min().unstack("by")
    lines = [
        f"The best of each by `{REFERENCE}`, in short:",
        "",
        f"| | {' | '.join(best.columns)} |",
        f"| --- |{' ---: |' * len(best.columns)}",
    ]
    for name in runs["work"].unique():
        cells = (figure(value, 1, 2) or "–" for value in best.loc[name])
        lines.append(f"| {WORKS[name].title} | {' | '.join(cells)} |")
    return lines


def is_clove(runs: pd.DataFrame) -> pd.Series:
    return runs["contestant"].str.startswith("clove")


def work_table(work: Work, runs: pd.DataFrame) -> list[str]:
    clients, words = client_data(work.data)
    network = work.task.for_data(clients[0].train[0].shape[1:], 10).build()
    size = sum(p.numel() for p in network.parameters())
    lines = [
        f"## {work.title} ({size:,} parameters)",
        "",
        f"{words}.",
        "",
        "| | seconds a round | ratio | rounds | test loss | accuracy % | ARI | |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for name, some in runs.groupby("contestant", sort=False):
        done = some[some["seconds"].notna()]
        if done.empty:
            lines.append(f"| {name} | – | – | – | – | – | – | {some.iloc[-1]['note']} |")
            continue
        last = done.iloc[-1]
        lines.append(
            f"| {name} | {done['seconds'].median():.3f} | {done['ratio'].median():.2f} "
            f"| {done['rounds'].sum():.0f} | {last['test_loss']:.4f} "
            f"| {figure(last['accuracy'], 100, 1)} | {figure(last['ari'], 1, 2)} "
            f"| {remark(name, some)} |"
        )
    return lines


def remark(name: str, some: pd.DataFrame) -> str:
    """Return what clove chose, or how often somebody did not get to the end."""
    failed = some[some["seconds"].isna()]
    if len(failed):
        return f"{len(failed)} of {len(some)} turns: {failed.iloc[-1]['note']}"
    return str(some.iloc[-1]["note"]) if name == REFERENCE else ""


def figure(value: float | None, times: float, digits: int) -> str:
    return "" if value is None or np.isnan(value) else f"{times * value:.{digits}f}"


def made_with(runs: pd.DataFrame, device: str, threads: int, load: float) -> dict[str, str]:
    machine = f"{platform.machine()}, {os.cpu_count()} cores, threads: {threads}"
    if device != "cpu":
        machine = f"{torch.cuda.get_device_name(device)}, {machine}"
    if load > BUSY:
        machine += f", **others at work** (load {load:.1f} before the start)"
    peers = [text for text in runs["versions"].dropna().unique() if text]
    versions = [f"clove {clove.__version__}", f"torch {torch.__version__}", *peers]
    versions.append(f"Python {platform.python_version()}")
    return {"machine": machine, "versions": ", ".join(versions), **origin()}


def write(out: Path, device: str, runs: pd.DataFrame, text: str) -> None:
    name = "peers" if device == "cpu" else f"peers-{device}"
    out.mkdir(parents=True, exist_ok=True)
    runs.to_csv(out / f"{name}.csv", index=False)
    (out / f"{name}.md").write_text(text, encoding="utf-8")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--threads", type=int, default=0, help="in all; 0: as many as torch takes")
    parser.add_argument("--quick", action="store_true", help="two works, once: about two minutes")
    parser.add_argument("--works", nargs="+", choices=list(WORKS), help="only these")
    parser.add_argument("--repeats", type=int, default=3, help="turns, while patience lasts")
    parser.add_argument(
        "--patience", type=float, default=8, help="seconds after which nobody repeats a work"
    )
    parser.add_argument("--no-peers", action="store_true", help="only the loop and clove")
    parser.add_argument(
        "--env", type=Path, default=HERE / ".peers-env", help="where the peers are installed"
    )
    parser.add_argument("--out", type=Path, default=HERE / "results", help="for the result files")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    load = os.getloadavg()[0]
    threads = given.threads or torch.get_num_threads()
    torch.set_num_threads(threads)
    who = contestants(given.device, threads, None if given.no_peers else given.env.absolute())
    names = given.works or (QUICK if given.quick else list(WORKS))
    works = {name: Prepared.of(WORKS[name]) for name in names}
    with tempfile.TemporaryDirectory() as cache:
        os.environ["CLOVE_CACHE"] = cache  # so that clove's trial is of this machine as it is now
        for rows in compete(works, who, 1 if given.quick else given.repeats, given.patience):
            runs = with_ratios(rows)
            made = made_with(runs, given.device, threads, load)
            write(given.out, given.device, runs.assign(**made), told(runs, who, made))
    print(told(runs, who, made))


if __name__ == "__main__":
    main()
