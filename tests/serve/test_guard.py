"""Keys, names, origins, logs: closed unless it is opened."""

import json
import logging
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from serve.small import asked, saved
from xmcascade.errors import SettingError
from xmcascade.serve import Client, Limits, Running, ServerError
from xmcascade.serve.guard import COOKIE, OPEN, Keys
from xmcascade.serve.running import check_address

KEY = "correct horse battery staple"
SECRET_TEXT = "apple of a patient whose name is nobody's business"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("guarded") / "m")


@pytest.fixture(scope="module")
def server(folder):
    with Running(folder, key=KEY) as running:
        yield running


def routes(server):
    spec = asked(server.port, "GET", "/openapi.json", authorization=f"Bearer {KEY}")[2]
    assert len(spec["paths"]) >= 10
    return [(method.upper(), path) for path, methods in spec["paths"].items() for method in methods]


def test_every_route_but_live_and_ready_needs_the_key(server):
    for method, path in [
        *routes(server),
        ("GET", "/openapi.json"),
        ("GET", "/nope"),
        ("GET", "/page/main.js"),
    ]:
        body = {"texts": ["a"], "key": "x"} if method == "POST" else None
        for how in (
            {},
            {"authorization": "Bearer wrong"},
            {"authorization": "Basic eDp5"},
            {"cookie": f"{COOKIE}=1.2"},
        ):
            status = asked(server.port, method, path.replace("{name}", "main.js"), body, **how)[0]
            if path in OPEN:
                assert status == 200
            elif path == "/v1/session":
                assert status == 422
            else:
                assert status == 401, (method, path, how)


def test_with_the_key_they_answer(server):
    for method, path in routes(server):
        if method == "GET":
            path = path.replace("{name}", "main.js")
            assert asked(server.port, method, path, authorization=f"Bearer {KEY}")[0] == 200, path


def test_a_browser_logs_in_once(server):
    status, headers, _ = asked(server.port, "POST", "/v1/session", {"key": KEY})
    assert status == 204
    cookie = headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=lax" in cookie.lower()
    assert KEY not in cookie
    assert asked(server.port, "GET", "/v1/model", cookie=cookie.partition(";")[0])[0] == 200
    status, _, told = asked(server.port, "POST", "/v1/session", {"key": "wrong"})
    assert (status, told["error"]["code"]) == (401, "no_key")


def test_the_page_without_a_key_is_a_form_that_needs_no_script(server):
    status, headers, page = asked(server.port, "GET", "/", accept="text/html")
    assert status == 401
    assert b'<form method="post">' in page
    assert b"<script" not in page
    assert "script-src" not in headers["content-security-policy"]
    form = {"content-type": "application/x-www-form-urlencoded"}
    status, headers, _ = asked(server.port, "POST", "/", b"key=correct+horse+battery+staple", **form)
    assert (status, headers["location"]) == (303, "/")
    assert asked(server.port, "GET", "/", cookie=headers["set-cookie"].partition(";")[0])[0] == 200
    for body in (b"key=wrong", b"", b"key", b"\xff=%zz"):
        assert asked(server.port, "POST", "/", body, **form)[0] == 401
    assert asked(server.port, "POST", "/", b"a=1&" * 5000, **form)[0] == 413  # of those without a key


def test_cookies_of_others_do_not_matter(server):
    own = asked(server.port, "POST", "/v1/session", {"key": KEY})[1]["set-cookie"].partition(";")[0]
    for others in ('prefs={"a": 1}; ', "x; y=; =z; "):
        assert asked(server.port, "GET", "/v1/model", cookie=others + own)[0] == 200


def test_tokens_end_and_cannot_be_made():
    keys = Keys(KEY, 3600.0)
    ends, signature = keys.token().split(".")
    assert keys.is_token(f"{ends}.{signature}")
    assert not keys.is_token(f"{int(ends) + 1}.{signature}")
    assert not Keys("another", 3600.0).is_token(f"{ends}.{signature}")
    assert not Keys(KEY, -1.0).is_token(Keys(KEY, -1.0).token())
    for wrong in ("", ".", "x.y", f"{ends}.", f".{signature}", "9" * 400 + ".x", f"-{ends}.{signature}"):
        assert not keys.is_token(wrong)


