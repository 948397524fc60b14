"""The HTTP interface over a real socket: right answers, and one clear refusal for everything else."""

import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import pytest

from serve.small import LABELS, NASTY, TEXTS, NearestNeighbours, asked, saved
from xmcascade import load
from xmcascade.report.explain import explain
from xmcascade.serve import Client, Limits, Running


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("served") / "fruit")


@pytest.fixture(scope="module")
def server(folder):
    limits = Limits(body_bytes=20_000, text_characters=1000, texts=16, body_seconds=1.0)
    with Running(folder, limits=limits) as running:
        yield running


def get(server, path, **headers):
    return asked(server.port, "GET", path, **headers)


def post(server, body, path="/v1/predict", **headers):
    return asked(server.port, "POST", path, body, **headers)


# Answers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"k": 1},
        {"k": 3, "threshold": 0.5},
        {"threshold": 0.01},
        {"k": 2, "allowed_labels": ["pear", "storm"]},
    ],
    ids=str,
)
def test_answers_are_the_models(server, folder, how):
    status, _, told = post(server, {"texts": TEXTS[:6], **how})
    expected = load(folder).predict(TEXTS[:6], **how)
    assert status == 200
    assert told["model"] == "fruit"
    assert told["explanations"] is None
    assert told["predictions"] == [[found._asdict() for found in row] for row in expected]
    assert told["timings"]["batch_texts"] >= 6


def test_many_at_once_get_the_same_answers_as_alone(server, folder):
    model = load(folder)
    texts = [f"{text} {i % 7}" for i, text in enumerate(TEXTS * 4)]
    alone = [model.predict([text], 3)[0] for text in texts]
    clients = threading.local()

    def ask(text):
        if not hasattr(clients, "own"):
            clients.own = Client(server.url)
        return clients.own.predict([text], 3)[0]

    with ThreadPoolExecutor(12) as pool:
        assert list(pool.map(ask, texts)) == alone


def test_explanations(server, folder):
    status, _, told = post(server, {"texts": ["an apple in the wind"], "k": 2, "explain": True})
    expected = explain(load(folder), "an apple in the wind", 2).to_dict()
    assert status == 200
    (why,) = told["explanations"]
    assert [label["name"] for label in why["labels"]] == [label["name"] for label in expected["labels"]]
    assert why["labels"][0]["paths"][0][-1]["words"][0]["word"] == "apple"


def test_explanations_of_labels_that_are_allowed(server):
    status, _, told = post(server, {"texts": ["an apple"], "allowed_labels": ["storm"], "explain": True})
    assert status == 200
    assert [label["name"] for label in told["explanations"][0]["labels"]] == ["storm"]


def test_labels_are_found_by_name(server):
    def found(query):
        return [own["label"] for own in get(server, f"/v1/labels?q={query}")[2]["labels"]]

    assert found("APP") == ["apple"]
    assert found("")[:2] == ["fruit", "weather"]
    assert found("r")[:1] == ["fruit"]
    assert found("%3Cscript") == [NASTY]
    assert found("%0A") == found("")
    assert found("nothing%20of%20the%20kind") == []


def test_whole_names_come_before_beginnings_before_frequency(tmp_path):
    labels = [["sea"], ["seaside"], ["deep sea"], ["seaside", "deep sea"], ["deep sea"], ["deep sea"]] * 4
    with Running(saved(tmp_path / "m", labels=labels)) as server:
        told = get(server, "/v1/labels?q=sea")[2]["labels"]
    assert [own["label"] for own in told] == ["sea", "seaside", "deep sea"]


def test_a_whole_name_is_found_among_many_that_contain_it(tmp_path):
    labels = [[f"Ab {i} part" for i in range(2500)], ["zz art"], ["Art"]] * 8
    with Running(saved(tmp_path / "m", labels=labels)) as server:
        assert get(server, "/v1/labels?q=art&limit=1")[2]["labels"][0]["label"] == "Art"


def test_the_tree_a_branch_at_a_time(server, folder):
    model = load(folder)
    seen = []

    def walk(level, node):
        _, _, told = get(server, f"/v1/tree?level={level}&node={node}")
        for child in told["children"]:
            if told["level"] == len(told["levels"]) - 1:
                seen.append(child["name"])
            else:
                walk(told["level"], child["node"])

    walk(-1, 0)
    assert sorted(seen) == sorted(model.label_names)
    some = get(server, "/v1/tree?limit=1&offset=1")[2]
    assert (len(some["children"]), some["offset"], some["children"][0]["node"]) == (1, 1, 1)
    path = get(server, "/v1/labels?q=pear")[2]["labels"][0]["path"]
    assert len(path) == len(some["levels"])


