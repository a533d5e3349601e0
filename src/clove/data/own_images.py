"""Clients as folders of images, and how any picture becomes an array."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from clove.data.card import Array
from clove.data.client_data import ClientData, Points
from clove.errors import CloveError

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".gif", ".tif", ".tiff")
TRAIN, TEST = "train", "test"


def image_clients(folders: Sequence[Path]) -> Iterator[ClientData]:
    """Read a client from each folder; the classes of all are numbered in alphabetical order."""
    parts = {folder: _parts(folder) for folder in folders}
    _check_alike(parts)
    homes = [home for found in parts.values() for home in found.values()]
    classes = sorted({c.name for home in homes for c in visible(home) if c.is_dir()})
    number = {name: index for index, name in enumerate(classes)}
    for folder, found in parts.items():
        points = {part: _images(folder.name, home, number) for part, home in found.items()}
        yield ClientData(train=points[TRAIN], test=points.get(TEST), name=folder.name)


def visible(folder: Path) -> list[Path]:
    """Return what is in a folder and not hidden, by name."""
    return [path for path in sorted(folder.iterdir()) if not path.name.startswith(".")]


def _parts(folder: Path) -> dict[str, Path]:
    """Return the folders of a client's training and test images: itself, where it has no such.

    One of the two names beside others is a class of that name.
    """
    found = {path.name: path for path in visible(folder) if path.is_dir()}
    others = sorted(found.keys() - {TRAIN, TEST})
    if others and {TRAIN, TEST} <= set(found):
        raise CloveError(
            f"client {folder.name}: {folder} holds {TRAIN}/ and {TEST}/ beside {others[0]}/: "
            "put all its classes into these two, or none"
        )
    if set(found) == {TEST}:
        raise CloveError(f"client {folder.name}: {folder} holds {TEST}/, but no {TRAIN}/")
    return found if TRAIN in found and not others else {TRAIN: folder}


def _check_alike(parts: dict[Path, dict[str, Path]]) -> None:
    """Refuse clients with `train/` beside others without: it may be their class of that name."""
    divided = [folder for folder, found in parts.items() if found[TRAIN] != folder]
    whole = [folder for folder in parts if folder not in divided]
    if divided and whole:
        raise CloveError(
            f"client {divided[0].name} has its images in {TRAIN}/, client {whole[0].name} has no "
            "such folder alone: divide all clients' images, or none's"
        )


def _images(client: str, folder: Path, number: dict[str, int]) -> Points:
    files = [
        path
        for path in sorted(folder.rglob("*"))
        if path.suffix.lower() in IMAGES
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]
    if not files:
        raise CloveError(f"client {client}: there are no images in {folder}")
    x = [_read_image(client, file) for file in files]
    for file, image in zip(files, x, strict=True):
        if image.shape != x[0].shape:
            raise CloveError(
                f"client {client}: {file} differs in size or colours from {files[0]}: "
                f"{image.shape}, not {x[0].shape}"
            )
    if not number:
        return np.stack(x), None
    classes = [file.relative_to(folder).parts[0] for file in files]
    loose = next((f for f, name in zip(files, classes, strict=True) if name not in number), None)
    if loose is not None:
        raise CloveError(f"client {client}: {loose} is in no class, as other images are")
    return np.stack(x), np.array([number[name] for name in classes])


def _read_image(client: str, path: Path) -> Array:
    from PIL import Image

    try:
        with Image.open(path) as image:
            return picture(image)
    except PermissionError:
        raise
    except (OSError, ValueError, SyntaxError) as error:  # Pillow fails in any of these ways
        raise CloveError(f"client {client}: {path} cannot be read as an image: {error}") from None


def picture(image: Any) -> Array:
    """Return a picture as channels × height × width from 0 to 1: grey as one channel, else RGB."""
    if image.mode.startswith("I;16"):  # grey in 16 bits
        return (np.asarray(image)[None] / np.float32(65535)).astype(np.float32)
    grey = image.mode in ("1", "L", "LA")
    pixels = unit_range(np.asarray(image.convert("L" if grey else "RGB")))
    return pixels[None] if grey else np.ascontiguousarray(np.moveaxis(pixels, -1, 0))


def unit_range(x: Array) -> Array:
    """Give bytes the range [0, 1], as images are used; leave other numbers as they are."""
    return (x / np.float32(255)).astype(np.float32) if x.dtype == np.uint8 else x
