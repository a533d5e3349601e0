from __future__ import annotations

import gzip
import hashlib
import struct
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from clove.data.idx import INTEGER, idx_md5, read_idx
from clove.errors import CloveError


def idx_bytes(array: np.ndarray) -> bytes:
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(np.uint8).tobytes()


SAMPLE = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
reuses_folder = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50
)


@reuses_folder
@given(array=arrays(np.uint8, array_shapes(max_dims=3)), zipped=st.booleans())
def test_what_was_written_is_read(array: np.ndarray, zipped: bool, tmp_path: Path) -> None:
    path = tmp_path / "some-idx"
    raw = idx_bytes(array)
    path.write_bytes(gzip.compress(raw) if zipped else raw)
    np.testing.assert_array_equal(read_idx(path, array.ndim), array)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "found nothing"),
        (b"\x00\x00\x08\x01" + bytes(20), "expected it to begin with 00000803, found 00000801"),
        (b"\x00\x00\x0d\x03" + bytes(20), "found 00000d03"),
        (idx_bytes(SAMPLE)[:9], "expected 16 bytes of header, got 9"),
        (idx_bytes(SAMPLE)[:-5], "announces 2 × 3 × 4 = 24 values, found 19"),
        (idx_bytes(SAMPLE) + b"more", "24 values, found 28"),
        (gzip.compress(idx_bytes(SAMPLE), mtime=0)[:-10], "cannot be read"),
        (b"\x1f\x8b" + bytes(30), "cannot be read"),
    ],
    ids=["empty", "axes", "type", "header", "short", "long", "cut gzip", "no gzip"],
)
def test_damaged_files_are_named_with_what_was_expected(
    raw: bytes, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(raw)
    with pytest.raises(CloveError, match=message) as caught:
        read_idx(path, axes=3)
    assert str(path) in str(caught.value)


def test_integers_are_read_too(tmp_path: Path) -> None:
    path = tmp_path / "labels-idx2-int.gz"
    path.write_bytes(
        gzip.compress(struct.pack(">4B2I6i", 0, 0, 12, 2, 2, 3, 5, -1, 2, 70_000, 0, 9))
    )
    table = read_idx(path, axes=2, code=INTEGER)
    assert table.tolist() == [[5, -1, 2], [70_000, 0, 9]]
    with pytest.raises(CloveError, match="no idx file of bytes with 2 axes"):
        read_idx(path, axes=2)
    path.write_bytes(struct.pack(">4B2I5i2B", 0, 0, 12, 2, 2, 3, 5, 1, 2, 3, 4, 1, 1))
    with pytest.raises(CloveError, match=r"2 × 3 = 6 values, found 5\.5"):
        read_idx(path, axes=2, code=INTEGER)


def test_the_sum_of_an_array_is_that_of_its_idx_file() -> None:
    expected = hashlib.md5(idx_bytes(SAMPLE)).hexdigest()
    assert idx_md5(SAMPLE) == expected
    assert idx_md5(np.asfortranarray(SAMPLE)) == expected


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CloveError, match="nowhere"):
        read_idx(tmp_path / "nowhere", axes=1)


@reuses_folder
@given(place=st.integers(0, 200), value=st.integers(0, 255))
def test_one_wrong_byte_never_ends_in_another_error(place: int, value: int, tmp_path: Path) -> None:
    raw = bytearray(gzip.compress(idx_bytes(SAMPLE)))
    raw[place % len(raw)] = value
    path = tmp_path / "some-idx.gz"
    path.write_bytes(bytes(raw))
    with suppress(CloveError):
        assert read_idx(path, axes=3).shape == SAMPLE.shape
