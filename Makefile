# Every target works on a fresh machine with Python >= 3.11, make and a network.
PYTHON ?= python3
BIN := .venv/bin
# Python compiles a module when it is first imported; all modules of all packages would take as long as the rest.
INSTALL := -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt --editable
PARALLEL := --numprocesses=auto --dist=worksteal
unexport PYTHONDONTWRITEBYTECODE  # where it is set, each process would compile all of torch's modules again

.PHONY: demo test slow suite avx2 test-all test-libraries test-versions quick faults mutants cuda browser bench hunt court first-picture pictures docs formal coq checker venv check format lint types clean

demo: .venv/runtime  ## Convert the embedded trained networks and compare them with their attention.
	$(BIN)/conv2attn demo

test: .venv/dev  ## Run the tests; no compiler, browser or Coq is needed.
	$(BIN)/python -m pytest $(PARALLEL)

slow: .venv/dev checker  ## Run the tests that start processes, compile, need Coq's checker, or take long.
	$(BIN)/python -m pytest $(PARALLEL) -m "slow and not browser"

suite: .venv/dev checker  ## Run test and slow in one run, which collects and imports once.
	$(BIN)/python -m pytest $(PARALLEL) -m "not browser and not libraries"

# Another processor: what torch's kernels decide there. Faults are planted once, and each property has a few other
# examples in every run.
avx2: .venv/dev  ## Run the tests of layers and networks again, with the kernels of a processor that has AVX2 alone.
	@$(BIN)/python -c "import sys, torch; sys.exit(torch.backends.cpu.get_cpu_capability() == 'AVX2')" || \
	{ echo "make avx2: this processor has AVX2 alone, so make test and make suite ran these kernels" >&2; exit 0; }; \
	ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 $(BIN)/python -m pytest $(PARALLEL) --hypothesis-profile=quick \
		-m "not slow and not browser and not libraries and not fault" \
		tests/convert/engines tests/convert/layer tests/convert/subclasses tests/convert/network

test-all: suite browser  ## Run these kinds of tests.

test-libraries: build/libraries/ready  ## Run the tests of files and loaders of timm, torchvision, transformers and diffusers, in an environment of theirs.
	build/libraries/bin/python -m pytest -m libraries tests/convert/files/test_libraries.py tests/convert/network/test_graft_of_libraries.py tests/convert/sameness/test_language.py tests/test_vits.py

VERSIONS := 3.11-2.10.0 3.12-2.13.0 3.13-2.13.0 3.14-2.13.0

