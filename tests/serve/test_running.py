"""The command in a process of its own: how it starts, what it refuses, how it ends."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from serve.small import asked, saved
from xmcascade.serve import Client


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("running") / "m")


class Started:
    """`xmcascade serve`, and what it says."""

    def __init__(self, *arguments, **environment):
        command = [sys.executable, "-m", "xmcascade", "serve", *map(str, arguments)]
        how = {"stderr": subprocess.PIPE, "text": True, "env": {**os.environ, **environment}}
        self.process = subprocess.Popen(command, **how)
        self.lines, self.listening, self.port = [], threading.Event(), 0
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line)
            if '"listening"' in line:
                self.port = int(json.loads(line)["url"].rstrip("/").rpartition(":")[2])
                self.listening.set()

    def ready(self):
        assert self.listening.wait(60), self.lines
        ends = time.monotonic() + 60
        while asked(self.port, "GET", "/readyz")[0] != 200:
            assert time.monotonic() < ends
            time.sleep(0.05)
        return self

    def ended(self):
        code = self.process.wait(60)
        self.reader.join()
        return code

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_starts_answers_and_ends_with_nothing_wrong(folder, number):
    with Started(folder, "--port", 0) as server:
        server.ready()
        assert Client(f"http://127.0.0.1:{server.port}").predict(["an apple"], 1)[0][0].label == "fruit"
        server.process.send_signal(number)
        assert server.ended() == 0
    events = [json.loads(line) for line in server.lines]  # every line is JSON
    assert [event["event"] for event in events if "event" in event] == ["listening", "ready", "stopped"]


def test_no_request_is_lost_when_it_is_asked_to_end(folder):
    with Started(folder, "--port", 0) as server:
        server.ready()
        answered, refused, lost, stop = [], [], [], threading.Event()

        def ask():
            while not stop.is_set():
                try:
                    connection = socket.create_connection(("127.0.0.1", server.port), timeout=20)
                except (ConnectionRefusedError, ConnectionResetError):  # nobody had taken it
                    refused.append(1)
                    return
                with connection:
                    body = b'{"texts": ["an apple in the wind"]}'
                    head = b"POST /v1/predict HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
                    head += b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
                    received = b""
                    try:
                        connection.sendall(head + body)
                        while more := connection.recv(65536):
                            received += more
                    except OSError as error:
                        lost.append(error)
                        return
                    (answered if b"200 OK" in received and b"timings" in received else lost).append(received)

        threads = [threading.Thread(target=ask) for _ in range(6)]
        for thread in threads:
            thread.start()
        time.sleep(0.5)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        status = asked(server.port, "GET", "/readyz")[0]
        code = server.ended()
        stop.set()
        for thread in threads:
            thread.join()
    assert (status, code) == (503, 0)
    assert len(answered) > 20
    assert refused
    assert not lost


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["no/such/model"], "there is no model folder here"),
        (["{folder}", "--host", "0.0.0.0"], "can be reached by others, and there is no key"),
        (["{folder}", "--port", "70000"], "port is 70000"),
        (["{folder}", "--set", "texts=0"], "texts is 0"),
        (["{folder}", "--set", "nope=1"], "there is no setting 'nope'"),
        (["{folder}", "--key-file", "no/such/file"], "the key cannot be read"),
        (["{folder}", "--runtime", "abacus"], "abacus"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_what_cannot_be_served_is_said_in_one_line(folder, arguments, told):
    arguments = [part.format(folder=folder) for part in arguments]
    port = [] if "--port" in arguments else ["--port", "0"]
    with Started(*arguments, *port) as server:
        assert server.ended() == 1
    lines = [line for line in server.lines if not line.startswith("{")]
    assert len(lines) == 1
    assert told in lines[0]
    assert "Remedy: " in lines[0]


def test_a_port_that_is_taken(folder):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with Started(folder, "--port", other.getsockname()[1]) as server:
            assert server.ended() == 1
    assert "cannot listen" in server.lines[-1]


def test_the_key_comes_from_the_environment_or_a_file(folder, tmp_path):
    (tmp_path / "key").write_text("from-file\n")
    with Started(folder, "--port", 0, XMCASCADE_API_KEY="from-environment") as server:
        server.ready()
        assert asked(server.port, "GET", "/v1/model")[0] == 401
        assert asked(server.port, "GET", "/v1/model", authorization="Bearer from-environment")[0] == 200
    with Started(folder, "--port", 0, "--key-file", tmp_path / "key") as server:
        server.ready()
        assert asked(server.port, "GET", "/v1/model", authorization="Bearer from-file")[0] == 200
    assert "from-" not in "".join(server.lines)


def test_asked_to_end_while_it_loads_it_is_not_ready(folder):
    from xmcascade.serve import Running

    server = Running(folder)
    server.service.stop()
    server.service.ready()
    assert server.service.status == "stopping"
    server.service.close()


def test_a_client_that_says_nothing_is_let_go(folder, monkeypatch):
    from xmcascade.serve import Running, running

    monkeypatch.setattr(running, "HEADER_SECONDS", 0.5)
    with Running(folder) as server, socket.create_connection(("127.0.0.1", server.port), timeout=10) as slow:
        slow.sendall(b"GET /livez HTTP/1.1\r\nx-slow: ")
        begun = time.monotonic()
        assert slow.recv(10) == b""
        assert 0.3 < time.monotonic() - begun < 5
    with Running(folder) as server, socket.create_connection(("127.0.0.1", server.port), timeout=10) as slow:
        slow.sendall(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert b"alive" in slow.recv(65536)
        slow.sendall(b"\r\n")  # which begins no request
        assert slow.recv(10) == b""
