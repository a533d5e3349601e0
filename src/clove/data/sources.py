"""Finding a data set's files, and saying where they should be when they are not there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from clove.data.card import Chunks, DataCard, Form, Parts
from clove.data.places import data_folders
from clove.errors import CloveError
from clove.folders import Unreadable, readable

CLOSED = "(no permission to look there)"


@dataclass(frozen=True)
class Source:
    """The files a data set was found in."""

    card: DataCard
    form: Form
    folder: Path
    parts: Parts

    @property
    def files(self) -> list[Path]:
        """All files, those of folders too, in a fixed order."""
        return [file for part in self.parts.values() for file in part_files(part, self.form)]

    @property
    def size(self) -> int:
        """Size of all files in bytes."""
        return sum(file.stat().st_size for file in self.files)

    @property
    def where(self) -> Path:
        """The file where there is only one, else the folder."""
        return self.files[0] if len(self.files) == 1 else self.folder

    def decode(self, **options: int) -> Chunks:
        """Read the arrays, whole or piece by piece; what cannot be read is said with a remedy."""
        try:
            with readable(self.where):
                yield from self.form.decode(self.parts, **options)
        except Unreadable:
            raise
        except CloveError as error:
            raise CloveError(f"{error}. {self.remedy}") from error

    @property
    def remedy(self) -> str:
        """What to do where a file is damaged."""
        again = "put it there again"
        if self.card.files:
            again = f"run `clove data fetch {self.card.name}`, or {again}"
        return f"Delete that file and {again}"


def part_files(part: Path, form: Form) -> list[Path]:
    """Return the files of one part: itself, or those in it if it is a folder."""
    return sorted(part.glob(form.pattern)) if part.is_dir() else [part]


def find_source(card: DataCard, data_dir: Path | None) -> Source | None:
    """Return the first place that holds all of a data set in one of its forms."""
    for form, folder in _places(card, data_dir):
        parts = _parts(form, folder)
        if len(parts) == len(form.parts):
            return Source(card, form, folder, parts)
    return None


def locate(card: DataCard, data_dir: Path | None) -> Source:
    """Return where a data set is, or say what to do to have it."""
    source = find_source(card, data_dir)
    if source is None:
        raise CloveError(_missing(card, data_dir))
    return source


def _places(card: DataCard, data_dir: Path | None) -> Iterator[tuple[Form, Path]]:
    for base in data_folders(data_dir):
        for form in card.forms:
            yield from ((form, base / folder) for folder in form.folders)
    # The system's folders come last: what the user put somewhere goes before them.
    for form in card.forms:
        yield from ((form, folder) for folder in form.system_folders)


def _parts(form: Form, folder: Path) -> dict[str, Path]:
    """Return the parts of a form that a folder holds."""
    found = {
        part: next((folder / name for name in names if _is_there(folder / name, form)), None)
        for part, names in form.parts.items()
    }
    return {part: path for part, path in found.items() if path is not None}


def _is_there(path: Path, form: Form) -> bool:
    # A folder nobody may look into is as good as none.
    with suppress(OSError):
        return path.is_file() or bool(form.pattern and any(path.glob(form.pattern)))
    return False


def _forbidden(path: Path) -> bool:
    """Say whether a path is there, or may be, where nobody lets us look."""
    try:
        path.stat()
    except OSError as error:
        return isinstance(error, PermissionError)
    return False


def _missing(card: DataCard, data_dir: Path | None) -> str:
    fetch = f"Run `clove data fetch {card.name}`, or put" if card.files else f"{card.by_hand} Put"
    wanted = " or ".join(form.words for form in card.forms)
    places = [_place(form, folder) for form, folder in _places(card, data_dir)]
    closed = " where clove may look" if any(place.endswith(CLOSED) for place in places) else ""
    return (
        f"data set {card.name!r} was not found{closed}. {fetch} {wanted} in one of these places, "
        "or name another folder with data_dir or $CLOVE_DATA:\n"
        + "\n".join(f"  {place}" for place in dict.fromkeys(places))
    )


def _place(form: Form, folder: Path) -> str:
    """Name a place, with what it lacks where it holds a part of the files only."""
    first = folder / next(iter(form.parts.values()))[0]
    if _forbidden(first):
        return f"{folder} {CLOSED}"
    if len(form.parts) == 1:
        return str(first)
    found = _parts(form, folder)
    missing = [names[0] for part, names in form.parts.items() if part not in found]
    return f"{folder} (lacks {', '.join(missing)})" if found else str(folder)
