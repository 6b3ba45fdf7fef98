# The only commands a person needs. `make` alone lists them.

CARGO ?= cargo
PYTHON ?= python3
KEEP ?=

.DEFAULT_GOAL := help
.PHONY: help demo test lint bench

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## real text through the whole product in a minute after the build; KEEP=1 leaves the server running
	$(CARGO) build --release --locked -p powercontext-api-server -p powercontext-worker
	@KEEP=$(KEEP) $(PYTHON) -B scripts/demo.py

test: ## every test, with real servers, real workers and the official Python client
	bash scripts/python-env.sh
	$(CARGO) build --workspace --bins --locked
	@if $(CARGO) nextest --version >/dev/null 2>&1; then \
		set -x; $(CARGO) nextest run --workspace --locked; \
	else \
		set -x; $(CARGO) test --workspace --locked; \
	fi

lint: ## format, clippy with warnings as errors, house rules, licences
	@for tool in fmt clippy; do $(CARGO) $$tool --version >/dev/null 2>&1 || { \
		echo "lint: cargo $$tool is missing; install rustfmt and clippy of Rust 1.95 (rustup component add rustfmt clippy)" >&2; \
		exit 1; }; done
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	bash scripts/lint-tree.sh
	@if $(CARGO) deny --version >/dev/null 2>&1; then set -x; $(CARGO) deny --all-features check licenses bans sources; fi

bench: ## measure this machine: capture, flush to searchable, worker start, idle memory
	$(CARGO) build --release --locked --workspace --bins
	$(CARGO) run --release --locked -p powercontext-tests --bin bench
