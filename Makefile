# SPDX-License-Identifier: Apache-2.0
# Entry points; CMakeLists.txt and CMakePresets.json do the work. `make help` lists the targets.

MODEL ?=
SCENARIOS ?=
SECONDS ?= 600
ROUNDS ?= 3000
SEEDS ?= 1
SIMULATED_SEEDS ?= 10000
# Seed of exactness and oracle: random unless set.
REPRISE_TEST_SEED ?= $(shell od -An -N4 -tu4 /dev/urandom | tr -d " ")
SOAK_MODEL ?= models/reprise-mini.gguf
REQUESTS ?= $(REPRISE_TEST_DATA)/traces/mooncake_conversation_trace.jsonl
REPLAY_MODEL ?= $(REPRISE_TEST_DATA)/models/stories260K.gguf
PREFIX ?= /usr/local
# Of exactness, test-random: a GPU instead of the processor (vulkan, vulkan:1), with the programs of tests/vulkan.
DEVICE ?=
test_on_device = $(if $(DEVICE),REPRISE_TEST_DEVICE=$(DEVICE) build/tests/vulkan,build/tests/$(1))/test_$(2)
OPTIONS ?=
BENCH_DIR ?= build/bench-models
BENCH_MODEL ?= $(BENCH_DIR)/tinyllama-1.1b-Q8_0.gguf

.PHONY: mutations all setup packages test exactness oracle test-arm test-clients test-clients-python test-page demo quality bench bench-peers bench-load bench-replay bench-restart bench-writer bench-audit soak soak-disk fuzz check install clean help
.DEFAULT_GOAL := all

all: packages ## build the program (build/reprise), the library, tests and tools; installs nothing
	@cmake --preset release -G Ninja >build.log 2>&1 || { cat build.log; exit 1; }
	@cmake --build --preset release

# Names missing packages and stops. The targets on the first screen of README.md install them instead.
packages: $(if $(filter demo test python,$(MAKECMDGOALS)),setup)
	@tools/setup --check

setup: ## install the missing Debian packages (tools/packages.txt), as root; otherwise print the command
	@tools/setup

test: all ## build and run every test
	@ctest --preset release

.PHONY: test-gpu
test-gpu: all ## run all tests of the Vulkan backend on its best device: every golden model, exactness, faults (Debian: mesa-vulkan-drivers, which emulates one)
	@ctest --test-dir build --output-on-failure -C gpu -L gpu

.PHONY: test-matrices
test-matrices: ## test the Vulkan backend's products by cooperative matrices, on the emulated device of Debian sid in a chroot (root; about ten minutes)
	@tools/test_matrices

.PHONY: test-random
test-random: all ## run every randomized test with new seeds and print them: make test-random SEEDS=10; those on a GPU: DEVICE=vulkan
	@$(if $(DEVICE),CONFIGURATION=gpu) tools/test_random $(SEEDS) $(if $(DEVICE),'^vulkan/')

.PHONY: python test-python
python: all ## build the Python package: a wheel with the library in it, and build/python/bin/python with the wheel installed
	@tools/setup python
	@tools/python_package build/python

test-python: all ## run the tests of the Python package, 10,000 random programs and 10,000 requests among them
	@REPRISE_TEST_ROUNDS=10000 ctest --test-dir build --output-on-failure -L python

test-arm: ## build the kernels for AArch64 and test them under qemu (about five minutes)
	@tools/test_arm

test-clients: all ## test the server with the official OpenAI, Anthropic, Gemini and Ollama clients and five agents (LATEST=1: the newest of each; node and npm; downloads from npm's registry on first use)
	@LATEST=$(LATEST) tests/clients/run

test-clients-python: all ## test the server with Debian's python3-openai and python3-anthropic, in the lab if they are not installed
	@tests/clients/run_python

.PHONY: test-formats
test-formats: all ## test the alert rules and validate /metrics with promtool, and /openapi.json with redocly (Debian's prometheus, node and npm; downloads from npm's registry on first use)
	@tools/test_formats

.PHONY: test-deploy test-cluster
test-deploy: all ## check the texts for operators in share/ with HAProxy, nginx, systemd, docker-compose, Go's templates and Kubernetes' schemas (installs Debian packages; downloads from npm's registry on first use)
	@tools/test_deploy

