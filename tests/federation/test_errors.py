from __future__ import annotations

from clove.errors import CloveError, CloveWarning, unknown_name


def test_an_unknown_name_is_answered_with_the_nearest_and_all_known_ones():
    error = unknown_name("algorithm", "clov", ["ifca", "clove"])
    assert isinstance(error, CloveError)
    assert str(error) == "unknown algorithm 'clov': did you mean 'clove'? Known: clove, ifca"


def test_nothing_is_suggested_where_nothing_is_near():
    assert str(unknown_name("engine", "xyz", {"auto": 1})) == "unknown engine 'xyz'. Known: auto"


def test_anything_can_be_an_unknown_name():
    assert str(unknown_name("engine", None, ["auto"])) == "unknown engine None. Known: auto"


def test_warnings_are_the_users():
    assert issubclass(CloveWarning, UserWarning)
