# gpuledger: `make help` lists what can be done. Every target sets up what it needs.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
READY := .venv/.ready
RUNNABLE := .venv/.runnable
STORE ?= var/gpuledger
SEEDS ?= 2000
SECONDS ?= 600
# A third to a half of the time of tests is waiting, so that four workers keep two cores busy.
WORKERS ?= 4
# Each has a control plane of its own, which needs about 1.5 GB.
E2E_WORKERS ?= 2
# `.ci/run` leaves these out of `make test` by APART, and has them in the idle time of e2e-rigs.
APART_FOLDERS := tests/unit tests/integration/pages
APART ?=
LOCKING := --quiet --python-version 3.11 --universal --generate-hashes --no-annotate --no-header

# Otherwise each process compiles all modules again, and tests start hundreds of processes.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## make .venv with the locked dependencies and the command gpuledger

$(READY): requirements.lock pyproject.toml gpuledger/version.py
	@$(PYTHON) tools/install.py .venv requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(RUNNABLE) $(READY)

$(RUNNABLE): deploy/locks/service.lock
	@$(PYTHON) tools/install.py .venv deploy/locks/service.lock
	@touch $(RUNNABLE)

demo: $(if $(wildcard $(READY)),setup,$(RUNNABLE)) ## the whole life of a ledger, with a SIGKILL in the middle; a minute or less
	$(BIN)/python -m gpuledger demo

run: setup ## start the service without a cluster and keep it up; STORE=DIR
	$(BIN)/gpuledger serve --store-dir $(STORE) --no-kubernetes --log-format console

test: setup ## all tests; those on a real API server when KUBEBUILDER_ASSETS is set
	@# Several at once, those of processes first; then what measures shares of time, with nothing beside it; then end to end.
	$(BIN)/pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "not e2e and not long and not alone" $(APART)
	$(BIN)/pytest -q tests/native -m "alone and not long"
	$(BIN)/pytest -q -n $(E2E_WORKERS) --dist loadfile tests/e2e -m "e2e and not long and not install"

test-apart: setup ## unit tests, and the pages in a browser: what .ci/run has beside e2e-rigs
	$(BIN)/pytest -q -n 2 --dist loadfile -m "not e2e and not long and not alone" $(APART_FOLDERS)

native: setup ## build libvgpu.so and the stub driver; needs a C compiler
	$(MAKE) -C vgpu_native PYTHON=$(abspath $(BIN))/python

test-native: native ## tests of libvgpu.so on the stub driver; no GPU is needed
	$(MAKE) -C vgpu_native PYTHON=$(abspath $(BIN))/python tests
	$(BIN)/pytest -q tests/native -m "not long"

sanitizers: native ## the programs of libvgpu.so with ASan, UBSan and TSan over the whole library; 3 minutes
	$(MAKE) -C vgpu_native PYTHON=$(abspath $(BIN))/python -k asan ubsan tsan

protos: setup ## generate what speaks to the kubelet from vgpu_native/plugin/kubelet/protos
	$(BIN)/python -m vgpu_native.plugin.kubelet.generate_stubs

fuzz: setup ## fuzz what tenants can write; SECONDS=N
	$(BIN)/python vgpu_native/tests/fuzz/run.py --seconds $(SECONDS)

gpu-bundle: setup ## what is carried to a machine with a GPU to measure there
	$(MAKE) -C vgpu_native PYTHON=$(abspath $(BIN))/python gpu-bundle

e2e: setup ## tests on a real API server; needs KUBEBUILDER_ASSETS
	$(BIN)/pytest -q -n $(E2E_WORKERS) --dist loadfile tests/e2e -m "e2e and not long and not install"

e2e-install: setup ## install on a real node; needs root, KUBEBUILDER_ASSETS and GPULEDGER_NODE_ASSETS
	$(BIN)/python -m tests.e2e.install.enter --build $(BIN)/pytest -q -s tests/e2e/install -m "install and not long"

e2e-node: native ## pods with cards below a real kubelet; needs what e2e-install needs
	$(BIN)/python -m tests.e2e.install.enter --build $(BIN)/pytest -q -s tests/e2e/real_node -m "install and not long"

e2e-node-short: native ## the part of e2e-node that .ci/run has, too
	$(BIN)/python -m tests.e2e.install.enter --build $(BIN)/pytest -q -s tests/e2e/real_node -m "short and not long"

