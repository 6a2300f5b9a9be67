.PHONY: setup demo test check bench lock clean

setup:
	@scripts/setup

demo: setup
	@.venv/bin/penstock demo

check: setup
	@scripts/check

test: setup
	@scripts/test

# One JSON file for each benchmark, in bench/out.
bench: setup
	@set -e; for name in $(basename $(notdir $(shell grep -l '^    main(' bench/*.py))); do \
	  .venv/bin/python bench/$$name.py --quick --json bench/out/$$name.json; \
	done

# Newest versions that pyproject.toml allows. --upgrade, else uv keeps what the file has. No header and
# no annotations: the file must carry no address.
lock:
	@.venv/bin/uv --quiet pip compile --universal --upgrade --generate-hashes --no-header --no-annotate \
	  --python-version 3.11 --extra all --extra dev --extra build pyproject.toml --output-file requirements.lock

clean:
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis bench/out
	@find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
