"""The service over HTTP: what it answers, and that nothing sent to it is too much."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import schemathesis
from fastapi.testclient import TestClient
from hypothesis import given, settings
from safetensors.torch import load
from schemathesis.checks import negative_data_rejection

import clove
from clove.serving.reception import Reception
from clove.serving.service import service
from tests.runs.small import TINY

WITHIN, BEYOND = schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE


@pytest.fixture(scope="module")
def web(finished: clove.Result) -> Iterator[TestClient]:
    with TestClient(service(Reception(finished))) as client:
        yield client


def posted(web: TestClient, losses: Any) -> Any:
    return web.post("/newcomers", json={"losses": losses})


def detail(reply: Any, status: int = 422) -> str:
    """Return what a refusal says: always one line of text."""
    assert reply.status_code == status, reply.text
    said = reply.json()
    assert list(said) == ["detail"]
    assert isinstance(said["detail"], str)
    return str(said["detail"])


# ------------------------------------------------------------------------------------ what it does


def test_it_describes_what_to_measure(web: TestClient, finished: clove.Result) -> None:
    about = web.get("/").json()
    assert (about["method"], about["task"], about["network"]) == ("clove", "classification", "mlp")
    assert (about["inputs"], about["outputs"], about["probes"]) == ([1, 8, 8], 10, 5)
    assert (about["transform"], about["loss"], about["seed"]) == ("identity", "auto", None)
    assert [card["clients"] for card in about["models"]] == finished.users().tolist()
    assert "losses[i]" in about["order"]


def test_a_vector_gets_a_cluster_distances_and_a_link(
    web: TestClient, finished: clove.Result
) -> None:
    vectors = finished.loss_vectors()
    for losses, model in zip(vectors.losses[::5], finished.assignment[::5], strict=True):
        reply = posted(web, losses.tolist())
        assert reply.status_code == 200
        place = reply.json()
        assert place["model"] == model == np.argmin(place["distances"])
        assert 0 < place["sure"] <= 1
        state = load(web.get(place["href"]).content)
        expected = finished.parameters(int(model))
        assert all(state[name].equal(tensor) for name, tensor in expected.items())


def test_probes_and_models_are_safetensors(web: TestClient, finished: clove.Result) -> None:
    for kind in ("probes", "models"):
        reply = web.get(f"/{kind}/4")
        assert reply.headers["content-type"] == "application/octet-stream"
        assert load(reply.content).keys() == finished.parameters(4).keys()
    for kind in ("probe", "model"):
        for number in ("5", "-1", "1" + 30 * "0"):
            said = detail(web.get(f"/{kind}s/{number}"), 404)
            assert said == f"there is no {kind} {number}: 5, from 0"
        assert "valid integer" in detail(web.get(f"/{kind}s/first"))


# --------------------------------------------------------------------------------- what it refuses


@pytest.mark.parametrize(
    ("losses", "said"),
    [
        ([1.0] * 4, "losses: List should have at least 5 items"),
        ([1.0] * 6, "losses: List should have at most 5 items"),
        ([], "losses: List should have at least 5 items"),
        ([1.0, 1.0, "1.0", 1.0, 1.0], "losses[2]: Input should be a valid number"),
        ([1.0, True, 1.0, 1.0, 1.0], "losses[1]: Input should be a valid number"),
        ([1.0, None, 1.0, 1.0, 1.0], "losses[1]: Input should be a valid number"),
        ([1.0, [1.0], 1.0, 1.0, 1.0], "losses[1]: Input should be a valid number"),
        (
            [1.0, 1e200, 1.0, 1.0, 1.0],
            "losses[1]: Input should be less than or equal to 1000000000000000",
        ),
        (
            [1.0, -1e200, 1.0, 1.0, 1.0],
            "losses[1]: Input should be greater than or equal to 0",
        ),
        ([1.0, 10**400, 1.0, 1.0, 1.0], "losses[1]: Input should be"),
        ("12345", "losses: Input should be a valid list"),
        ({"0": 1.0}, "losses: Input should be a valid list"),
        (None, "losses: Input should be a valid list"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_bad_vector_is_told_what_is_wrong_and_where(
    web: TestClient, losses: Any, said: str
) -> None:
    assert said in detail(posted(web, losses))


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_are_none_are_refused(web: TestClient, word: str) -> None:
    body = f'{{"losses": [1, 1, {word}, 1, 1]}}'
    reply = web.post("/newcomers", content=body, headers={"content-type": "application/json"})
    assert detail(reply) == "losses[2]: Input should be a finite number"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 422),
        (b'{"losses": [1, 2, 3, 4, -1]}', 422),
        (b"[1, 2, 3, 4, 5]", 422),
        (b'{"losses": [1, 2, 3, 4, 5]', 422),
        (b'{"losses": [1, 2, 3, 4, 5], "x": "mine"}', 422),
        (b'{"\\ud800": 1, "losses": [1, 2, 3, 4, 5]}', 422),
        (b'{"losses": "\\ud800"}', 422),
        (b'\xff\xfe{"losses"', 400),
        (b"[" * 100, 422),
        (b'{"losses": [' + b"1, " * 10_000 + b"1]}", 413),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_body_that_is_no_vector_is_refused(web: TestClient, body: bytes, status: int) -> None:
    reply = web.post("/newcomers", content=body, headers={"content-type": "application/json"})
    assert detail(reply, status)


def test_a_body_deeper_than_a_parser_goes_is_refused(web: TestClient) -> None:
    headers = {"content-type": "application/json"}
    reply = web.post("/newcomers", content=b"[" * 1300, headers=headers)
    assert reply.status_code in (400, 422)  # where Python stops depends on its version


def test_losses_a_transform_cannot_take_are_refused() -> None:
    with TestClient(service(Reception(clove.run(**TINY, transform="log")))) as web:
        assert web.get("/").json()["transform"] == "log"
        assert "losses[0]: Input should be greater than or equal to 0" in detail(
            posted(web, [-1, 1])
        )
        assert posted(web, [0, 1]).status_code == 200


def test_with_a_token_only_those_who_send_it_are_served(finished: clove.Result) -> None:
    with TestClient(service(Reception(finished), token="sesame")) as web:
        for headers in (
            {},
            {"Authorization": "Bearer open"},
            {"Authorization": "Basic sesame"},
            {"Authorization": "Bearer \xe9".encode("latin-1")},
        ):
            for path in ("/", "/models/0", "/probes/0"):
                assert "send the token" in detail(web.get(path, headers=headers), 401)
            refusal = web.post("/newcomers", json={"losses": [1.0] * 5}, headers=headers)
            assert "send the token" in detail(refusal, 401)
        assert web.get("/", headers={"Authorization": "Bearer sesame"}).status_code == 200


# -------------------------------------------------------------------------------- whatever is sent


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "path", "method"),
    [
        (WITHIN, "/", "GET"),  # there is nothing that it would forbid here
        *((mode, "/probes/{number}", "GET") for mode in (WITHIN, BEYOND)),
        *((mode, "/models/{number}", "GET") for mode in (WITHIN, BEYOND)),
        *((mode, "/newcomers", "POST") for mode in (WITHIN, BEYOND)),
    ],
)
def test_nothing_its_own_description_allows_or_forbids_breaks_it(
    finished: clove.Result, mode: schemathesis.GenerationMode, path: str, method: str
) -> None:
    description = schemathesis.openapi.from_asgi("/openapi.json", service(Reception(finished)))

    @settings(max_examples=100, deadline=None, database=None, derandomize=True)
    @given(case=description[path][method].as_strategy(generation_mode=mode))
    def attempt(case: schemathesis.Case) -> None:
        reply = case.call()
        # Schemathesis does not count "too long" among the ways to refuse.
        spared = [negative_data_rejection] if reply.status_code == 413 else []
        case.validate_response(reply, excluded_checks=spared)

    attempt()


def test_the_description_is_valid_and_names_every_way_to_fail(web: TestClient) -> None:
    paths = web.get("/openapi.json").json()["paths"]
    assert set(paths) == {"/", "/probes/{number}", "/newcomers", "/models/{number}"}
    for path in paths.values():
        for operation in path.values():
            assert {"200", "422"} <= set(operation["responses"])
    vector = web.get("/openapi.json").json()["components"]["schemas"]["LossVector"]
    assert vector["properties"]["losses"]["minItems"] == 5
    assert json.dumps(vector)