e2e-rigs: native ## e2e-install and e2e-node-short at once; each waits for most of its time
	@# The images are built before, because a build replaces the files that the other rig reads.
	$(BIN)/python -m tests.e2e.install.enter --build true
	@node="$$(mktemp)"; status=0; \
	$(BIN)/python -m tests.e2e.install.enter $(BIN)/pytest -q -s tests/e2e/install -m "install and not long" & first=$$!; \
	$(BIN)/python -m tests.e2e.install.enter $(BIN)/pytest -q -s tests/e2e/real_node -m "short and not long" \
		>"$$node" 2>&1 & second=$$!; \
	trap 'kill "$$first" "$$second"; cat "$$node"; rm -f "$$node"; exit 130' INT TERM; \
	wait "$$first" || status=$$?; wait "$$second" || status=$$?; cat "$$node"; rm -f "$$node"; exit "$$status"

e2e-node-long: native ## all of e2e-node, and campaigns of 100 pods
	$(BIN)/python -m tests.e2e.install.enter --build $(BIN)/pytest -q -s tests/e2e/real_node -m install

e2e-chain: setup ## from a pod's post to a process that is refused memory; needs KUBEBUILDER_ASSETS
	$(BIN)/pytest -q -s tests/e2e/node/test_chain.py -m "e2e and not long"

e2e-dra: setup ## the way of a pod with a resource claim, in steps; needs KUBEBUILDER_ASSETS
	$(BIN)/pytest -q -s tests/e2e/resource_claims/test_resource_claims.py -k from_template_to_release

e2e-long: setup ## the longer campaigns: end to end, simulation, properties
	HYPOTHESIS_PROFILE=long $(BIN)/pytest -q tests/properties --timeout 3600
	$(BIN)/pytest -q -m long --timeout 3600

bench: setup ## measure; writes tests/bench/results/latest.json
	$(BIN)/python -m tests.bench

bench-growth: setup ## what grows with events and holds; an hour; smaller by EVENTS=N HOLDS=N ACCOUNTS=N
	$(BIN)/python -m tests.bench.growth

simulate: setup ## simulate seeded faults; SEEDS=N
	PYTHONPATH=tests $(BIN)/python -m simulation --seeds $(SEEDS) --workers $(WORKERS)

screenshots: setup ## write docs/images by opening the pages in Chromium; needs chromium and pngquant
	GPULEDGER_SCREENSHOTS=docs/images $(BIN)/pytest -q tests/integration/pages/test_screenshots.py

lint: setup ## style, types, import arrows, sizes, names and words
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tools.lint
	$(BIN)/hadolint deploy/Dockerfile
	$(BIN)/python -m tools.manifests --check

krew: setup ## the archive and the manifest of `kubectl gpuledger` for krew, in build/krew; ADDRESS=URL of the archive
	$(BIN)/python -m tools.krew_archive --address "$(ADDRESS)"

manifests: setup ## render deploy/*.yaml from the chart
	$(BIN)/python -m tools.manifests

image: setup ## build the images with buildah into build/images; BASE=IMAGE of a registry, else mmdebstrap makes it
	$(BIN)/python -m tools.image build --base "$(BASE)"

image-reproducible: setup ## build the images twice and compare their digests
	$(BIN)/python -m tools.image reproducible --base "$(BASE)"

airgap: setup ## the images and the chart with a list and checksums, for a site without a registry
	$(BIN)/python -m tools.image airgap --base "$(BASE)"

docs: setup ## generate the reference pages
	$(BIN)/python docs/generate.py

lock: setup ## resolve the dependencies again, newest allowed versions
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile $(LOCKING) --extra dev --extra node --output-file requirements.lock pyproject.toml
	$(BIN)/uv pip compile $(LOCKING) --constraints requirements.lock --output-file deploy/locks/service.lock pyproject.toml
	printf '%s\n' grpcio nvidia-ml-py | \
		$(BIN)/uv pip compile $(LOCKING) --constraints requirements.lock --output-file deploy/locks/node.lock -
	printf '%s\n' cyclonedx-bom msgspec setuptools | \
		$(BIN)/uv pip compile $(LOCKING) --constraints requirements.lock --output-file deploy/locks/build.lock -

clean: ## remove what was made here, but no store
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis vgpu_native/build

.PHONY: help setup demo run protos test test-apart native test-native sanitizers fuzz gpu-bundle e2e e2e-install e2e-node e2e-node-short e2e-node-long e2e-rigs e2e-chain e2e-dra e2e-long bench bench-growth simulate screenshots lint manifests image image-reproducible airgap krew docs lock clean
