"""The service: models to measure, a vector of losses in, a place and its model out.

Described by its own OpenAPI document, `/openapi.json`. A newcomer's data never come here.
"""

# Without postponed annotations: FastAPI reads types that are made here, to the run's measure.

from collections.abc import Callable
from secrets import compare_digest
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, ConfigDict, Field, create_model
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clove import __version__
from clove.errors import CloveError
from clove.runs.loop import plain
from clove.serving.reception import Reception

LARGEST = 1e15  # no loss that says anything is larger, and distances stay finite
ROOM = 64  # characters that a loss may take, spaces included


class Problem(BaseModel):
    """What is wrong with a request."""

    detail: str


class ModelCard(BaseModel):
    """A model of the run."""

    number: int
    clients: int = Field(description="How many clients of the run use it.")
    href: str = Field(description="Where its parameters are.")


class Description(BaseModel):
    """What a newcomer needs to know to measure its losses."""

    method: str
    task: str = Field(description="What is learned: classification, regression, reconstruction.")
    loss: str = Field(description="The loss of a sample; `auto`: cross-entropy or squared error.")
    network: str = Field(description="The network's name in clove, or that it is of its own.")
    inputs: list[int] = Field(description="Shape of a sample.")
    outputs: int
    precision: str
    batch_statistics: int = Field(
        description="Batch normalisation by batches of so many samples; 0: by what was learned."
    )
    transform: str = Field(description="What the service does to losses before it compares them.")
    probes: int = Field(description="How many models to measure, and losses to send.")
    order: str
    seed: int | None = Field(description="Where clove makes the probes from a seed: that seed.")
    models: list[ModelCard]


class Place(BaseModel):
    """Where a newcomer belongs."""

    model: int
    sure: float = Field(description="1: no other group comes near; 0: two fit equally well.")
    distances: list[float | None] = Field(
        description="To the group of each model; null: the model has no group."
    )
    href: str = Field(description="Where the model's parameters are.")


class Tensors(Response):
    """A state dict in the format of safetensors."""

    media_type = "application/octet-stream"


WRONG: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem} for status in (400, 401, 404, 413, 422)
}
# What is said where tensors cannot be sent is no tensor: FastAPI would describe it as one.
PROBLEM = {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
TENSORS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "A state dict in the format of safetensors.",
        "content": {Tensors.media_type: {"schema": {"type": "string", "format": "binary"}}},
    },
    **{status: {"description": "A problem.", "content": PROBLEM} for status in WRONG},
}
MODEL = "/models/{}"
ORDER = "losses[i] is the mean over your samples of the loss of probe i, GET /probes/{i}"


def service(reception: Reception, token: str | None = None) -> FastAPI:
    """Return the application; with a token, only those who send it are served."""
    app = FastAPI(
        title="clove: newcomers",
        version=__version__,
        description=__doc__,
        docs_url=None,  # its page would load scripts from elsewhere
        redoc_url=None,
        dependencies=[] if token is None else [Depends(_bearer_of(token))],
        responses=WRONG,
    )
    app.add_middleware(Limit, most=1024 + ROOM * reception.probes)
    app.add_exception_handler(RequestValidationError, _in_words)
    description = describe(reception)

    @app.get("/")
    async def about() -> Description:
        """Say what there is to measure, and how."""
        return description

    _hands_out(app, "probe", reception.probes, reception.probe)
    _places(app, reception)
    _hands_out(app, "model", len(description.models), reception.model)
    return app


def _hands_out(app: FastAPI, what: str, known: int, content: Callable[[int], bytes]) -> None:
    """Let an application hand out models of a kind by their numbers."""

    @app.get(f"/{what}s/{{number}}", name=what, response_class=Tensors, responses=TENSORS)
    def hand_out(number: int) -> Response:
        if not 0 <= number < known:
            raise HTTPException(404, f"there is no {what} {number}: {known}, from 0")
        return Tensors(content(number))


def _places(app: FastAPI, reception: Reception) -> None:
    """Let an application say where newcomers belong."""
    LossVector = _loss_vector(reception)

    @app.post("/newcomers")
    async def place(newcomer: LossVector) -> Place:  # type: ignore[valid-type]
        """Say to which group somebody with these losses belongs."""
        try:
            found = reception.place(newcomer.losses)  # type: ignore[attr-defined]
        except (CloveError, ValueError) as error:
            raise HTTPException(422, str(error)) from error
        model = int(found.models[0])
        return Place(
            model=model,
            sure=float(found.margins[0]),
            distances=plain(found.distances[0]),
            href=MODEL.format(model),
        )


def describe(reception: Reception) -> Description:
    """Return what a newcomer needs to know."""
    result = reception.result
    settings, seeded = result.settings, reception.seeded
    users = result.users()
    return Description(
        method=settings.algorithm,
        task=settings.task,
        loss=settings.loss,
        network=settings.model,
        inputs=list(result.inputs),
        outputs=result.outputs,
        precision=settings.precision,
        batch_statistics=reception.question.batch_statistics,
        transform=reception.transform,
        probes=reception.probes,
        order=ORDER,
        seed=None if seeded is None else seeded.seed,
        models=[
            ModelCard(number=number, clients=int(clients), href=MODEL.format(number))
            for number, clients in enumerate(users)
        ],
    )


def _loss_vector(reception: Reception) -> type[BaseModel]:
    """Return the type of a request: as many losses as there are probes, each a plain number."""
    lowest = -LARGEST if reception.lowest is None else reception.lowest
    loss = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=lowest, le=LARGEST)]
    number = reception.probes
    losses = Annotated[list[loss], Field(min_length=number, max_length=number, description=ORDER)]
    return create_model("LossVector", __config__=ConfigDict(extra="forbid"), losses=(losses, ...))


def _bearer_of(token: str) -> Any:
    """Return what refuses everybody who does not send the token."""

    async def check(
        given: Annotated[
            HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))
        ],
    ) -> None:
        if given is None or not compare_digest(given.credentials.encode(), token.encode()):
            raise HTTPException(
                401, "send the token: Authorization: Bearer TOKEN", {"WWW-Authenticate": "Bearer"}
            )

    return check


async def _in_words(request: Request, error: Exception) -> JSONResponse:
    """Say what is wrong with a request, and where, without a word of what was sent."""
    assert isinstance(error, RequestValidationError)
    lines = [f"{_where(one['loc'])}: {one['msg']}" for one in error.errors()[:3]]
    more = len(error.errors()) - len(lines)
    detail = "; ".join([*lines, *([f"and {more} more"] if more > 0 else [])])
    return JSONResponse({"detail": detail.encode("ascii", "backslashreplace").decode()}, 422)


def _where(place: Any) -> str:
    """Return a place in a request as one would write it: `losses[2]`."""
    names = [f"[{part}]" if isinstance(part, int) else f".{part:.40}" for part in place[1:]]
    return "".join(names).lstrip(".") or str(place[0])


class Limit:
    """Refuses bodies that are longer than any that makes sense, before they fill the memory."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app, self._most = app, most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, counting what comes of its body."""
        taken = 0

        async def counted() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > self._most:
                raise HTTPException(413, f"a request has at most {self._most} bytes")
            return message

        await self._app(scope, counted, send)
