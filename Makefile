# make demo    watch a simulated robot (sets everything up first)
# make test    run every test (sets everything up first)
# make help    the rest

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
EXTRAS := ros,sim,policies,assess,dev
APT := g++ make python3-dev python3-venv libosmesa6 libegl1 libgl1
TORCH_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help demo test check format bench detection setup-apt system venv interfaces clean

help: ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: interfaces ## one episode of each task and a perturbed one, watched live over ROS 2
	$(BIN)/vla-monitor demo $(ARGS)

test: interfaces ## every test; ARGS="tests/metrics -k vector" for some
	$(BIN)/python -m pytest $(ARGS)

check: venv ## formatting, lint, types, import rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: venv ## format and mend what can be mended
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: venv ## one script per claim of speed, as ratios measured in one run
	@for script in bench/*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

detection: venv ## detection figures of the bundled policy (480 episodes; resumes)
	$(BIN)/python scripts/record_episodes.py --seeds 15 --out build/detection/bags
	$(BIN)/vla-monitor calibrate build/detection/bags/* --share 0.5 --seed 0 --alpha 0.1 --force --out build/detection/thresholds.yaml
	$(BIN)/vla-monitor evaluate build/detection/bags/* --thresholds build/detection/thresholds.yaml --force --out build/detection/evaluation

setup-apt: ## Debian packages that are needed (root)
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(APT)

system:
	@command -v g++ >/dev/null || { echo "g++ is missing (it builds the ROS 2 interfaces). Type: sudo make setup-apt" >&2; exit 2; }
	@ldconfig -p | grep -q -e libOSMesa -e libEGL || { echo "no OpenGL for the simulated robot's cameras (libosmesa6 or libegl1). Type: sudo make setup-apt" >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, os, sys, sysconfig as s; sys.exit(not os.path.exists(s.get_paths()["include"] + "/Python.h"))' 2>/dev/null \
		|| { echo "$(PYTHON) lacks venv or its C headers. Type: sudo make setup-apt" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=python3.11 ..." >&2; exit 2; }

venv: $(VENV)/.installed ## the virtual environment with everything installed

# torch goes first, so that TORCH_ARGS can choose where it comes from: on Linux, PyPI's build brings CUDA (several GB); --index-url with PyTorch's own
# CPU index takes 200 MB.
$(VENV)/.installed: pyproject.toml constraints.txt | system
	@echo "== installing into $(VENV) (a few minutes the first time)"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -c constraints.txt $(TORCH_ARGS) torch==2.13.0
	$(BIN)/pip install -q -c constraints.txt -e '.[$(EXTRAS)]'
	@touch $@

interfaces: venv ## monitor_msgs, built and installed into the virtual environment
	@VENV=$(VENV) scripts/build_interfaces.sh

clean: ## remove what was built (not the bags)
	rm -rf $(VENV) build
