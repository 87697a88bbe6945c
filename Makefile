# Two commands are all that is needed: `make demo` and `make test`. What they do is in tools/.

PYTHON ?= $(shell for p in python3.11 python3 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 9))' >/dev/null 2>&1 && { echo $$p; break; }; done)
STACKS ?= keras3,tf_keras,keras2

.DEFAULT_GOAL := help
.PHONY: help demo test fast clean python

help:
	@echo 'make demo              install once, then train on handwritten digits under the default config'
	@echo 'make test              all checks and tests on all three stacks'
	@echo 'make test STACKS=keras3   the same on one stack'
	@echo 'make fast              lint, types and the tests that need no TensorFlow'
	@echo 'make clean             remove the environments'

python:
	@test -n "$(PYTHON)" || { echo 'No Python 3 found. Install Python 3.11: apt-get install python3.11 python3.11-venv' >&2; exit 2; }

demo: python
	@$(PYTHON) tools/environment.py keras3
	@TF_CPP_MIN_LOG_LEVEL=2 .venv/keras3/bin/python -m tfvolta run --config tfvolta:default examples/digits.py

test: python
	@$(PYTHON) tools/test.py --stacks '$(STACKS)'

fast: python
	@$(PYTHON) tools/test.py --only-fast

clean:
	rm -rf .venv
