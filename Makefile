# make quick     the whole suite at a size for two CPU cores (a CUDA GPU is used if there is one)
# make test      the tests, 9 to 18 minutes on 2 CPU cores
# make paper     the paper's plan: a GPU, or patience
.PHONY: quick smoke paper test test-slow lint lock clean

VENV := .venv
PYTHON3 ?= python3
PYTHON := $(VENV)/bin/python
READY := $(VENV)/.ready
ifneq ($(shell command -v uv 2>/dev/null),)
  IS_MADE = [ -x $(PYTHON) ]
  CREATE = uv venv --quiet --allow-existing --python $(PYTHON3) $(VENV)
  INSTALL = VIRTUAL_ENV=$(VENV) uv pip install --quiet --compile-bytecode  # as pip does: torch takes 4 s to read, 2 s compiled
  INSTALL_LOCK = $(INSTALL) --require-hashes -r requirements.lock
else
  IS_MADE = $(PYTHON) -m pip --version >/dev/null 2>&1
  CREATE = $(PYTHON3) -m venv $(VENV)
  INSTALL = $(PYTHON) -m pip install --quiet --disable-pip-version-check
  # pip works on one core: so two at once, one for the largest files (torch and a GPU's libraries), one for the most files.
  LARGE = /^[a-z]/ { large = /^(nvidia-|triton|torch)/ }
  INSTALL_LOCK = awk '$(LARGE) large' requirements.lock > $(VENV)/large.txt; \
    awk '$(LARGE) !large' requirements.lock > $(VENV)/small.txt; \
    $(INSTALL) --no-deps --require-hashes -r $(VENV)/large.txt & large=$$!; \
    $(INSTALL) --no-deps --require-hashes -r $(VENV)/small.txt & small=$$!; \
    trap "kill $$large $$small" INT TERM HUP; wait $$large; code=$$?; \
    wait $$small && [ $$code = 0 ] && $(PYTHON) -m pip check
endif

# PYTHON3=... chooses the Python that makes .venv; an existing .venv keeps its own.
ifeq ($(origin PYTHON3)$(filter clean,$(MAKECMDGOALS)),command line)
ifneq ($(wildcard $(PYTHON)),)
  WHICH := -c 'import sys; print(*sys.version_info[:2], sep=".")'
  IS := $(shell $(PYTHON) $(WHICH))
  WANTED := $(shell $(PYTHON3) $(WHICH) 2>/dev/null)
  ifneq ($(IS),$(WANTED))
    $(error $(VENV) has Python $(IS), but PYTHON3=$(PYTHON3) is $(or $(WANTED),not there); run `make clean` first, or leave it out)
  endif
endif
endif

quick smoke paper: $(READY)
	$(PYTHON) -m capsbench run config/$@.yaml

test: $(READY)
	$(PYTHON) -m pytest -n auto --dist loadfile --no-loadscope-reorder -m "not slow and not network" --durations 15

test-slow: $(READY)
	$(PYTHON) -m pytest -n auto --dist loadfile --no-loadscope-reorder -m "slow" --durations 25

lint: $(READY)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/snakefmt --check Snakefile workflow
	$(VENV)/bin/snakemake --lint

$(READY): pyproject.toml requirements.lock
	@$(IS_MADE) || $(PYTHON3) -c 'import sys; sys.exit((3, 11) > sys.version_info[:2] or sys.version_info[:2] > (3, 13))' || \
	  { echo "capsbench needs Python 3.11, 3.12 or 3.13; name one: make PYTHON3=python3.12 $(MAKECMDGOALS)"; exit 2; }
	@$(IS_MADE) || { echo '$(CREATE)'; $(CREATE); }
	$(INSTALL_LOCK)
	$(INSTALL) --no-deps --no-build-isolation -e .
	touch $@

lock:  # after a change of pyproject.toml's dependencies
	uv pip compile pyproject.toml --all-extras --universal --python-version 3.11 --generate-hashes --no-header \
	  --no-emit-index-url -o requirements.lock

clean:
	rm -rf $(VENV)
