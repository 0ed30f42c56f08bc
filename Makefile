# make quick     the whole suite at a size for two CPU cores (a CUDA GPU is used if there is one)
# make test      the tests, 9 to 18 minutes on 2 CPU cores
# make paper     the paper's plan: a GPU, or patience
.PHONY: quick smoke paper test test-slow lint lock clean

VENV := .venv
PYTHON3 ?= python3
PYTHON := $(VENV)/bin/python
READY := $(VENV)/.ready
COMPILED := --compile-bytecode# as pip does: torch takes 4 s to read, 2 s compiled
UV := $(shell command -v uv 2>/dev/null)
ifneq ($(UV),)
  IS_MADE = [ -x $(PYTHON) ]
  CREATE = uv venv --quiet --allow-existing --python $(PYTHON3) $(VENV)
  INSTALL = VIRTUAL_ENV=$(VENV) uv pip install --quiet
  INSTALL_LOCK = $(INSTALL) $(COMPILED) --require-hashes -r requirements.lock
else
  UV := $(VENV)/bin/uv
  IS_MADE = $(PYTHON) -m pip --version >/dev/null 2>&1
  CREATE = $(PYTHON3) -m venv $(VENV)
  INSTALL = $(PYTHON) -m pip install --quiet --disable-pip-version-check
  # uv takes less than half of pip's time, and pip can bring it. But uv reads no settings of pip's: where these name an
  # index, and where uv fails, pip does all. uv links into .venv what it unpacks beside it, so its cache takes no room.
  CACHE := $(VENV)/uv-cache
  INSTALL_LOCK = if ! $(PYTHON) -m pip config list | grep '\.index-url=' >/dev/null && \
    awk '/^[a-z]/ { here = /^uv==/ } here' requirements.lock > $(VENV)/uv.txt && \
    $(INSTALL) --require-hashes -r $(VENV)/uv.txt && \
    VIRTUAL_ENV=$(VENV) $(UV) --cache-dir $(CACHE) pip install --quiet $(COMPILED) --require-hashes -r requirements.lock; \
    then rm -rf $(CACHE); else rm -rf $(CACHE); echo "pip installs it, without uv; this takes some minutes"; \
    $(INSTALL) --require-hashes -r requirements.lock; fi
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

# `make test MARKS="not network"` runs the slow ones with them, in less time than one after the other.
test: MARKS ?= not slow and not network
test-slow: MARKS ?= slow
test test-slow: $(READY)
	$(PYTHON) -m pytest -n auto --dist loadfile --no-loadscope-reorder -m "$(MARKS)" --durations 25

lint: $(READY)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy --num-workers auto
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
	$(UV) pip compile pyproject.toml --all-extras --universal --python-version 3.11 --generate-hashes --no-header \
	  --no-emit-index-url -o requirements.lock

clean:
	rm -rf $(VENV)
