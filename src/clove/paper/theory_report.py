"""What the check of section 4 found, in words: which statements hold, and where they break."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from clove.folders import plain_errors, write_atomically
from clove.paper.theory import ALIKE, BASE, GRIDS, SPREAD, TOLERANCE, along
from clove.paper.theory_convergence import PAPERS_STEP, Descent, mean_and_interval
from clove.paper.theory_figures import LABELS, picture_name
from clove.paper.theory_tables import Tables

SECTION = "theory.md"
ENOUGH = 0.95  # of draws: what counts as recovery
WORDS = {
    "clients": "clients M",
    "points": "points a client n",
    "dimension": "dimension d",
    "clusters": "clusters K",
    "noise": "noise σ, at Δ = 1",
    "separation": "separation Δ, at σ = 0.1",
}


@dataclass(frozen=True)
class Statement:
    """A statement of the section, what was found, and whether that agrees."""

    claim: str
    found: str
    holds: bool


# --------------------------------------------------------------------------------- small questions


def _of(table: pd.DataFrame, models: str) -> pd.DataFrame:
    return table[table["models"] == models]


def _grid(tables: Tables, name: str, models: str) -> pd.DataFrame:
    return _of(along(tables.recovery, name), models)


def where(values: Sequence[float], good: Sequence[bool]) -> str:
    """Say for which of some values, in order, something holds.

    >>> where([1, 2, 5], [False, True, True]), where([1, 2, 5], [True, False, True])
    ('from 2 on', 'at 1, 5')
    """
    kept = [value for value, yes in zip(values, good, strict=True) if yes]
    if len(kept) in (0, len(values)):
        return "everywhere" if kept else "nowhere"
    number = len(kept)
    if kept == list(values[-number:]):
        return f"from {kept[0]:g} on"
    if kept == list(values[:number]):
        return f"up to {kept[-1]:g}"
    return f"at {', '.join(f'{value:g}' for value in kept)}"


def _recovered(tables: Tables, name: str, models: str) -> str:
    rows = _grid(tables, name, models)
    return where(list(rows[name]), list(rows["probability"] >= ENOUGH))


# ---------------------------------------------------------------------------- the first clustering


def _one_shot(models: str, claim: str) -> Callable[[Tables], Statement]:
    def statement(tables: Tables) -> Statement:
        rows = _grid(tables, "points", models)
        most = rows.iloc[-1]
        found = (
            f"recovered in {ENOUGH:.0%} of draws {_recovered(tables, 'points', models)} "
            f"(points a client); with {most['points']} in {most['probability']:.0%}"
        )
        return Statement(claim, found, bool(most["probability"] >= ENOUGH))

    return statement


def _started_well(tables: Tables) -> Statement:
    rows = _grid(tables, "dimension", "orthonormal")
    started = list(rows["probability_from_means"] >= ENOUGH)
    most = rows.iloc[-1]
    found = (
        f"along d: {where(list(rows['dimension']), started)} if k-means starts at the true means, "
        f"{_recovered(tables, 'dimension', 'orthonormal')} from its own starts; at d = "
        f"{most['dimension']} every client is nearest its own mean in "
        f"{most['nearest_own_centre']:.0%} of draws"
    )
    return Statement("all it takes is suitable centres to start k-means from", found, all(started))


def _more_clients(tables: Tables) -> Statement:
    rows = _of(along(tables.recovery, "clients", SPREAD), "orthonormal")
    first, most = rows.iloc[0], rows.iloc[-1]
    found = (
        f"with K = {SPREAD.clusters} and n = {SPREAD.points}, {first['probability']:.0%} of draws "
        f"with {first['clients']} clients (nM = {_excess(first):.2g} dK⁴) and "
        f"{most['probability']:.0%} with {most['clients']} (nM = {_excess(most):.0f} dK⁴), all of "
        f"whom must be right; mean ARI {first['mean_ari']:.3f} and {most['mean_ari']:.3f}"
    )
    claim = "points of all clients together decide: nM ≫ dK⁴ polylog(M) is enough"
    return Statement(claim, found, bool(most["probability"] >= ENOUGH))


def _excess(row: pd.Series) -> float:
    """Return how many times dK⁴ all points together are."""
    return float(row["points"] * row["clients"] / (row["dimension"] * row["clusters"] ** 4))


def _proximity(tables: Tables) -> Statement:
    rows = _grid(tables, "points", "orthonormal")
    asked = where(list(rows["points"]), list(rows["proximity"] >= 1))
    found = (
        f"with c' as low as 1, in the median draw, {asked} (points a client), and recovery "
        f"{_recovered(tables, 'points', 'orthonormal')}; at n = {rows['points'].iloc[-1]} c' is "
        f"{rows['proximity'].iloc[-1]:.2g} as printed and "
        f"{rows['proximity_roots'].iloc[-1]:.2g} with roots of the clusters' sizes"
    )
    claim = "the proof's proximity condition holds, with a large constant c', where CLoVE recovers"
    good = rows[rows["probability"] >= ENOUGH]
    return Statement(claim, found, bool(len(good) and (good["proximity"] >= 1).all()))


def _ratio(tables: Tables) -> Statement:
    """Compare the same Δ/σ with much and with little of both."""
    much = _grid(tables, "noise", "orthonormal").iloc[0]
    little = _of(along(tables.recovery, "clients", ALIKE), "orthonormal").iloc[0]
    found = (
        f"at Δ/σ = {ALIKE.separation / ALIKE.noise:g}, {much['probability']:.0%} of draws with "
        f"Δ = {much['separation']:g} and {little['probability']:.0%} with "
        f"Δ = {little['separation']:g}: the spread of a root of a loss is as its distance from "
        "θ\\*, whatever σ, so that Δ itself must be large (which assumption 1 says)"
    )
    claim = "Δ/σ ≫ 1 (assumption 4) is what tells clusters apart, from d orthonormal models"
    return Statement(claim, found, bool(little["high"] >= much["low"]))


# ------------------------------------------------------------------------- centres and spread


def _centres(tables: Tables) -> Statement:
    rows = _of(tables.separation, "orthonormal")
    low = rows[rows["noise"] <= BASE.noise]
    found = (
        f"c is at most {low['c_largest'].max():.2f} for σ ≤ {BASE.noise:g} "
        f"(median {low['c_median'].median():.2f}), and within √(4 + σ²) in "
        f"{rows['within'].min():.0%} of pairs for every Δ and σ up to {rows['noise'].max():g}"
    )
    claim = "centres are Δ/c apart, c ≈ 2, for d orthonormal models"
    return Statement(claim, found, bool((rows["within"] == 1).all()))


def _random_centres(tables: Tables) -> Statement:
    rows = _of(tables.separation, "random")
    rows = rows[rows["noise"] <= BASE.noise]
    found = (
        f"c is {rows['c_median'].median():.2f} in the median and at most "
        f"{rows['c_largest'].max():.2f} for σ ≤ {BASE.noise:g}; at most 2 in at least "
        f"{rows['within'].min():.1%} of pairs"
    )
    claim = "the same for d random models, which are nearly orthonormal"
    return Statement(claim, found, bool((rows["within"] == 1).all()))


def _few_centres(tables: Tables) -> Statement:
    rows = _of(tables.separation, "orthonormal-k")
    rows = rows[(rows["noise"] <= BASE.noise) & (rows["separation"] == BASE.separation)]
    found = (
        f"c is {rows['c_median'].median():.2f} in the median and up to "
        f"{rows['c_largest'].max():.1f}: {BASE.clusters} of {BASE.dimension} directions show "
        "only a part of a difference"
    )
    claim = "the same for the K models that the algorithm has"
    return Statement(claim, found, bool((rows["within"] == 1).all()))


def _proximal_centres(tables: Tables) -> Statement:
    rows = _of(tables.separation, "proximal")
    quiet = rows[rows["noise"] <= rows["separation"] / 4]
    loud = rows[rows["within"] < 1]
    found = f"c is at most {quiet['c_largest'].max():.2f} where σ ≤ Δ/4"
    if len(loud):
        first = (loud["noise"] / loud["separation"]).min()
        found += f"; it first exceeds 2 at σ = {first:.2g} Δ"
    claim = "centres are more than Δ/2 apart for Δ-proximal models, if σ ≪ Δ/4"
    return Statement(claim, found, bool((quiet["within"] == 1).all()))


def _spread(tables: Tables) -> Statement:
    ratio = tables.recovery["spread"] / tables.recovery["spread_expected"]
    found = f"measured over expected between {ratio.min():.3f} and {ratio.max():.3f} everywhere"
    claim = "an entry of a loss vector has mean α and standard deviation α/√(2n)"
    return Statement(claim, found, bool(ratio.between(0.9, 1.1).all()))


def _concentration(tables: Tables) -> Statement:
    rows = _grid(tables, "dimension", "orthonormal")
    good = rows["concentrated"] >= 1 - TOLERANCE
    last = rows.iloc[-1]
    found = (
        f"{where(list(rows['dimension']), list(good))} in d; at d = {last['dimension']} the "
        f"farthest is {last['farthest']:.0f} and t is {last['tolerated']:.0f}"
    )
    claim = (
        "no client's vector is farther than t max Var from its mean (squared), "
        f"t = 9/2 log²(NM/δ), in all but δ = {TOLERANCE:g} of draws"
    )
    return Statement(claim, found, bool(good.all()))


# ----------------------------------------------------------------------------------------- rounds


def _usual(tables: Tables) -> pd.DataFrame:
    """Return the runs with the paper's step and way of averaging, clustered rightly at once."""
    rates = tables.rates
    papers = (rates["learning_rate"] - PAPERS_STEP).abs() < 1e-4
    return rates[papers & (rates["averaging"] == "gradients") & (rates["right_from"] == 1)]