def test_a_session_ends(folder):
    with Running(folder, key=KEY, limits=Limits(session_seconds=1.0)) as server:
        cookie = asked(server.port, "POST", "/v1/session", {"key": KEY})[1]["set-cookie"].partition(";")[0]
        assert asked(server.port, "GET", "/v1/model", cookie=cookie)[0] == 200
        time.sleep(2.1)
        assert asked(server.port, "GET", "/v1/model", cookie=cookie)[0] == 401


def test_without_a_key_only_this_machines_names_are_answered(folder):
    with Running(folder) as server:
        for host in ("localhost", f"127.0.0.1:{server.port}", "LOCALHOST:1"):
            assert asked(server.port, "GET", "/v1/model", host=host)[0] == 200
        for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80"):
            assert asked(server.port, "GET", "/v1/model", host=host)[0] == 403
            assert asked(server.port, "GET", "/livez", host=host)[0] == 403


def test_with_a_key_any_name_will_do(server):
    assert (
        asked(server.port, "GET", "/v1/model", host="tags.example", authorization=f"Bearer {KEY}")[0] == 200
    )


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_nobody_listens_to_others_without_a_key_by_accident(host):
    with pytest.raises(SettingError, match="no key"):
        check_address(host, None, insecure=False)
    check_address(host, "key", insecure=False)
    check_address(host, None, insecure=True)


def test_no_other_site_may_call_unless_it_is_listed(folder):
    site = "https://tags.example"
    with Running(folder) as server:
        assert "access-control-allow-origin" not in asked(server.port, "GET", "/v1/model", origin=site)[1]
    with Running(folder, origins=[site]) as server:
        headers = asked(server.port, "GET", "/v1/model", origin=site)[1]
        assert headers["access-control-allow-origin"] == site
        other = asked(server.port, "GET", "/v1/model", origin="https://evil.example")[1]
        assert "access-control-allow-origin" not in other
    with Running(folder, origins=[site], key=KEY) as server:
        before = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}
        status, headers, _ = asked(server.port, "OPTIONS", "/v1/predict", origin=site, **before)
        assert (status, headers["access-control-allow-origin"]) == (200, site)
        status, headers, _ = asked(server.port, "GET", "/v1/model", origin=site)
        assert (status, headers["access-control-allow-origin"]) == (401, site)


def test_texts_and_keys_are_never_logged(server, caplog):
    caplog.set_level(logging.DEBUG)
    client = Client(server.url, key=KEY)
    client.predict([SECRET_TEXT])
    client.explain(SECRET_TEXT)
    client.labels(SECRET_TEXT)
    for body in ({"texts": [SECRET_TEXT], "k": 0}, {"texts": [SECRET_TEXT], SECRET_TEXT: 1}):
        asked(server.port, "POST", "/v1/predict", body, authorization=f"Bearer {KEY}")
    asked(server.port, "POST", "/v1/session", {"key": KEY})
    time.sleep(0.2)
    lines = [record.getMessage() for record in caplog.records if record.name == "xmcascade.serve.access"]
    assert len(lines) >= 6
    told = json.loads(next(line for line in lines if '"/v1/predict"' in line))
    assert told.keys() >= {"time", "request", "method", "route", "status", "ms", "texts", "tokens", "batch"}
    everything = "\n".join(record.getMessage() for record in caplog.records)
    for secret in (SECRET_TEXT, "nobody", KEY, "horse"):
        assert secret not in everything


def test_the_client_says_what_the_server_says(server):
    with pytest.raises(ServerError, match="key is missing") as wrong:
        Client(server.url, key="wrong").predict(["a"])
    assert (wrong.value.status, wrong.value.code) == (401, "no_key")
    assert not Client("http://127.0.0.1:9").is_ready()
    with pytest.raises(ServerError, match="no address"):
        Client("localhost:8000")


def test_threads_may_share_a_client(server):
    client = Client(server.url, key=KEY)
    texts = ["red apple", "blue sky", "green pear", "storm"] * 10
    alone = [client.predict([text], 2) for text in texts]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda text: client.predict([text], 2), texts)) == alone
