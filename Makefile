# holoshard: the same commands on a laptop, in CI and on a cluster. `make` alone lists them.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   ?= .venv
DATA   ?= data
RUNS   ?= runs
JOBS   ?= 2
BIN    := $(VENV)/bin
RUN    := $(BIN)/holoshard
READY  := $(VENV)/.holoshard-ready

.DEFAULT_GOAL := help
.PHONY: help setup demo sample ingest shard train eval test check lint types format bench clean

help: ## List the commands and their settings
	@echo "holoshard: structures in, shards out, batches to a model"
	@echo
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'
	@echo
	@echo "PYTHON=$(PYTHON) chooses the interpreter (3.11 or newer), VENV=$(VENV) the environment's folder."

setup: $(READY) ## Make the environment and install the pinned packages

# The stamp changes only after everything is installed, so an interrupted set-up starts again.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "holoshard needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V). Say: make $(MAKECMDGOALS) PYTHON=..." >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(READY) ## The whole line on the embedded sample, in a few minutes: sample, ingest, shard, train, eval, report
	rm -rf $(DATA)/demo $(RUNS)/demo
	$(RUN) sample --out $(DATA)/demo/sample --n 1500
	$(RUN) ingest $(DATA)/demo/sample --out $(DATA)/demo/ingested
	$(RUN) shard $(DATA)/demo/ingested --out $(DATA)/demo/shards
	$(RUN) train configs/sample.toml --data.path $(DATA)/demo/shards --out $(RUNS)/demo
	$(RUN) eval $(RUNS)/demo --split test

sample: $(READY) ## Write the embedded sample: N=1500 SEED=0 OUT=data/sample
sample: OUT ?= $(DATA)/sample
sample: N ?= 1500
sample: SEED ?= 0
sample:
	$(RUN) sample --out $(OUT) --n $(N) --seed $(SEED)

ingest: $(READY) ## Structures to parts: SOURCE=data/sample LAYOUT=auto LABELS= OUT=data/ingested
ingest: SOURCE ?= $(DATA)/sample
ingest: LAYOUT ?= auto
ingest: OUT ?= $(DATA)/ingested
ingest:
	@if [ "$(SOURCE)" = "$(DATA)/sample" ] && [ ! -e "$(SOURCE)" ]; then \
	  echo "no SOURCE given: writing the embedded sample to $(SOURCE)"; $(MAKE) --no-print-directory sample OUT=$(SOURCE); fi
	$(RUN) ingest $(SOURCE) --out $(OUT) --layout $(LAYOUT) $(if $(LABELS),--labels $(LABELS))

shard: $(READY) ## Parts to a data set: PARTS=data/ingested OUT=data/shards SPLIT=random CONTAINER=hdf5 SEED=0
shard: PARTS ?= $(DATA)/ingested
shard: OUT ?= $(DATA)/shards
shard: SPLIT ?= random
shard: CONTAINER ?= hdf5
shard: SEED ?= 0
shard:
	@if [ "$(PARTS)" = "$(DATA)/ingested" ] && [ ! -e "$(PARTS)" ]; then $(MAKE) --no-print-directory ingest OUT=$(PARTS); fi
	$(RUN) shard $(PARTS) --out $(OUT) --split $(SPLIT) --container $(CONTAINER) --seed $(SEED)

train: $(READY) ## Train a model: CONFIG=configs/sample.toml DATASET=data/shards OUT=runs/latest NODES=1 ARGS="--run.steps 5"
train: CONFIG ?= configs/sample.toml
train: DATASET ?= $(DATA)/shards
train: OUT ?= $(RUNS)/latest
train: NODES ?= 1
train:
	@if [ "$(DATASET)" = "$(DATA)/shards" ] && [ ! -e "$(DATASET)" ]; then $(MAKE) --no-print-directory shard OUT=$(DATASET); fi
	$(RUN) train $(CONFIG) --data.path $(DATASET) --out $(OUT) --nodes $(NODES) $(ARGS)

eval: $(READY) ## Judge a trained model and write its report: RUN_DIR=runs/latest EVAL_SPLIT=test
eval: RUN_DIR ?= $(RUNS)/latest
eval: EVAL_SPLIT ?= test
eval:
	$(RUN) eval $(RUN_DIR) --split $(EVAL_SPLIT)

test: $(READY) ## Run the tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadgroup

check: lint types test ## Everything that must pass: ruff, mypy --strict and the tests

lint: $(READY) ## Style and imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# mypy must see the root folder under the package's name; a link inside the tree would be found twice.
types: $(READY) ## Types, strictly
	@link=$$(mktemp -d) && trap 'rm -rf "$$link"' EXIT && ln -s "$(CURDIR)" "$$link/holoshard" && cd "$$link" \
	  && "$(abspath $(BIN))/mypy" --config-file holoshard/pyproject.toml --cache-dir "$(CURDIR)/.mypy_cache" -p holoshard

format: $(READY) ## Mend style where a machine can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY) ## Benchmarks, quick: every ratio measured side by side in one run
	@for script in benchmarks/[a-z]*.py; do echo "== $$script"; $(BIN)/python $$script --quick || exit 1; done

clean: ## Remove what was built here (data/ and runs/ stay)
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
