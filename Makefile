# Every target works on a fresh machine with Python >= 3.11, make and a network.
PYTHON ?= python3
BIN := .venv/bin
PARALLEL := --numprocesses=auto --dist=worksteal

.PHONY: demo test quick cuda browser bench pictures docs mutants formal coq venv check format lint types clean

demo: .venv/runtime  ## Convert the embedded trained networks and compare them with their attention.
	$(BIN)/conv2attn demo

test: .venv/dev  ## Run the tests.
	$(BIN)/python -m pytest $(PARALLEL)

quick: .venv/dev  ## Run what a developer needs between two edits: no slow suite, and few examples of each property.
	$(BIN)/python -m pytest $(PARALLEL) --quick

cuda: .venv/dev  ## Run the tests that need a CUDA device; without one they skip.
	$(BIN)/python -m pytest -m cuda

browser: .venv/dev  ## Run the tests that open the page in Chromium (apt-get install chromium).
	$(BIN)/python -m pytest -m browser tests/browser

pictures: .venv/dev  ## Draw the pictures of docs/theory.md again.
	$(BIN)/python -m conv2attn.proofs.show.theory docs/pictures

docs: .venv/docs  ## Build the site of the documents in build/site, with warnings as errors.
	mkdir -p build/types && ln -sfn ../.. build/types/conv2attn
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: .venv/runtime  ## Measure the attention beside the convolution.
	$(BIN)/conv2attn bench

formal: coq .venv/dev  ## Check the theorems of proofs/formal with Coq, and that planted faults and tampered certificates are refused.
	$(BIN)/conv2attn formal
	$(BIN)/python -m pytest tests/kernel_faults.py tests/kernel_certificates.py

coq:
	@{ command -v coqc && command -v coqchk && test -d "$$(coqc -where)/user-contrib/Flocq"; } >/dev/null || { echo "make formal needs Coq 8.16 or later and Flocq: apt-get install coq libcoq-flocq" >&2; exit 2; }

venv: .venv/dev  ## Make .venv with everything a developer needs.

check: lint types test  ## What CI runs.

format: .venv/dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: .venv/dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

# Type checkers do not follow an editable install's import hook: they find the package by this link.
types: .venv/dev
	mkdir -p build/types && ln -sfn ../.. build/types/conv2attn
	$(BIN)/mypy

mutants: .venv/dev build/mutation/.venv  ## See whether the tests can fail; takes hours. MODULES=... and SAMPLE=... choose.
	$(BIN)/python -m tests.mutation.run build/mutation/.venv/bin $(or $(SAMPLE),0) $(MODULES)

build/mutation/.venv:
	$(PYTHON) -m venv $@
	$@/bin/python -m pip install --quiet --disable-pip-version-check cosmic-ray==8.7.0

.venv/runtime: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .
	touch $@

.venv/dev: .venv/runtime
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	touch $@

.venv/docs: .venv/runtime
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[docs]"
	touch $@

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis conv2attn-demo