def _geometric(tables: Tables) -> Statement:
    rows = _usual(tables)
    found = (
        f"with η = {PAPERS_STEP:.3g}, c₁ is at least {rows['c1'].min():.1f} where the first "
        "clustering is right, as long as the distance is above three times the floor; with "
        "smaller steps the first rounds end farther away than Δ, and the least c₁ is "
        f"{tables.rates['c1'].min():.2f}"
    )
    claim = "‖θ_k − θ\\*_k‖ ≤ Δ/c₁^T after T rounds, for a constant c₁ (theorem 4.2)"
    return Statement(claim, found, bool(len(rows) and (rows["c1"] > 1).all()))


def _floor(tables: Tables) -> Statement:
    arrived = tables.rates[tables.rates["last"] <= 3 * tables.rates["floor"]]
    ratio = arrived["last"] / arrived["floor"]
    found = (
        f"the distance stays at {ratio.min():.2f} to {ratio.max():.2f} σ√(d/(mn)), what least "
        "squares over a cluster's points leaves (the corollary excepts it); clients keep their "
        "points here, where assumption 3 draws new ones every round"
    )
    return Statement("the same for all T, without a floor", found, len(arrived) == 0)


def _first_step(tables: Tables) -> Statement:
    papers = _usual(tables)["after_one_round"] / BASE.separation
    rates = tables.rates
    by_gradients = rates["averaging"] == "gradients"
    smaller = rates[by_gradients & (rates["learning_rate"] < PAPERS_STEP - 0.01)]
    others = smaller["after_one_round"] / BASE.separation
    found = f"at most {papers.max():.2f} Δ with η = {PAPERS_STEP:.3g}"
    if len(smaller):
        steps = ", ".join(f"{step:g}" for step in sorted(smaller["learning_rate"].unique()))
        found += f", but {others.min():.2f} to {others.max():.2f} Δ with η = {steps}"
    claim = "models are Δ-proximal (within Δ/4) after a right first round, if η ≤ ½(1 − Δ/12)"
    return Statement(claim, found, bool(len(papers) and pd.concat([papers, others]).max() <= 0.25))


