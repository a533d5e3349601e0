from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from clove.data import decoded as decoded_module
from clove.data import load_dataset
from clove.data.card import Arrays, Chunks, DataCard, Form, Parts
from clove.data.decoded import cache_entries, cache_entry, decoded, verify_entry
from clove.data.sources import Source, locate
from clove.errors import CloveError, CloveWarning
from clove.folders import cache_folder

CALLS: list[Parts] = []


def read_lines(parts: Parts, times: int = 1) -> Chunks:
    """Decode a file of numbers, one a line, in two pieces."""
    CALLS.append(parts)
    values = np.array(parts["file"].read_text().split(), np.int64) * times
    yield "values", values[:2]
    yield "squares", values[:, None] ** 2
    yield "values", values[2:]


FORM = Form(words="numbers.txt", parts={"file": ("numbers.txt",)}, folders=("",), decode=read_lines)
CARD = DataCard(
    name="numbers",
    description="",
    licence="",
    citation="",
    shape=(),
    classes=None,
    forms=(FORM,),
)


@pytest.fixture
def source(no_places: Path) -> Source:
    CALLS.clear()
    (no_places / "numbers.txt").write_text("3 1 2")
    return locate(CARD, None)


def values(arrays: Arrays) -> list[int]:
    assert arrays["squares"].tolist() == [[value**2] for value in arrays["values"]]
    return arrays["values"].tolist()


def entries() -> list[str]:
    """Return everything in the folder of decoded arrays, hidden or not."""
    return sorted(path.name for path in (cache_folder() / "decoded").iterdir())


def test_the_second_time_nothing_is_decoded(source: Source) -> None:
    assert values(decoded(source)) == [3, 1, 2]
    assert values(decoded(source)) == [3, 1, 2]
    assert len(CALLS) == 1


