"""Every example in the package's docstrings is true."""

import doctest
import importlib
import pkgutil

import pytest

import xmcascade

NAMES = ["xmcascade", *(found.name for found in pkgutil.walk_packages(xmcascade.__path__, "xmcascade."))]


@pytest.mark.parametrize("name", [name for name in NAMES if not name.endswith("__main__")])
def test_examples(name, tmp_path, monkeypatch):
    try:
        module = importlib.import_module(name)
    except xmcascade.errors.MissingExtraError as error:
        pytest.skip(str(error))
    monkeypatch.chdir(tmp_path)  # an example that writes, writes here
    failed, _ = doctest.testmod(module)
    assert not failed
