"""What extras bring: torch keeps little of what it compiles, unless the user says otherwise."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SHAPES = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"
ASKED = f"import os; from xmcascade.neural.extra import torch; torch(); print(os.environ[{SHAPES!r}])"


@pytest.mark.parametrize(("given", "kept"), [(None, "16"), ("300", "300")])
def test_torch_keeps_few_shapes_and_what_the_user_sets(given: str | None, kept: str) -> None:
    environ = {name: value for name, value in os.environ.items() if name != SHAPES}
    if given:
        environ[SHAPES] = given
    asked = subprocess.run([sys.executable, "-c", ASKED], env=environ, capture_output=True, text=True)
    assert asked.stdout.strip() == kept, asked.stderr