def test_a_model_without_a_tree(tmp_path):
    with Running(saved(tmp_path / "near", NearestNeighbours)) as server:
        status, _, told = get(server, "/v1/tree")
        assert (status, told["error"]["code"]) == (404, "not_found")
        assert get(server, "/v1/model")[2]["levels"] == []
        status, _, told = post(server, {"texts": ["apple"], "explain": True})
        assert status == 200
        assert told["explanations"][0]["opinions"][0]["name"] == "words of neighbours"


def test_what_answers_here(server):
    told = get(server, "/v1/model")[2]
    assert (told["model"], told["kind"], told["labels"], told["documents"]) == ("fruit", "xr-linear", 6, 24)
    assert told["limits"]["texts"] == 16


def test_health_and_metrics(server):
    assert get(server, "/livez")[2] == {"status": "alive"}
    assert get(server, "/readyz")[2] == {"status": "ready"}
    post(server, {"texts": ["apple", "pear"]})
    text = get(server, "/metrics")[2].decode()
    assert 'xmcascade_requests_total{method="POST",route="/v1/predict",status="200"}' in text
    assert "xmcascade_ready 1.0" in text
    assert 'xmcascade_model_loads_total{model="fruit",result="loaded"} 1.0' in text


def test_every_answer_has_an_id_and_the_headers(server):
    for path in ("/", "/livez", "/v1/model", "/nope", "/page/main.js"):
        _, headers, _ = get(server, path)
        assert headers["x-request-id"]
        assert headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
    assert get(server, "/livez", **{"x-request-id": "my-id.1"})[1]["x-request-id"] == "my-id.1"
    assert get(server, "/livez", **{"x-request-id": "<b>"})[1]["x-request-id"] != "<b>"


# Refusals -------------------------------------------------------------------------------------------------

DEEP = b'{"texts":' + b"[" * 5000 + b"]" * 5000 + b"}"


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        (b"{", 422, "the body is no JSON, from character 1 on"),
        (b"", 422, "required"),
        (b"[]", 422, ""),
        (b'{"texts":"apple"}', 422, "texts"),
        (b'{"texts":[]}', 422, "at least 1"),
        (b'{"texts":[1]}', 422, "texts.0"),
        (b'{"texts":["\\ud800"]}', 422, "unicode"),
        (b'{"texts":["a"],"k":0}', 422, "k"),
        (b'{"texts":["a"],"k":1000000000}', 422, "k"),
        (b'{"texts":["a"],"k":2.5}', 422, "k"),
        (b'{"texts":["a"],"k":true}', 422, "k"),
        (b'{"texts":["a"],"threshold":1.5}', 422, "threshold"),
        (b'{"texts":["a"],"threshold":NaN}', 422, "threshold"),
        (b'{"texts":["a"],"nope":1}', 422, "nope"),
        (b'{"texts":["a"],"allowed_labels":["no such label"]}', 404, "no such label"),
        (b'{"texts":["a"],"allowed_labels":[]}', 422, "allowed_labels"),
        (b'{"texts":["a"],"model":"other"}', 404, "other"),
        (b'{"texts":["a"],"threshold":"auto"}', 409, "threshold"),
        (json.dumps({"texts": ["a" * 1001]}).encode(), 422, "1000"),
        (json.dumps({"texts": ["a"] * 17}).encode(), 422, "16"),
        (json.dumps({"texts": ["a"] * 9, "explain": True}).encode(), 422, "explain"),
        (json.dumps({"texts": ["a"], "k": 21, "explain": True}).encode(), 422, "explain"),
        (b'{"texts":["' + b"a" * 30_000 + b'"]}', 413, "20,000"),
        (b"\xff\xfe\x00", 422, ""),
        (DEEP, 422, ""),
    ],
    ids=lambda value: str(value)[:40],
)
def test_bad_requests_get_one_clear_refusal_and_the_next_good_one_its_answer(server, body, status, told):
    found, headers, answer = post(server, body)
    assert found == status, answer
    error = answer["error"]
    assert set(error) == {"code", "message", "remedy", "request_id"}
    assert told in error["message"] or told in error["remedy"]
    assert error["request_id"] == headers["x-request-id"]
    assert post(server, {"texts": ["an apple"], "k": 1})[2]["predictions"][0][0]["label"] == "fruit"


def test_odd_texts_are_answered(server):
    texts = ["", " ", "\x00\x00", "apple\x00pie", "\u202e", "\U0001f34e" * 900, "a\nb\r\nc"]
    status, _, told = post(server, {"texts": texts})
    assert status == 200
    assert len(told["predictions"]) == len(texts)


@pytest.mark.parametrize(
    "path", ["/nope", "/page/index.html", "/page/..%2fapp.py", "/page/app.py", "/docs", "/v1/"]
)
def test_there_is_nothing_else(server, path):
    status, _, told = get(server, path)
    assert (status, told["error"]["code"]) == (404, "not_found")


