"""Which requests a server takes on, and when it stops working for one: without HTTP."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator

import numpy as np
import pytest
import torch

from aces.model.desk import Busy, Desk
from aces.model.endpoint import Endpoint
from small_models import half_space_model

torch.set_num_threads(1)

# Another alpha than that of the library, which has defaults too.
DEFAULTS = {"n0": 50, "n": 200, "alpha": 0.01, "adaptive": False}


def desk(**changes) -> Desk:
    return Desk(**{"speed": 100.0, "patience": 10.0, "light": 2, "heavy": 1} | changes)


# ---------------------------------------------------------------- the desk


def test_more_than_one_request_can_have_in_time_is_refused_at_once():
    with pytest.raises(Busy, match="ask for at most 1,000"):
        desk().admit(1001)
    assert desk().admit(1000).heavy


def test_draws_in_flight_are_bounded_by_speed_and_patience():
    it = desk()
    first = it.admit(900)
    with pytest.raises(Busy, match="busy: 900 draws") as caught:
        it.admit(200)
    assert caught.value.seconds == pytest.approx(9.0)
    it.release(first)
    assert it.in_flight == 0 and it.admit(200).draws == 200


def test_light_requests_do_not_wait_for_heavy_ones():
    it = desk()
    it.admit(1000)
    light = [it.admit(100) for _ in range(20)]  # two threads, ten seconds
    assert not any(ticket.heavy for ticket in light)
    with pytest.raises(Busy, match="busy"):
        it.admit(100)


def test_a_ticket_ends_with_its_time_its_client_or_the_server():
    now = time.monotonic()
    it = desk(clock=lambda: now - 11)
    assert it.admit(10).late and it.admit(10).stopped()
    ticket = desk().admit(10)
    assert not ticket.stopped()
    ticket.gone.set()
    assert ticket.stopped()
    it = desk()
    ticket = it.admit(10)
    it.close()
    assert ticket.stopped()
    with pytest.raises(Busy, match="shutting down"):
        it.admit(1)


# ---------------------------------------------------------------- the endpoint


class Asked:
    """As much of a starlette request as is used; the client leaves when `leaves` is set."""

    def __init__(self, *, leaves: threading.Event | None = None, **params):
        image = np.full((1, 1, 4, 4), 0.6).tolist()
        self._body = json.dumps({"inputs": image, "params": params}).encode()
        self.headers, self.query_params = {"content-type": "application/json"}, {}
        self._leaves = leaves

    async def stream(self) -> AsyncIterator[bytes]:
        yield self._body

    async def receive(self) -> dict:
        while self._leaves is None or not self._leaves.is_set():
            await asyncio.sleep(0.01)
        return {"type": "http.disconnect"}


@pytest.fixture(scope="module")
def endpoint() -> Endpoint:
    made = Endpoint(half_space_model(), defaults=DEFAULTS, patience=60.0)
    made.desk.speed = 1e9  # so that a large request is taken on
    return made


def ask(endpoint: Endpoint, asked: Asked) -> tuple[int, dict]:
    response = asyncio.run(endpoint.answer(asked))
    return response.status_code, json.loads(response.body)


def test_an_answer_has_all_that_it_depends_on(endpoint):
    status, answer = ask(endpoint, Asked(seed=3))
    (row,) = answer["predictions"]
    assert status == 200 and row["seed"] == 3 and row["alpha"] == 0.01
    assert row["sigma"] == 0.25 and row["theta"] == 0.9 and row["invalid"] == 0
    assert row["rule"] == "confident" and row["precision"] == "float32"


def test_a_parameter_that_is_null_has_its_default(endpoint):
    status, answer = ask(endpoint, Asked(n0=None, n=None, alpha=None, theta=None, seed=None))
    assert status == 200
    (row,) = answer["predictions"]
    assert (row["n0"], row["n"], row["alpha"], row["theta"]) == (50, 200, 0.01, 0.9)


def test_work_ends_when_the_client_is_gone(endpoint):
    leaves = threading.Event()
    threading.Timer(0.3, leaves.set).start()
    status, _ = ask(endpoint, Asked(leaves=leaves, n=1_900_000))
    assert status == 499 and endpoint.desk.in_flight == 0


def test_work_ends_when_its_time_is_up(endpoint, monkeypatch):
    monkeypatch.setattr(endpoint.desk, "patience", 0.3)
    status, answer = ask(endpoint, Asked(n=1_900_000))
    assert status == 504 and "longer than 0.3 s" in answer["message"]
    assert endpoint.desk.in_flight == 0


def test_what_is_too_much_is_answered_with_503_and_when_to_come_back(endpoint, monkeypatch):
    monkeypatch.setattr(endpoint.desk, "speed", 1000.0)
    response = asyncio.run(endpoint.answer(Asked(n=1_900_000)))
    assert response.status_code == 503 and int(response.headers["retry-after"]) >= 1
    assert ask(endpoint, Asked(n=200))[0] == 200


def test_a_server_that_ends_stops_its_work():
    endpoint = Endpoint(half_space_model(), defaults=DEFAULTS, patience=60.0)
    endpoint.desk.speed = 1e9
    threading.Timer(0.3, endpoint.desk.close).start()
    status, answer = ask(endpoint, Asked(n=1_900_000))
    assert status == 503 and "shutting down" in answer["message"]
    assert ask(endpoint, Asked(n=200))[0] == 503