test-cluster: all ## run a cluster of real processes with HAProxy: kills, hangs, restarts, 10,000 requests compared with one process, costs of a router (half an hour; SCENARIOS="kill hang")
	@tools/setup deploy
	@tests/lab/run $(SCENARIOS)

test-page: all ## test the server's web page, and pages of other origins, in a browser (Debian's chromium, node and npm; downloads from npm's registry on first use)
	@tools/test_page

.PHONY: test-templates test-templates-hostile
test-templates: all ## compare 2,000 random conversations of each published chat template, and 20,000 random templates, with Python's Jinja2 (python3-jinja2; about six minutes)
	@REPRISE_TEST_SEED=$(REPRISE_TEST_SEED) REPRISE_TEST_ROUNDS=2000 tests/template/test_template_jinja.py

test-templates-hostile: all ## render random hostile chat templates: each must end in 2 s: make test-templates-hostile ROUNDS=100000 (hours; SEED=N)
	@build/tests/template/test_hostile --rounds $(if $(filter file,$(origin ROUNDS)),100000,$(ROUNDS)) $(if $(SEED),--seed $(SEED))

exactness: all ## compare requests at every cut, killed, and concurrent, byte by byte, with each alone, in every KV format: make exactness ROUNDS=600 (about 20 minutes); on a GPU: DEVICE=vulkan
	@REPRISE_TEST_SEED=$(REPRISE_TEST_SEED) REPRISE_TEST_ROUNDS=$$((1 + $(ROUNDS) / 60)) $(call test_on_device,exactness,cuts)
	@REPRISE_TEST_SEED=$(REPRISE_TEST_SEED) REPRISE_TEST_ROUNDS=$$((10 + $(ROUNDS) / 30)) $(call test_on_device,crash,crash)
	@REPRISE_TEST_SEED=$(REPRISE_TEST_SEED) REPRISE_TEST_ROUNDS=$(ROUNDS) $(call test_on_device,exactness,schedules)

test-drafts: all ## compare 1,000 random requests with a draft model with the same without one: make test-drafts ROUNDS=1000
	@REPRISE_TEST_SEED=$(REPRISE_TEST_SEED) REPRISE_TEST_ROUNDS=$(if $(filter file,$(origin ROUNDS)),1000,$(ROUNDS)) build/tests/engine/test_draft_model

oracle: all ## compare random schemas and prompts of every model family with the slow reference: make oracle ROUNDS=500 (about 20 minutes)
	@REPRISE_TEST_SEED=$(REPRISE_TEST_SEED) REPRISE_TEST_ROUNDS=$(ROUNDS) build/tests/oracle/test_oracle
	@REPRISE_TEST_SEED=$(REPRISE_TEST_SEED) REPRISE_TEST_ROUNDS=$$(($(ROUNDS) / 10)) build/tests/oracle/test_oracle_families

check: ## run all CI steps (.ci/run --list)
	@.ci/run

.PHONY: format tidy coverage dist
format: ## check white space and code layout (clang-format 14)
	@tools/check-format

tidy: all ## run clang-tidy (14) with the checks of .clang-tidy on src/base, src/kv and src/store: make tidy TIDY="src/pml"
	@tools/tidy $(TIDY)

coverage: ## measure line and branch coverage of the tests, by folder (gcc, gcovr; build-coverage/index.html)
	@tools/coverage

mutations: packages ## mutation test: break ten invariants and require that an assertion or a test fails (about ten minutes)
	@tools/check-mutations $(NAMES)

.PHONY: deb test-deb test-container tarball test-tarball site
deb: ## build Debian packages into build/deb and check them with lintian (ten minutes)
	@tools/make_deb

test-deb: ## build the packages and use them in a clean Debian 12: install, service, manual, Python, removal (root; fifteen minutes)
	@tools/test_deb

test-container: ## build the Containerfile with buildah from the packages of make deb, and run the server and its health check (root; Debian's buildah)
	@tools/test_container

tarball: all ## create build/reprise-VERSION-linux-MACHINE.tar.gz: the program with its libraries, for any Linux with glibc 2.36 or newer
	@tools/make_tarball

