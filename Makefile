# The developers' commands. Users need none of them: see ./waystation.
.PHONY: check test chaos bench format demo clean

check: ## formatting, lint, types, layers, migrations, file lengths
	./waystation test tests/checks

test: ## everything that CI runs
	./waystation test

chaos: ## the fault tests ten times as large: about half an hour
	WAYSTATION_FAULT_SCALE=10 ./waystation test tests/fault
	WAYSTATION_MODEL_EXAMPLES=300 ./waystation test tests/integration/ledger/test_model.py

bench: ## compare with the official SDK's server; tests/bench/README.md
	.venv/bin/python -m tests.bench.lifecycles
	.venv/bin/python -m tests.bench.doors

format:
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .

demo:
	./waystation demo

clean: ## the environment and the embedded database
	rm -rf .venv .venv.lock .cache .waystation
