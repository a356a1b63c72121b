"""A server that never answers."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def server(*, drip: bool) -> Iterator[str]:
    """A server that takes connections and says nothing, or sends its answer byte by byte."""
    stop, listening = threading.Event(), socket.create_server(("127.0.0.1", 0))
    listening.settimeout(0.1)

    def serve(connection: socket.socket) -> None:
        answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Padding: "
        with connection:
            while not stop.wait(0.1):
                try:
                    if drip:
                        connection.sendall(answer[:1])
                        answer = answer[1:] or b"x"
                except OSError:
                    return

    def listen() -> None:
        while not stop.is_set():
            try:
                connection = listening.accept()[0]
            except TimeoutError:
                continue
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    try:
        yield f"http://user:secret@127.0.0.1:{listening.getsockname()[1]}"
    finally:
        stop.set()
        thread.join()
        listening.close()