test-versions:  ## Run the tests in Pythons and versions of torch, the lowest and highest: VERSIONS=3.12-2.13.0 chooses.
	@for pair in $(VERSIONS); do \
		place=build/versions/$$pair && python$${pair%-*} -m venv $$place && \
		grep -v "^torch==" constraints.txt > $$place/constraints.txt && \
		$$place/bin/python -m pip install --quiet --constraint $$place/constraints.txt torch==$${pair#*-} --editable ".[dev]" && \
		$$place/bin/python -m pytest $(PARALLEL) || exit; \
	done

quick: .venv/dev  ## Run the tests with few examples of each property, between two edits.
	$(BIN)/python -m pytest $(PARALLEL) --hypothesis-profile=quick

faults: .venv/dev  ## List the planted faults, each by the test that catches it.
	$(BIN)/python -m pytest --collect-only -q -m fault tests
	$(BIN)/python -m pytest --collect-only -q -m fault tests/kernel_faults.py tests/kernel_certificates.py

# Changes of "|", which stands in annotations, are left out: nothing computes these.
DRAWN := SELECT job_id FROM mutation_specs WHERE operator_name NOT LIKE '%BitOr_%' ORDER BY random() LIMIT 400

mutants: .venv/dev  ## Change the library in 400 places, one at a time, and say which changes no test notices: hours.
	mkdir -p build
	$(BIN)/cosmic-ray init tests/mutants.toml build/mutants.sqlite
	$(BIN)/python -c "import sqlite3; d = sqlite3.connect('build/mutants.sqlite'); d.execute(\"\"\"DELETE FROM work_items WHERE job_id NOT IN ($(DRAWN))\"\"\"); d.commit()"
	$(BIN)/cosmic-ray exec tests/mutants.toml build/mutants.sqlite
	$(BIN)/cr-report --surviving-only --show-diff build/mutants.sqlite

cuda: .venv/dev  ## Run the tests that need a CUDA device; without one they skip.
	$(BIN)/python -m pytest -m cuda

browser: .venv/dev build/node  ## Run the tests that open the page in Chromium (apt-get install chromium npm).
	$(BIN)/python -m pytest $(PARALLEL) -m browser tests/browser

build/node:
	@command -v npm >/dev/null || { echo "make browser needs npm for axe-core and ESLint: apt-get install npm" >&2; exit 2; }
	npm install --silent --no-audit --no-fund --prefix $@ axe-core@4.10.3 eslint@9.39.5 @eslint/js@9.39.5

first-picture: .venv/dev  ## Let Chromium draw the loop that README begins with again, from the article.
	$(BIN)/python docs/first_picture.py docs/article

pictures: .venv/dev  ## Draw the pictures of docs/theory.md again.
	$(BIN)/python -m conv2attn.show.pictures.theory docs/pictures

docs: .venv/docs build/katex  ## Build the site of the documents in build/site, with warnings as errors.
	mkdir -p build/documented/conv2attn && ln -sfn $(CURDIR)/convert $(CURDIR)/learn $(CURDIR)/proofs $(CURDIR)/show $(CURDIR)/commands build/documented/conv2attn
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

build/katex:
	@command -v npm >/dev/null || { echo "make docs needs npm for KaTeX: apt-get install npm" >&2; exit 2; }
	npm install --silent --no-audit --no-fund --prefix $@ katex@0.16.22

wrong-convolutions: .venv/runtime  ## Print which convolutions torch gets wrong on this processor.
	$(BIN)/python benchmarks/wrong_convolutions.py

MINUTES := 60

hunt: .venv/dev  ## Compare random small networks in torch, compiled and ONNX Runtime, and list what is no rounding: MINUTES=480 is a night.
	$(BIN)/python benchmarks/hunt.py build/hunt.jsonl --minutes $(MINUTES)
	$(BIN)/python benchmarks/hunt.py build/hunt.jsonl --table

court: .venv/dev  ## Ask each tool about public questions, and write benchmarks/COURT.md: KIND=ports chooses a kind.
	$(BIN)/python benchmarks/court/court.py build/court.jsonl $(if $(KIND),--kind $(KIND))

bench: .venv/runtime  ## Measure networks of torchvision, which must be installed, beside their attention.
	$(BIN)/python benchmarks/bench.py

formal: coq checker .venv/dev  ## Check the theorems of proofs/formal with Coq, and that it refuses planted faults and tampered certificates.
	$(BIN)/python -m pytest $(PARALLEL) tests/kernel_faults.py tests/kernel_certificates.py

coq:
	@{ command -v coqc && command -v coqchk && test -d "$$(coqc -where)/user-contrib/Flocq"; } >/dev/null || { echo "make formal needs Coq 8.16 or later and Flocq: apt-get install coq libcoq-flocq" >&2; exit 2; }

checker: build/checker/conv2attn-checker  ## Build the program of `conv2attn check` from its proof in Coq.

CHECKER := proofs/formal/_CoqProject $(wildcard proofs/formal/*.v proofs/formal/checker/*.v proofs/formal/checker/*.ml)

build/checker/conv2attn-checker: $(CHECKER)
	@$(MAKE) --no-print-directory coq
	@ocamlfind query zarith >/dev/null && command -v ocamlopt >/dev/null || { echo "make checker needs OCaml and Zarith: apt-get install ocaml ocaml-findlib libzarith-ocaml-dev" >&2; exit 2; }
	rm -rf build/checker && mkdir -p build/checker && cp $(CHECKER) build/checker
	cd build/checker && for file in $$(grep '\.v$$' _CoqProject) Extraction.v; do coqc -q -Q . Conv2Attn $$file || exit 1; done
	cd build/checker && ocamlfind ocamlopt -package zarith -linkpkg checker.mli checker.ml main.ml -o partial && mv partial conv2attn-checker

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

.venv/runtime: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python $(INSTALL) ".[plot]"
	touch $@

.venv/dev: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python $(INSTALL) ".[dev]"
	touch .venv/runtime $@

# An environment of its own: the other tests have stand-ins for these libraries, or see that they are not installed. It
# finds the developer's packages, torch among them, where they are.
PACKAGES := -c "import sysconfig; print(sysconfig.get_path('purelib'))"

build/libraries/ready: pyproject.toml constraints.txt .venv/dev
	$(PYTHON) -m venv build/libraries
	$(BIN)/python $(PACKAGES) > "$$(build/libraries/bin/python $(PACKAGES))/developer.pth"
	build/libraries/bin/python $(INSTALL) ".[libraries]"
	touch $@

.venv/docs: .venv/dev
	$(BIN)/python $(INSTALL) ".[docs]"
	touch $@

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis conv2attn-demo