def test_wrong_methods_are_told_the_right_one(server):
    status, headers, told = asked(server.port, "DELETE", "/v1/predict")
    assert (status, headers["allow"], told["error"]["code"]) == (405, "POST", "wrong_method")


def test_a_very_large_body_is_answered_before_it_is_read(server):
    status, headers, told = post(server, b"x" * 30_000_000)
    assert (status, told["error"]["code"], headers["connection"]) == (413, "too_large", "close")


def raw(server, *parts, pause=0.0):
    """What comes back for bytes that are sent as they are."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        for part in parts:
            connection.sendall(part)
            time.sleep(pause)
        received = b""
        while True:
            try:
                more = connection.recv(65536)
            except ConnectionResetError:
                break
            received += more
            if not more or b"request_id" in received:
                break
    return received


HEAD = b"POST /v1/predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"


def test_a_chunked_body_is_counted_as_it_comes(server):
    chunk = b"1000\r\n" + b"x" * 4096 + b"\r\n"
    answer = raw(server, HEAD + b"transfer-encoding: chunked\r\n\r\n", *[chunk] * 10)
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"too_large" in answer


def test_a_slow_body_is_refused(server):
    answer = raw(server, HEAD + b"content-length: 100\r\n\r\n{", pause=0.1)
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"too_slow" in answer


def test_nonsense_is_no_request(server):
    assert raw(server, b"\x16\x03\x01 hello\r\n\r\n").startswith(b"HTTP/1.1 400")
    assert post(server, {"texts": ["an apple"]})[0] == 200


def until(condition):
    ends = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.01)


@contextmanager
def held_up(server):
    """The model answers only when the event that this gives is set."""
    gate, model = threading.Event(), server.service.shelf.get().model
    predict = model.predict
    model.predict = lambda *args, **how: (gate.wait(20), predict(*args, **how))[1]
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(post, server, {"texts": ["apple"]})
        until(lambda: server.service.batcher.waiting_tokens == 0 and first.running())
        time.sleep(0.3)
        yield gate, partial(pool.submit, post, server)
        gate.set()
    assert first.result()[0] in (200, 504)


def test_more_than_can_be_answered_is_refused_at_once(folder):
    with Running(folder, limits=Limits(queue_seconds=0.05)) as server, held_up(server) as (gate, ask):
        waiting = ask({"texts": ["pear"]})
        until(lambda: server.service.batcher.n_waiting == 1)
        server.service.batcher.done = 1.0, 1.0
        begun = time.monotonic()
        status, headers, told = post(server, {"texts": ["pear"]})
        assert time.monotonic() - begun < 1
        assert (status, told["error"]["code"]) == (429, "busy")
        assert int(headers["retry-after"]) >= 1
        gate.set()
        assert waiting.result()[0] == 200


def test_too_many_requests_in_flight_are_refused(folder):
    with Running(folder, limits=Limits(in_flight=2)) as server, held_up(server) as (gate, ask):
        waiting = ask({"texts": ["pear"]})
        until(lambda: server.service.batcher.n_waiting == 1)
        assert post(server, {"texts": ["pear"]})[0] == 429
        assert get(server, "/readyz")[0] == 200  # who watches is always answered
        gate.set()
        assert waiting.result()[0] == 200


def test_what_nobody_waits_for_any_more_is_not_done(folder):
    with Running(folder) as server, held_up(server) as (gate, _):
        waiting = socket.create_connection(("127.0.0.1", server.port))
        body = b'{"texts": ["pear"]}'
        waiting.sendall(HEAD + b"content-length: %d\r\n\r\n" % len(body) + body)
        until(lambda: server.service.batcher.n_waiting == 1)
        (job,) = server.service.batcher._jobs
        waiting.close()
        until(job.future.cancelled)
        gate.set()


def test_what_takes_too_long_is_said_to(folder):
    with Running(folder, limits=Limits(deadline_seconds=0.5)) as server, held_up(server) as (gate, _):
        status, _, told = post(server, {"texts": ["apple"]})
        assert (status, told["error"]["code"]) == (504, "too_late")
        gate.set()
        assert post(server, {"texts": ["apple"]})[0] == 200


def test_a_fault_of_ours_tells_nothing_of_itself(folder):
    with Running(folder) as server:
        own = server.service.shelf.get()
        own.model.predict = lambda *args, **how: 1 / 0
        status, _, told = post(server, {"texts": ["apple"]})
        assert (status, told["error"]["code"]) == (500, "fault_of_ours")
        assert "Zero" not in json.dumps(told)


def test_labels_of_the_world_are_complete():
    assert NASTY in {label for row in LABELS for label in row}
