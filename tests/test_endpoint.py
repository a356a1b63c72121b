"""The endpoint by itself: bodies in parts, bodies without end, and clients that leave."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from starlette.requests import Request

from aces import ACES
from aces.model import endpoint, requests
from aces.model.endpoint import Endpoint
from aces.runtime import Stopped
from small_models import half_space_model

DEFAULTS = {"n0": 10, "n": 50, "alpha": 0.001}


@pytest.fixture(scope="module")
def made() -> Endpoint:
    return Endpoint(half_space_model(), defaults=DEFAULTS, patience=60)


def answer(made: Endpoint, monkeypatch, *messages: dict) -> tuple[int, dict, int]:
    """The status and content of the answer to these messages of a client, and how many of them
    were taken.
    """
    monkeypatch.setattr(endpoint, "_end_with_the_process", lambda desk: None)
    left = list(messages)

    async def receive() -> dict:
        return left.pop(0) if left else await asyncio.Event().wait()

    scope = {"type": "http", "method": "POST", "headers": [], "query_string": b""}
    response = asyncio.run(made.answer(Request(scope, receive)))
    return response.status_code, json.loads(response.body), len(messages) - len(left)


def part(body: bytes, more: bool = True) -> dict:
    return {"type": "http.request", "body": body, "more_body": more}


def body() -> bytes:
    channels, height, width = half_space_model().shape
    return json.dumps({"inputs": [[[[0.5] * width] * height] * channels]}).encode()


def test_a_body_in_parts_is_answered(made, monkeypatch):
    text = body()
    status, content, _ = answer(made, monkeypatch, part(text[:9]), part(text[9:], more=False))
    assert status == 200 and len(content["predictions"]) == 1


def test_a_body_without_end_is_refused_before_it_fills_the_memory(made, monkeypatch):
    monkeypatch.setattr(requests, "MOST_BYTES", 1000)
    status, content, taken = answer(made, monkeypatch, *[part(bytes(400)) for _ in range(100)])
    assert status == 400 and "expected at most 1,000" in content["message"]
    assert taken == 3


def test_what_the_model_refuses_is_a_bad_request(made, monkeypatch):
    text = json.dumps(json.loads(body()) | {"params": {"n": 5}}).encode()
    status, content, _ = answer(made, monkeypatch, part(text, more=False))
    assert status == 400 and "n=5 is too small for alpha=0.001" in content["message"]
    assert content["error_code"] == "INVALID_PARAMETER_VALUE" and made.desk.in_flight == 0


def test_nothing_is_computed_for_a_request_that_was_given_up_before_its_turn(made, monkeypatch):
    monkeypatch.setattr(ACES, "at", lambda *_, **__: pytest.fail("it was begun"))
    ticket = made.desk.admit(10)
    ticket.gone.set()
    with pytest.raises(Stopped):
        made._certify(None, ticket)
    assert made.desk.in_flight == 0


def test_handlers_of_signals_are_set_in_the_main_thread_alone(made):
    """Python refuses them elsewhere."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(endpoint._end_with_the_process, made.desk).result()


def test_a_client_that_leaves_while_it_sends_is_no_defect(made, monkeypatch):
    status, content, _ = answer(made, monkeypatch, part(b"{"), {"type": "http.disconnect"})
    assert status == 499 and content["message"] == "the client is gone"
