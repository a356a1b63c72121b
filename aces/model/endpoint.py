"""How `mlflow models serve` answers with this model: `POST /invocations`.

MLflow's own handler drops parameters it does not know, goes on computing for clients that have
left, puts the whole input before an error message, and can be started more often than the machine
can work. So this module takes its place while the model is served: MLflow loads the model before it
builds the application, and asks for the function that guards its handler only then.
"""

import asyncio
import functools
import json
import math
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aces import runtime
from aces.errors import InputError
from aces.model.composed import ACES
from aces.model.desk import Busy, Desk, Ticket
from aces.model.requests import Request, as_row, check_size, read_request
from aces.runtime import Stopped

if TYPE_CHECKING:
    import starlette.requests
    import starlette.responses

GRACE_SECONDS = 3.0  # after SIGTERM the process ends, whatever still runs
ANSWER_SHARE = 0.9  # we stop after this share of MLflow's time limit, to say why it took too long
MEASURE_SECONDS = 0.3  # of drawing at the start, to know the speed
BAD_REQUEST, GONE, UNAVAILABLE, TIMEOUT = 400, 499, 503, 504
_CODES = {
    BAD_REQUEST: "INVALID_PARAMETER_VALUE",
    GONE: "CANCELLED",
    UNAVAILABLE: "TEMPORARILY_UNAVAILABLE",
    TIMEOUT: "DEADLINE_EXCEEDED",
}

Handler = Callable[["starlette.requests.Request"], Awaitable["starlette.responses.Response"]]


class Endpoint:
    """Answers requests with one model. `defaults`: the parameters a request may leave out."""

    def __init__(self, model: ACES, *, defaults: dict[str, Any], patience: float):
        self._model, self._defaults = model, defaults
        cores = runtime.cores()
        # One core stays free for light requests where there is more than one.
        light, heavy = cores, max(1, cores - 1)
        self.desk = Desk(
            speed=measured_speed(model), patience=ANSWER_SHARE * patience, light=light, heavy=heavy
        )
        self._pools = {
            False: ThreadPoolExecutor(light, "light"),
            True: ThreadPoolExecutor(heavy, "heavy"),
        }
        self._readers = ThreadPoolExecutor(2, "reader")
        self._ends_with_the_process = False

    async def answer(self, request: "starlette.requests.Request") -> "starlette.responses.Response":
        """The response to one HTTP request; its work ends with the client, the time limit or the
        process.
        """
        from starlette.requests import ClientDisconnect

        if not self._ends_with_the_process:
            # At the first request and not before: uvicorn sets its own handlers of signals once the
            # model is loaded, and would replace ours.
            self._ends_with_the_process = True
            _end_with_the_process(self.desk)
        loop = asyncio.get_running_loop()
        try:
            asked = await loop.run_in_executor(
                self._readers,
                functools.partial(
                    read_request,
                    await _body(request),
                    request.headers.get("content-type", "").lower(),
                    dict(request.query_params),
                    model=self._model,
                    defaults=self._defaults,
                ),
            )
            ticket = self.desk.admit(asked.draws)
        except InputError as error:
            return _failure(BAD_REQUEST, str(error))
        except Busy as error:
            return _failure(UNAVAILABLE, str(error), retry=error.seconds)
        except ClientDisconnect:
            return _failure(GONE, "the client is gone")
        work = loop.run_in_executor(self._pools[ticket.heavy], self._certify, asked, ticket)
        client: asyncio.Future[Any] = asyncio.ensure_future(_disconnected(request))
        both: set[asyncio.Future[Any]] = {work, client}
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                ticket.gone.set()
            return _success(await work)
        except InputError as error:
            return _failure(BAD_REQUEST, str(error))
        except Stopped:
            return self._unfinished(ticket)
        finally:
            ticket.gone.set()  # also where this task was cancelled: the thread stops drawing
            client.cancel()

    def _certify(self, asked: Request, ticket: Ticket) -> list[dict[str, Any]]:
        """Runs in a thread of the pool."""
        try:
            if ticket.stopped():
                raise Stopped
            model = self._model.at(theta=asked.theta).running(
                replace(self._model.runtime, stop=ticket.stopped)
            )
            return [as_row(it) for it in model.certify(asked.images, **asked.options)]
        finally:
            self.desk.release(ticket)

    def _unfinished(self, ticket: Ticket) -> "starlette.responses.Response":
        if ticket.closing.is_set():
            return _failure(UNAVAILABLE, "the server is shutting down")
        if ticket.late:
            return _failure(
                TIMEOUT,
                f"{ticket.draws:,} draws took longer than {self.desk.patience:g} s: ask for "
                "fewer, or set MLFLOW_SCORING_SERVER_REQUEST_TIMEOUT to more seconds",
            )
        return _failure(GONE, "the client is gone")


def measured_speed(model: ACES) -> float:
    """Draws a second of one request, measured on a grey image."""
    import numpy as np

    assert model.shape is not None
    grey = np.full((1, *model.shape), 0.5, dtype=np.float32)
    draws = 128
    model.predict(grey, n=draws)  # the first call prepares the network
    while True:
        start = time.perf_counter()
        model.predict(grey, n=draws)
        seconds = time.perf_counter() - start
        if seconds >= MEASURE_SECONDS:
            return draws / seconds
        draws *= 2


def install(endpoint: Endpoint) -> None:
    """Let the application that MLflow is about to build answer with `endpoint`."""
    from mlflow.pyfunc import scoring_server

    guard = scoring_server._async_catch_mlflow_exception

    def decorate(handler: Handler) -> Handler:
        theirs = guard(handler)

        @functools.wraps(handler)
        async def ours(request: "starlette.requests.Request") -> "starlette.responses.Response":
            kind = request.headers.get("content-type", "").lower()
            if kind.startswith(("application/json", "image/")) or not kind:
                return await endpoint.answer(request)
            return await theirs(request)  # refuses other kinds

        return ours

    scoring_server._async_catch_mlflow_exception = decorate


def _end_with_the_process(desk: Desk) -> None:
    """At SIGTERM and SIGINT stop all work, then do what the handler before this one does. After a
    grace period the process ends, whatever still runs.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    for number in (signal.SIGTERM, signal.SIGINT):
        before = signal.getsignal(number)

        def stop(number: int, frame: Any, before: Any = before) -> None:
            desk.close()
            last = threading.Timer(GRACE_SECONDS, os._exit, (128 + number,))
            last.daemon = True
            last.start()
            if callable(before):
                before(number, frame)
            elif before == signal.SIG_DFL:
                signal.signal(number, signal.SIG_DFL)
                signal.raise_signal(number)

        signal.signal(number, stop)


async def _body(request: "starlette.requests.Request") -> bytes:
    """The body of a request; InputError as soon as it is longer than any sensible one."""
    body = bytearray()
    async for part in request.stream():
        body += part
        check_size(len(body))
    return bytes(body)


async def _disconnected(request: "starlette.requests.Request") -> None:
    """Returns when the client is gone. The body was read already, so nothing else can arrive."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _success(rows: list[dict[str, Any]]) -> "starlette.responses.Response":
    from starlette.responses import Response

    return Response(json.dumps({"predictions": rows}), media_type="application/json")


def _failure(
    status: int, message: str, *, retry: float | None = None
) -> "starlette.responses.Response":
    from starlette.responses import Response

    headers = {} if retry is None else {"Retry-After": str(max(1, math.ceil(retry)))}
    body = json.dumps({"error_code": _CODES[status], "message": message})
    return Response(body, status_code=status, media_type="application/json", headers=headers)
