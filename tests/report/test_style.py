"""The colours of figures and pages: they stand out, and are distinct for colour-blind readers."""

from __future__ import annotations

import re
from importlib.resources import files
from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray

from clove.report.style import COLOURS, FIRST, ON_DARK

# How the world looks to readers that lack one kind of cone (Machado, Oliveira and Fernandes 2009),
# on linear red, green and blue.
EYES = {
    "all": np.eye(3),
    "protan": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deutan": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritan": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
TO_XYZ = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
PALETTES = {"light": COLOURS, "dark": ON_DARK}


def linear(colour: str) -> NDArray[np.float64]:
    """Return the light of a colour's red, green and blue."""
    shares = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    return np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """Return the ratio by which two colours stand out from each other, as WCAG defines it."""
    dark, light = sorted(float(linear(colour) @ TO_XYZ[1]) for colour in (one, other))
    return (light + 0.05) / (dark + 0.05)


def place(colour: str, eyes: str) -> NDArray[np.float64]:
    """Return where a colour is in CIELAB, in which 1 is about the least that can be told apart."""
    seen = np.clip(np.array(EYES[eyes]) @ linear(colour), 0, 1)
    shares = np.array(TO_XYZ) @ seen / np.sum(TO_XYZ, axis=1)
    x, y, z = np.where(shares > 216 / 24389, np.cbrt(shares), (24389 / 27 * shares + 16) / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def backgrounds(theme: str) -> list[str]:
    """Return the colours of page and cards, from the page's styles."""
    css = files("clove.report.page").joinpath("template/page.css").read_text(encoding="utf-8")
    block = css if theme == "light" else css[css.index(':root[data-theme="dark"]') :]
    return re.findall(r"--(?:paper|card): (#\w+)", block)[:2]


def test_the_ruler_is_right() -> None:
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    assert contrast("#ffffff", "#767676") == pytest.approx(4.54, abs=0.01)
    assert place("#ffffff", "all") == pytest.approx([100, 0, 0], abs=0.1)
    assert backgrounds("light") != backgrounds("dark")


@pytest.mark.parametrize("theme", PALETTES)
def test_every_colour_stands_out_from_page_and_cards(theme: str) -> None:
    low = {
        (colour, ground): contrast(colour, ground)
        for colour in PALETTES[theme]
        for ground in backgrounds(theme)
        if contrast(colour, ground) < 3
    }
    assert low == {}


@pytest.mark.parametrize("eyes", EYES)
@pytest.mark.parametrize("theme", PALETTES)
def test_colours_are_distinct_whatever_eyes_one_has(theme: str, eyes: str) -> None:
    def nearest(colours: tuple[str, ...]) -> float:
        places = [place(colour, eyes) for colour in colours]
        return min(float(np.linalg.norm(a - b)) for a, b in combinations(places, 2))

    assert nearest(PALETTES[theme][:FIRST]) > 16, "as far as Okabe and Ito's own"
    assert nearest(PALETTES[theme]) > 10


def test_a_thing_has_a_colour_in_both_themes() -> None:
    assert len(COLOURS) == len(ON_DARK) >= 15