def _always(tables: Tables) -> Statement:
    right = tables.rates["right_from"]
    found = (
        f"in {(right == 1).sum()} of {len(right)} runs, which start from K orthonormal models; "
        f"in all of them from round {right.max()} on"
    )
    return Statement("the clustering is right in every round", found, bool((right == 1).all()))


STATEMENTS: tuple[Callable[[Tables], Statement], ...] = (
    _one_shot("orthonormal", "one-shot recovery from d orthonormal models (theorem 4.1)"),
    _one_shot("proximal", "one-shot recovery from Δ-proximal models (theorem 4.1)"),
    _one_shot("random", "the same from d random models, which are nearly orthonormal"),
    _one_shot("orthonormal-k", "the same from K orthonormal models, as the algorithm has them"),
    _started_well,
    _more_clients,
    _ratio,
    _proximity,
    _centres,
    _random_centres,
    _few_centres,
    _proximal_centres,
    _spread,
    _concentration,
    _geometric,
    _floor,
    _first_step,
    _always,
)


# ----------------------------------------------------------------------------------------- the text

PROOFS = f"""What breaks can be found in the proofs:

- The proximity condition is Kumar and Kannan's, who ask for K standard deviations |A − C|/√m; \
as printed it has m in place of √m. With the root, M cancels in the last step of the proof, and \
what remains is that n be large against dK³: a client's own points decide, and more clients only \
make it likelier that one of them is wrong.
- In the lemma on concentration the sum over N entries is held to the bound of one entry; it \
needs N times that. The difference shows where N is above t.
- The lemma on a step of gradients says "η at most ½(1 − Δ/(3c))", and its proof needs η at least \
that (and at most ½(1 + Δ/(3c))). The value it then takes, {PAPERS_STEP:.3g} for Δ = 1, is right. \
Smaller steps converge all the same, more slowly, and their models are Δ-proximal some rounds later.
- The section starts from d models, the algorithm from K, on which clusters are less far apart. \
A client in a wrong cluster in the first round does not matter much: the models move towards the \
true ones all the same, and models near those tell clusters apart far better.
- Orthonormal models exist only where there are no more of them than dimensions: with d < K the \
K models of the algorithm cannot be orthonormal, and clove says so."""


