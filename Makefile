# The developers' commands. Users need none of them: see ./waystation.
.PHONY: check test format demo clean

check: ## formatting, lint, types, layers, migrations, file lengths
	./waystation test tests/checks

test: ## everything that CI runs
	./waystation test

format:
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .

demo:
	./waystation demo

clean: ## the environment and the embedded database
	rm -rf .venv .venv.lock .cache .waystation
