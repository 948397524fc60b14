"""What OpenAPI promises is kept, whatever is sent."""

import os
import re
import subprocess
import sys

import pytest

from serve.small import asked, saved
from xmcascade.serve import Limits, Running

pytest.importorskip("schemathesis")
CASES = os.environ.get("XMCASCADE_API_CASES", "25")  # of each route; 330 are more than 2,000 in all


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    # Texts so short that one that is too long makes no body that is too large: schemathesis knows no 413.
    limits = Limits(text_characters=500, texts=12, allowed_labels=50)
    with Running(saved(tmp_path_factory.mktemp("spec") / "m"), limits=limits) as running:
        yield running


def test_every_answer_is_as_described(server, tmp_path):
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json"]
    options = ["--max-examples", CASES, "--checks", "all", "--seed", "1", "--no-color"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, cwd=tmp_path, timeout=900)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert int(re.search(r"([\d,]+) generated", done.stdout)[1].replace(",", "")) > 300


def test_every_route_says_what_can_go_wrong(server):
    told = asked(server.port, "GET", "/openapi.json")[2]
    for path, methods in told["paths"].items():
        for method, operation in methods.items():
            assert operation.get("description"), (method, path)
            answers = operation["responses"]
            assert {"401", "413", "422", "429", "503", "504"} <= answers.keys(), (method, path)
            assert "HTTPValidationError" not in str(answers)
