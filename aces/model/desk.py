"""Which requests a server takes on, and when it stops working for one.

A server has a speed (draws a second on one core) and a patience (how long a client waits at most).
What cannot be done in that time is refused at once, instead of being drawn for nobody. Requests are
light or heavy. Each kind has threads of its own, so that a light request never waits for a heavy
one.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

LIGHT_SECONDS = 1.0  # of drawing on one core: what takes longer is heavy


class Busy(Exception):
    """The server cannot take on this request now; `seconds` after which it may be asked again."""

    def __init__(self, message: str, *, seconds: float):
        super().__init__(message)
        self.seconds = seconds


@dataclass(frozen=True, eq=False)
class Ticket:
    """A request that was taken on."""

    draws: int
    heavy: bool
    deadline: float  # of the monotonic clock
    closing: threading.Event  # set when the server ends
    gone: threading.Event = field(default_factory=threading.Event)  # set when the client is gone

    @property
    def late(self) -> bool:
        return time.monotonic() >= self.deadline

    def stopped(self) -> bool:
        """Whether nobody waits for the answer any more."""
        return self.gone.is_set() or self.closing.is_set() or self.late


class Desk:
    """Takes requests on as long as their draws can be made in time.

    speed: draws a second of one core; patience: seconds; light, heavy: threads for either kind.
    """

    def __init__(
        self,
        *,
        speed: float,
        patience: float,
        light: int,
        heavy: int,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.speed, self.patience = speed, patience
        self._threads = {False: light, True: heavy}
        self._waiting = {False: 0, True: 0}  # draws of the requests in flight
        self._lock, self._closing, self._clock = threading.Lock(), threading.Event(), clock

    @property
    def in_flight(self) -> int:
        """Draws that were taken on and not yet given back."""
        return sum(self._waiting.values())

    def admit(self, draws: int) -> Ticket:
        """A ticket for so many draws; Busy where they could not be made in time."""
        heavy = draws > LIGHT_SECONDS * self.speed
        most = self.speed * self.patience
        if draws > most:
            raise Busy(
                f"a request of up to {draws:,} draws: this server makes about {self.speed:,.0f} "
                f"a second for one request and waits at most {self.patience:g} s; ask for at "
                f"most {int(most):,}",
                seconds=self.patience,
            )
        with self._lock:
            if self._closing.is_set():
                raise Busy("the server is shutting down", seconds=self.patience)
            ahead = self._waiting[heavy]
            if ahead + draws > most * self._threads[heavy]:
                seconds = ahead / (self.speed * self._threads[heavy])
                raise Busy(
                    f"the server is busy: {ahead:,} draws are asked for already; try again "
                    "later, or ask for fewer draws",
                    seconds=seconds,
                )
            self._waiting[heavy] += draws
        return Ticket(draws, heavy, self._clock() + self.patience, self._closing)

    def release(self, ticket: Ticket) -> None:
        """The request is answered, or given up."""
        with self._lock:
            self._waiting[ticket.heavy] -= ticket.draws

    def close(self) -> None:
        """Stop all work, and take no more on."""
        self._closing.set()
