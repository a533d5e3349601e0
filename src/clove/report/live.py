"""A live view of runs in the terminal; silent where there is no terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Self

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from clove.report.numbers import duration
from clove.report.style import colour

STRIP = 48  # columns for the sizes of all clusters
MOST_CLUSTERS = 16  # that have room in it


class Engines:
    """Says which engine runs are made with, and why: each choice once."""

    def __init__(self, console: Console, quiet: bool) -> None:
        self._console, self._quiet = console, quiet
        self._said: set[str] = set()

    def tell(self, run: Any) -> None:
        """Say a run's engine, unless that was said."""
        words = f"{run.choice.engine} engine on {run.settings.device}: {run.choice.reason}"
        if not self._quiet and words not in self._said:
            self._said.add(words)
            self._console.print(words, style="dim", markup=False, highlight=False, soft_wrap=True)


class _Bars(Progress):
    """Bars, and below them what there is to say of the last round."""

    below: RenderableType = ""

    def get_renderables(self) -> Iterable[RenderableType]:
        """Return the bars and the line below."""
        yield from super().get_renderables()
        if self.below:
            yield self.below


class Live:
    """One bar a run: rounds done, accuracy, ARI, groups, time left; round time, cluster sizes."""

    def __init__(self, console: Console, *, quiet: bool = False) -> None:
        self._bars: dict[tuple[str, int], TaskID] = {}
        self._progress = _Bars(
            TextColumn("[bold]{task.description:<14}"),
            BarColumn(bar_width=10),  # so that a line fits in 80 columns
            MofNCompleteColumn(),
            TextColumn("{task.fields[news]}"),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            console=console,
            disable=quiet or not console.is_terminal,
        )
        self._engines = Engines(self._progress.console, quiet)

    def __enter__(self) -> Self:
        self._progress.start()
        self._setting_up = self._progress.add_task("setting up", total=None, news="")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def watch(self, algorithm: str, seed: int) -> Callable[[Any], None]:
        """Return what a run calls after each round."""
        return lambda run: self.update(algorithm, seed, run)

    def update(self, algorithm: str, seed: int, run: Any) -> None:
        """Show a run as far as it has come."""
        self._progress.update(self._setting_up, visible=False)
        bar = self._bars.get((algorithm, seed))
        if bar is None:
            bar = self._begin(algorithm, seed, run)
        last = run.records[-1]
        self._progress.below = Text("  ").join(
            [Text(f"{duration(run.timings[-1]['seconds'])} a round", style="dim"), strip(last)]
        )
        self._progress.update(bar, completed=run.round, news=news(last))

    def _begin(self, algorithm: str, seed: int, run: Any) -> TaskID:
        self._engines.tell(run)
        bar = self._progress.add_task(f"{algorithm} {seed}", total=run.settings.rounds, news="")
        self._bars[algorithm, seed] = bar
        return bar


def news(record: dict[str, Any]) -> str:
    """Return a round's figures in a few words.

    >>> news({"accuracy": 0.981, "test_loss": 0.1, "ari": 1.0, "clusters": 5, "stable": True})
    'accuracy 98.1 %  ARI 1.00  5 groups, stable'
    """
    words = []
    if record["accuracy"] is not None:
        words.append(f"accuracy {100 * record['accuracy']:.1f} %")
    elif record["test_loss"] is not None:
        words.append(f"loss {record['test_loss']:.4g}")
    if record["ari"] is not None:
        words.append(f"ARI {record['ari']:.2f}")
    if "clusters" in record:
        words.append(f"{record['clusters']} groups" + (", stable" if record["stable"] else ""))
    return "  ".join(words)


def strip(record: dict[str, Any]) -> Text:
    """Return the sizes of the clusters as a strip: each has its number, colour and share of it.

    >>> strip({"clusters": 2, "assignment": [0, 0, 0, 1, -1]}).plain.split()
    ['3', '1']
    """
    sizes = Counter(model for model in record.get("assignment", ()) if model >= 0)
    if "clusters" not in record or len(sizes) > MOST_CLUSTERS:
        return Text()
    line = Text()
    for model, width in zip(sorted(sizes), _shares([sizes[m] for m in sorted(sizes)]), strict=True):
        line.append(f"{sizes[model]:^{width}}", style=f"bold white on {colour(model)}")
    return line


def _shares(sizes: Sequence[int]) -> list[int]:
    """Return columns for each size: as much of the strip as it is of all, and room for its number.

    >>> _shares([30, 10])
    [36, 12]
    """
    return [max(round(STRIP * size / sum(sizes)), len(str(size)) + 2) for size in sizes]