test-tarball: all ## create the tarball and run it in another folder and, as root, in an empty file system (a minute)
	@tools/test_tarball

site: ## build the documentation as a site with search: build/site/index.html
	@tools/make_site

dist: ## create build/reprise-VERSION.tar.gz of the last commit, reproducibly
	@tools/dist

demo: all ## compare the TTFT of new questions: full prefill, prefix cache, modules (MODEL=file.gguf: instead of the bundled model)
	@tools/demo $(MODEL)

quality: all ## measure answer quality per reuse setting, on every task of models/eval; SECTIONS="tasks dial formats kv hybrid stories", or some of them (about half an hour)
	@tools/quality $(SECTIONS)

$(BENCH_MODEL): | all
	@mkdir -p $(BENCH_DIR)
	@build/mkgguf tinyllama-1.1b Q8_0 $@

bench: all $(BENCH_MODEL) ## measure TTFT with and without reuse (several minutes)
	@build/bench/bench_reuse $(BENCH_MODEL)

bench-peers: all ## compare with llama.cpp and update docs/performance.md (hours; OPTIONS="--shapes smollm2-135m --types Q4_0")
	@tools/lab.sh setup
	@tools/bench_peers $(OPTIONS)

bench-restart: all $(BENCH_MODEL) ## measure TTFT from the on-disk store after a restart (about six minutes; OPTIONS="--dir DIR": a persistent folder)
	@build/bench/bench_restart $(BENCH_MODEL) $(OPTIONS)

.PHONY: simulate
simulate: all ## simulate 10,000 small clusters with faults and check invariants, with new seeds (a minute): make simulate SIMULATED_SEEDS=100000
	@build/reprise cluster simulate --faults --seed $(REPRISE_TEST_SEED) --seeds $(SIMULATED_SEEDS)

.PHONY: simulate-policies simulate-admission simulate-prefixes simulate-retrieval simulate-capacity simulate-pool simulate-apart
simulate-policies: all ## compare routing policies on a trace: hit rate, work, TTFT; with and without queues, and with an old index (REQUESTS=file)
	@build/reprise cluster simulate $(REQUESTS) --policy all --svg docs/figures/cluster-conversation.svg
	@build/reprise cluster simulate $(REQUESTS) --policy all --no-queues
	@build/reprise cluster simulate $(REQUESTS) --index-age 0,1,10,60,300

simulate-admission: all ## compare rules of early rejection on a trace (REQUESTS=file)
	@build/reprise cluster simulate $(REQUESTS) --nodes 16 --speed 3 --ttft-goal 30000 --itl-goal 10 --admission all

simulate-prefixes: all ## compare routing policies on prompts with shared prefixes, beyond capacity
	@build/reprise cluster simulate --workload shared-prefix --count 3000 --kv-tokens 400k --prefill-speed 5000 --decode 12 --rate 3,6,10,20,60 \
		--policy random,least-loaded,session,cost --svg docs/figures/cluster-shared-prefix.svg

simulate-retrieval: all ## compare routing by modules with routing by prefixes on documents in random order
	@build/reprise cluster simulate --workload retrieval --count 3000 --prefix 3000 --question 200 --answer 200 --kv-tokens 100k --rate 2,4,6,8,10,12 \
		--policy round-robin,prefix-cost,cost --svg docs/figures/cluster-retrieval.svg

simulate-pool: all ## compare routing policies with a pool that the nodes share, on a trace (REQUESTS=file)
	@build/reprise cluster simulate $(REQUESTS) --policy round-robin,least-loaded,session,cost
	@build/reprise cluster simulate $(REQUESTS) --policy round-robin,least-loaded,session,cost --pool auto

simulate-apart: all ## prefill and decode on two nodes, by roles and by cost, on a trace at several speeds (REQUESTS=file)
	@build/reprise cluster simulate $(REQUESTS) --speed 0.25,0.5,0.75,1 --prefill-nodes 7
	@build/reprise cluster simulate $(REQUESTS) --speed 0.25,0.5,0.75,1 --apart-by-cost