def theory_section(folder: str | Path, pictures: str = "") -> str:
    """Return what a folder's tables say of section 4, as Markdown; `pictures` is where they lie."""
    tables = Tables.read(Path(folder))
    parts = [
        _setting(tables),
        _statements(tables),
        PROOFS,
        "### One-shot recovery",
        _picture("recovery", pictures),
        _caption(),
        _recovery_table(tables),
        "### Separation of centres, and spread about them",
        _picture("separation", pictures),
        "### Convergence",
        _picture("convergence", pictures),
        _rate_table(tables),
    ]
    return "\n\n".join(parts) + "\n"


def write_section(folder: Path) -> None:
    """Write the section beside the tables it is made from."""
    text = f"# Section 4 of the paper, checked\n\n{theory_section(folder)}"
    with plain_errors(folder, "the section on theory"):
        write_atomically(folder / SECTION, text.encode())


def _picture(name: str, where_they_lie: str) -> str:
    return f"![{name}]({where_they_lie}{picture_name(name)})"


def _setting(tables: Tables) -> str:
    first = tables.recovery.iloc[0]
    runs = tables.rates["seed"].nunique()
    return (
        "Mixed linear regression as section 4 of the paper defines it; clients are clustered by "
        "`LossVectorClustering` with square roots of losses, and trained by CLoVE in the engine. "
        f"{first['draws']} draws for every point of a grid, {runs} runs for every step size and "
        f"noise, from seed {first['seed']}; made by `clove paper theory` on {first['date']} "
        f"({first['machine']}, clove {first['clove']}, numpy {first['numpy']}, "
        f"scikit-learn {first['scikit-learn']})."
    )


def _statements(tables: Tables) -> str:
    lines = ["| statement | found | |", "| --- | --- | --- |"]
    for make in STATEMENTS:
        one = make(tables)
        lines.append(f"| {one.claim} | {one.found} | {'holds' if one.holds else '**does not**'} |")
    return "\n".join(lines)


def _caption() -> str:
    return (
        "Share of draws in which the first clustering is the true one, with its 95 % interval. "
        f"One thing varies, the rest is K = {BASE.clusters}, M = {BASE.clients}, "
        f"n = {BASE.points}, d = {BASE.dimension}, Δ = {BASE.separation:g}, σ = {BASE.noise:g} "
        "(dotted). In %, at the least, this, and the greatest value:"
    )


def _recovery_table(tables: Tables) -> str:
    lines = [f"| | {' | '.join(LABELS.values())} |", "| --- |" + " --- |" * len(LABELS)]
    for name in GRIDS:
        values = along(tables.recovery, name)[name]
        shown = [values.min(), getattr(BASE, name), values.max()]
        cells = " | ".join(_shares(tables, name, models, shown) for models in LABELS)
        lines.append(f"| {WORDS[name]}: {', '.join(f'{v:g}' for v in shown)} | {cells} |")
    return "\n".join(lines)


def _shares(tables: Tables, name: str, models: str, values: Sequence[float]) -> str:
    found = _grid(tables, name, models).set_index(name)["probability"]
    return ", ".join(f"{100 * found[value]:.0f}" for value in values)


def _rate_table(tables: Tables) -> str:
    """Return the factor a round, with its interval over seeds, for each way to train."""
    lines = [
        "| averaging | η | σ | distance after a round over before | by the step size | c₁ |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    settings = ["averaging", "learning_rate", "noise", "batch_size"]
    for values, rows in tables.rates.groupby(settings):
        one = Descent(*values)
        mean, low, high = mean_and_interval(list(rows["rate"]))
        lines.append(
            f"| {one.averaging} | {one.learning_rate:.3g} | {one.noise:g} "
            f"| {mean:.3f} [{low:.3f}, {high:.3f}] "
            f"| {one.contraction():.3f} to {one.slowest:.3f} | {rows['c1'].min():.2f} |"
        )
    note = (
        "The factor is fitted to the rounds above three times the floor, with its 95 % interval "
        "over seeds. By the step size: |1 − 2η| for each step, and the slowest direction that "
        "so many points allow. c₁: the least over seeds."
    )
    return "\n".join(lines) + f"\n\n{note}"