def test_arrays_are_maps_that_cannot_be_written_to(source: Source) -> None:
    array = decoded(source)["values"]
    assert type(array) is np.ndarray
    assert isinstance(array.base, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1


def test_options_have_their_own_arrays(source: Source) -> None:
    assert values(decoded(source, times=2)) == [6, 2, 4]
    assert values(decoded(source)) == [3, 1, 2]
    assert values(decoded(source, times=2)) == [6, 2, 4]
    assert len(CALLS) == 2
    assert len(cache_entries(source)) == 2


def test_files_that_change_are_decoded_again_and_the_old_arrays_go(source: Source) -> None:
    old = decoded(source)
    source.parts["file"].write_text("5 6 7 8")
    assert values(decoded(source)) == [5, 6, 7, 8]
    assert entries() == [cache_entry(source).name]
    # Who had them mapped still has them.
    assert values(old) == [3, 1, 2]


def test_a_file_of_the_same_size_but_another_time_is_decoded_again(source: Source) -> None:
    decoded(source)
    source.parts["file"].write_text("9 8 7")
    os.utime(source.parts["file"], ns=(1, 1))
    assert values(decoded(source)) == [9, 8, 7]


def test_a_new_version_of_the_decoder_decodes_again(source: Source) -> None:
    decoded(source)
    decoded(replace(source, card=replace(CARD, version=2)))
    assert len(CALLS) == 2
    assert len(entries()) == 1


def shorten(folder: Path) -> None:
    path = folder / "values.npy"
    path.write_bytes(path.read_bytes()[:-3])


def lengthen(folder: Path) -> None:
    with (folder / "values.npy").open("ab") as file:
        file.write(b"more")


def remove(folder: Path) -> None:
    (folder / "squares.npy").unlink()


def overwrite(folder: Path) -> None:
    (folder / "values.npy").write_bytes(b"\0" * 300)


def exchange(folder: Path) -> None:
    np.save(folder / "values.npy", np.zeros((3, 2)))


def forget(folder: Path) -> None:
    (folder / "manifest.json").unlink()


def garble(folder: Path) -> None:
    (folder / "manifest.json").write_text("{]")


def misname(folder: Path) -> None:
    (folder / "manifest.json").write_text(json.dumps({"arrays": 5}))


@pytest.mark.parametrize(
    "damage", [shorten, lengthen, remove, overwrite, exchange, forget, garble, misname]
)
def test_damaged_arrays_are_made_anew(source: Source, damage: Callable[[Path], None]) -> None:
    decoded(source)
    damage(cache_entry(source))
    assert values(decoded(source)) == [3, 1, 2]
    assert len(CALLS) == 2
    assert entries() == [cache_entry(source).name]
    assert values(decoded(source)) == [3, 1, 2]
    assert len(CALLS) == 2


def test_what_is_not_ones_own_is_left_alone(source: Source) -> None:
    other = cache_folder() / "decoded" / "numbers-of-another-kind"
    other.mkdir(parents=True)
    decoded(source)
    assert other.is_dir()
    assert cache_entries(source) == [cache_entry(source)]


def test_a_flipped_bit_is_seen_when_asked_for(source: Source) -> None:
    decoded(source)
    (entry,) = cache_entries(source)
    assert verify_entry(entry)
    raw = bytearray((entry / "values.npy").read_bytes())
    raw[-1] ^= 1
    (entry / "values.npy").write_bytes(bytes(raw))
    assert not verify_entry(entry)
    forget(entry)
    assert not verify_entry(entry)


def test_where_nothing_can_be_written_data_are_decoded_into_memory(
    source: Source, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "a file").write_text("in the way")
    monkeypatch.setenv("CLOVE_CACHE", str(tmp_path / "a file"))
    with pytest.warns(CloveWarning, match=r"cannot be kept in .*a file.*CLOVE_CACHE"):
        arrays = decoded(source)
    assert values(arrays) == [3, 1, 2]


def test_a_decoder_that_fails_leaves_nothing_behind(source: Source) -> None:
    def fail(parts: Parts) -> Iterator[tuple[str, np.ndarray]]:
        yield "values", np.zeros(3)
        raise CloveError("damaged")

    failing = replace(source, form=replace(FORM, decode=fail))
    with pytest.raises(CloveError, match="damaged"):
        decoded(failing)
    assert entries() == []


def test_what_a_killed_process_left_goes_after_a_day(source: Source) -> None:
    folder = cache_folder() / "decoded"
    for name in (".old", ".new"):
        (folder / name).mkdir(parents=True)
    os.utime(folder / ".old", (1, 1))
    decoded(source)
    assert entries() == [".new", cache_entry(source).name]


def test_another_process_may_be_quicker(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    def quicker(parts: Parts) -> Chunks:
        if len(CALLS) == 0:
            CALLS.append(parts)
            decoded(source)  # what another process does at the same time
        return read_lines(parts)

    slow = replace(source, form=replace(FORM, decode=quicker))
    assert values(decoded(slow)) == [3, 1, 2]
    assert entries() == [cache_entry(source).name]


def test_a_name_that_cannot_be_taken_is_no_reason_to_fail(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = cache_entry(source)
    folder.mkdir(parents=True)
    (folder / "in the way").touch()
    monkeypatch.setattr(decoded_module, "_put_aside", lambda folder: None)
    with pytest.warns(CloveWarning, match="cannot be kept"):
        assert values(decoded(source)) == [3, 1, 2]
    assert entries() == [folder.name]


LOAD = """
import sys, time, zlib
from pathlib import Path
import numpy as np
from clove.data import load_dataset
Path(sys.argv[1]).touch()
while not Path(sys.argv[2]).exists():
    time.sleep(0.001)
dataset = load_dataset("agnews")
arrays = (dataset.x_train, dataset.y_train, dataset.x_test, dataset.y_test)
print(zlib.crc32(b"".join(np.asarray(array).tobytes() for array in arrays)))
"""


def write_news(folder: Path, rows: int) -> None:
    folder.mkdir()
    text = "".join(f'"{n % 4 + 1}","Title {n}","word{n % 90} and w{n % 7}"\n' for n in range(rows))
    for part in ("train", "test"):
        (folder / f"{part}.csv").write_text(text)


def started(tmp_path: Path, count: int) -> list[subprocess.Popen[str]]:
    """Start processes that load the same data at the same moment."""
    ready = [tmp_path / f"ready {number}" for number in range(count)]
    command = [sys.executable, "-c", LOAD]
    processes = [
        subprocess.Popen([*command, str(path), str(tmp_path / "go")], stdout=-1, text=True)
        for path in ready
    ]
    while not all(path.exists() for path in ready):
        assert all(process.poll() is None for process in processes)
        time.sleep(0.01)
    (tmp_path / "go").touch()
    return processes


@pytest.mark.parametrize("damaged", [False, True])
def test_processes_that_start_at_once_all_get_the_data(
    no_places: Path, tmp_path: Path, damaged: bool
) -> None:
    write_news(no_places / "agnews", rows=3000)
    if damaged:
        load_dataset("agnews")
        (entry,) = (cache_folder() / "decoded").iterdir()
        forget(entry)
    processes = started(tmp_path, count=4)
    answers = {process.communicate()[0] for process in processes}
    assert [process.returncode for process in processes] == [0] * 4
    dataset = load_dataset("agnews")
    arrays = (dataset.x_train, dataset.y_train, dataset.x_test, dataset.y_test)
    raw = b"".join(np.asarray(array).tobytes() for array in arrays)
    assert answers == {f"{decoded_module.checksum(np.frombuffer(raw, np.uint8))}\n"}
    (entry,) = entries()
    assert verify_entry(cache_folder() / "decoded" / entry)


def test_a_process_killed_while_decoding_leaves_nothing_half_there(
    no_places: Path, tmp_path: Path
) -> None:
    write_news(no_places / "agnews", rows=40_000)
    (process,) = started(tmp_path, count=1)
    folder = cache_folder() / "decoded"
    while not list(folder.glob(".*/x_train.npy")):
        assert process.poll() is None
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert all(name.startswith(".") for name in entries())
    assert load_dataset("agnews").size("train") == 40_000