simulate-capacity: all ## hit rate and TTFT by KV capacity of nodes, on a trace (REQUESTS=file)
	@build/reprise cluster simulate $(REQUESTS) --nodes 10 --answer 1 --policy round-robin,least-loaded,cost --kv-tokens 300k,1M,3M,10M,50M \
		--svg docs/figures/cluster-capacity.svg

.PHONY: bench-quality
bench-quality: all $(BENCH_MODEL) ## measure the cost of recomputing some module tokens (ten minutes; OPTIONS="--rounds 3")
	@build/bench/bench_quality $(BENCH_MODEL) $(OPTIONS)

bench-writer: all $(BENCH_MODEL) ## measure inter-token latency while KV is written to disk (about four minutes)
	@build/bench/bench_writer $(BENCH_MODEL) $(OPTIONS)

bench-audit: all ## measure the latency of running requests while every request is audited (about six minutes)
	@build/bench/bench_audit models/reprise-mini.gguf $(OPTIONS)

.PHONY: bench-serve bench-serve-peers abuse
bench-serve: all $(BENCH_MODEL) ## measure the overhead of the HTTP server over the library (about five minutes; OPTIONS="--parallel 4")
	@build/bench/bench_http models/reprise-mini.gguf --answer 64 --requests 100 --rounds 40 $(OPTIONS)
	@build/bench/bench_http $(BENCH_MODEL) $(OPTIONS)

bench-serve-peers: all ## compare the server with llama-server, documents in changing order (an hour; OPTIONS="--rounds 1 --rates 0.1")
	@tools/lab.sh setup
	@tools/bench_serve_peers $(OPTIONS)

bench-load: all $(BENCH_MODEL) ## measure inter-token latency of running requests while long prompts arrive (half an hour; OPTIONS="--rounds 1 --seconds 20")
	@tools/bench_load $(BENCH_MODEL) $(OPTIONS)

bench-start: all ## compare whole processes that compute one token, repacking or mapping weights, with llama.cpp (needs the lab; OPTIONS="--types Q8_0")
	@tools/lab.sh setup
	@tools/bench_start $(OPTIONS)

bench-replay: all ## compare hit rates of a replayed trace with those of an ideal cache (an hour; REQUESTS=file, REPLAY_MODEL=file)
	@tools/bench_replay $(REPLAY_MODEL) $(REQUESTS) --threads 1 $(OPTIONS)

soak: SECONDS = 3600
soak: all ## soak test under mixed load: memory must stay flat and answers unchanged: make soak SECONDS=3600
	@build/reprise bench -m $(SOAK_MODEL) --load soak --seconds $(SECONDS) --kv-ram 64M $(OPTIONS)

.PHONY: soak-models
soak-models: SECONDS = 600
soak-models: all ## soak test of three models in one server with memory for two, all APIs mixed: make soak-models SECONDS=600
	@tools/soak_models --seconds $(SECONDS) $(OPTIONS)

soak-disk: SECONDS = 3600
soak-disk: DIR = build/soak-store
soak-disk: all ## soak test with a store on disk, measured from outside: within budget, no growth: make soak-disk SECONDS=3600
	@rm -rf $(DIR)
	@build/reprise bench -m $(SOAK_MODEL) --load soak --seconds $(SECONDS) --kv-ram 64M --store $(DIR) --disk 64M $(OPTIONS)

abuse: all ## attack the server with new seeds: malformed requests, bodies that take much memory, heads from a grammar, hostile templates, clients that disconnect: make abuse SECONDS=1800
	@REPRISE_TEST_ABUSE=full REPRISE_TEST_ROUNDS=1000 tools/test_random $(SECONDS)s '^(server/(abuse|memory|header_grammar)|template/hostile)$$'

.PHONY: break-store
break-store: all ## fault-test the on-disk store: kills, injected errors, foreign folders, corruption and full disks: make break-store SECONDS=1800
	@tools/break_store $(SECONDS) $(OPTIONS)

fuzz: ## run every fuzzer: make fuzz SECONDS=600
	@tools/setup checks
	@tools/fuzz $(SECONDS)

install: all ## install under PREFIX (/usr/local)
	@cmake --install build --prefix $(PREFIX)

clean: ## remove all builds
	@rm -rf build build-debug build-asan build-tsan build-fuzz build-clang build-arm build-coverage build.log

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20
