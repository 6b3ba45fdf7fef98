# The only commands a person needs. `make` alone lists them.

CARGO ?= cargo
PYTHON ?= python3
KEEP ?=
DATABASE ?= sqlite
TIME ?= 600

# Runs the tests of the crates that are named behind it.
RUN_TESTS = $(CARGO) $(shell $(CARGO) nextest --version >/dev/null 2>&1 && echo nextest run || echo test) --locked
DEMO_PROGRAMS = powercontext-api-server powercontext-worker $(if $(filter oceanbase,$(DATABASE)),powercontext-controller)

.DEFAULT_GOAL := help
.PHONY: help demo test lint bench soak

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## real text through the whole product in a minute after the build; DATABASE=oceanbase, KEEP=1 leaves it running
	$(CARGO) build --release --locked $(addprefix -p ,$(DEMO_PROGRAMS))
	@KEEP=$(KEEP) DATABASE=$(DATABASE) $(PYTHON) -B scripts/demo.py

test: ## every test: real servers and workers on SQLite and on OceanBase's engine, crashes, the official Python client
	bash scripts/python-env.sh
	bash scripts/seekdb.sh fetch
	$(CARGO) build --workspace --bins --locked
	bash scripts/seekdb.sh with $(RUN_TESTS) --workspace

lint: ## format, clippy with warnings as errors, house rules, licences
	@for tool in fmt clippy; do $(CARGO) $$tool --version >/dev/null 2>&1 || { \
		echo "lint: cargo $$tool is missing; install rustfmt and clippy of Rust 1.95 (rustup component add rustfmt clippy)" >&2; \
		exit 1; }; done
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	bash scripts/lint-tree.sh
	@if $(CARGO) deny --version >/dev/null 2>&1; then set -x; $(CARGO) deny --all-features check licenses bans sources; fi

soak: ## a million steps of the simulation, then faults in random order on a real fleet for TIME seconds (600)
	bash scripts/seekdb.sh fetch
	$(CARGO) build --workspace --bins --locked
	POWERCONTEXT_SIM_STEPS=1000000 $(CARGO) test --release --locked -p powercontext-supervisor --test simulation -- --nocapture
	POWERCONTEXT_SOAK_SECONDS=$(TIME) $(CARGO) test --locked -p powercontext-tests --test fleet_soak -- --nocapture

bench: ## measure this machine: capture, flush to searchable, worker start, idle memory
	$(CARGO) build --release --locked --workspace --bins
	$(CARGO) run --release --locked -p powercontext-tests --bin bench
