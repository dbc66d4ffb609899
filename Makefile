# SPDX-License-Identifier: Apache-2.0
# The usual ways in; CMakeLists.txt and CMakePresets.json do the work. `make help` lists them.

MODEL ?=
SECONDS ?= 600
ROUNDS ?= 3000
SEEDS ?= 1
# Of exactness and oracle: a new one each time, unless it is given.
REPRISE_TEST_SEED ?= $(shell od -An -N4 -tu4 /dev/urandom | tr -d " ")
SOAK_MODEL ?= models/reprise-mini.gguf
REQUESTS ?= $(REPRISE_TEST_DATA)/traces/mooncake_conversation_trace.jsonl
REPLAY_MODEL ?= $(REPRISE_TEST_DATA)/models/stories260K.gguf
PREFIX ?= /usr/local
OPTIONS ?=
BENCH_DIR ?= build/bench-models
BENCH_MODEL ?= $(BENCH_DIR)/tinyllama-1.1b-Q8_0.gguf

.PHONY: mutations all setup packages test exactness oracle test-arm test-clients test-clients-python test-page demo quality bench bench-peers bench-load bench-replay bench-restart bench-writer bench-audit soak soak-disk fuzz check install clean help
.DEFAULT_GOAL := all

all: packages ## build the program (build/reprise), the library, tests and tools; installs nothing
	@cmake --preset release -G Ninja >build.log 2>&1 || { cat build.log; exit 1; }
	@cmake --build --preset release

# Names missing packages and stops. The goals of README's first screen install them instead.
packages: $(if $(filter demo test,$(MAKECMDGOALS)),setup)
	@tools/setup --check

setup: ## install the missing Debian packages (tools/packages.txt), as root; otherwise print the command
	@tools/setup

test: all ## build and run every test
	@ctest --preset release

.PHONY: test-random
test-random: all ## every random test with new seeds, which it prints: make test-random SEEDS=10
	@tools/test_random $(SEEDS)

test-arm: ## build the kernels for AArch64 and test them under qemu (about five minutes)
	@tools/test_arm

test-clients: all ## the official clients of OpenAI, Anthropic and Gemini against the server (node and npm; the first time from npm's registry)
	@tests/clients/run

test-clients-python: all ## Debian's python3-openai and python3-anthropic against the server, in the lab where they are not installed
	@tests/clients/run_python

.PHONY: test-formats
test-formats: all ## /metrics read by promtool, /openapi.json by redocly (Debian's prometheus; node and npm, the first time from npm's registry)
	@tools/test_formats

test-page: all ## the server's page in a browser (Debian's chromium; node and npm, the first time from npm's registry)
	@tools/test_page

exactness: all ## random schedules of many calls, byte for byte what each gives alone: make exactness ROUNDS=3000 (about 20 minutes)
	@REPRISE_TEST_SEED=$(REPRISE_TEST_SEED) REPRISE_TEST_ROUNDS=$(ROUNDS) build/tests/exactness/test_schedules

oracle: all ## random schemas and prompts of every family beside the slow reference: make oracle ROUNDS=500 (about 20 minutes)
	@REPRISE_TEST_SEED=$(REPRISE_TEST_SEED) REPRISE_TEST_ROUNDS=$(ROUNDS) build/tests/oracle/test_oracle
	@REPRISE_TEST_SEED=$(REPRISE_TEST_SEED) REPRISE_TEST_ROUNDS=$$(($(ROUNDS) / 10)) build/tests/oracle/test_oracle_families

check: ## what CI runs, in steps (.ci/run --list)
	@.ci/run

.PHONY: format tidy coverage dist
format: ## check white space and layout (clang-format 14)
	@tools/check-format

tidy: all ## clang-tidy (14) with the checks of .clang-tidy, on src/base and src/kv: make tidy TIDY="src/store"
	@tools/tidy $(TIDY)

coverage: ## lines and branches that the tests execute, by folder (gcc, gcovr; build-coverage/index.html)
	@tools/coverage

mutations: packages ## breaks ten invariants on purpose and expects an assertion or a test to notice (about ten minutes)
	@tools/check-mutations $(NAMES)

dist: ## build/reprise-VERSION.tar.gz of the last commit, the same bytes each time
	@tools/dist

demo: all ## first token of new questions: full prefill, prefix cache, modules (MODEL=file.gguf: another model than the bundled one)
	@tools/demo $(MODEL)

quality: all ## what ways of reuse do to answers: every task of models/eval (about ten minutes)
	@tools/quality

$(BENCH_MODEL): | all
	@mkdir -p $(BENCH_DIR)
	@build/mkgguf tinyllama-1.1b Q8_0 $@

bench: all $(BENCH_MODEL) ## first-token times with and without reuse (several minutes)
	@build/bench/bench_reuse $(BENCH_MODEL)

bench-peers: all ## beside llama.cpp, into docs/performance.md (hours; OPTIONS="--shapes smollm2-135m --types Q4_0")
	@tools/lab.sh setup
	@tools/bench_peers $(OPTIONS)

bench-restart: all $(BENCH_MODEL) ## first token from disk after a restart (about six minutes; OPTIONS="--dir DIR": a folder that stays)
	@build/bench/bench_restart $(BENCH_MODEL) $(OPTIONS)

.PHONY: bench-quality
bench-quality: all $(BENCH_MODEL) ## what computing some of the modules' tokens again costs (ten minutes; OPTIONS="--rounds 3")
	@build/bench/bench_quality $(BENCH_MODEL) $(OPTIONS)

bench-writer: all $(BENCH_MODEL) ## what writing states does to answers under way (about four minutes)
	@build/bench/bench_writer $(BENCH_MODEL) $(OPTIONS)

bench-audit: all ## what auditing every request does to those that run (about six minutes)
	@build/bench/bench_audit models/reprise-mini.gguf $(OPTIONS)

.PHONY: bench-serve bench-serve-peers abuse
bench-serve: all $(BENCH_MODEL) ## what the server costs beside the library (about five minutes; OPTIONS="--parallel 4")
	@build/bench/bench_http models/reprise-mini.gguf --answer 64 --requests 100 --rounds 40 $(OPTIONS)
	@build/bench/bench_http $(BENCH_MODEL) $(OPTIONS)

bench-serve-peers: all ## the server beside llama.cpp's, documents in changing order (an hour; OPTIONS="--rounds 1 --rates 0.1")
	@tools/lab.sh setup
	@tools/bench_serve_peers $(OPTIONS)

bench-load: all $(BENCH_MODEL) ## what long prompts do to answers under way (half an hour; OPTIONS="--rounds 1 --seconds 20")
	@tools/bench_load $(BENCH_MODEL) $(OPTIONS)

bench-replay: all ## hit rates of a replayed trace beside an ideal cache's (an hour; REQUESTS=file, REPLAY_MODEL=file)
	@tools/bench_replay $(REPLAY_MODEL) $(REQUESTS) --threads 1 $(OPTIONS)

soak: SECONDS = 3600
soak: all ## load of every sort: memory stays flat, answers what they are: make soak SECONDS=3600
	@build/reprise bench -m $(SOAK_MODEL) --load soak --seconds $(SECONDS) --kv-ram 64M $(OPTIONS)

soak-disk: SECONDS = 3600
soak-disk: DIR = build/soak-store
soak-disk: all ## the same with a store on disk, watched from outside: the budget holds, nothing grows: make soak-disk SECONDS=3600
	@rm -rf $(DIR)
	@build/reprise bench -m $(SOAK_MODEL) --load soak --seconds $(SECONDS) --kv-ram 64M --store $(DIR) --disk 64M $(OPTIONS)

abuse: all ## 10,000 malformed requests, 1,000 clients that disconnect and other hostile clients, again with new seeds: make abuse SECONDS=1800
	@REPRISE_TEST_ABUSE=full tools/test_random $(SECONDS)s '^server/abuse$$'

.PHONY: break-store
break-store: all ## kills, injected errors, foreign folders, damage and full disks against a store: make break-store SECONDS=1800
	@tools/break_store $(SECONDS) $(OPTIONS)

fuzz: ## run every fuzzer: make fuzz SECONDS=600
	@tools/setup checks
	@tools/fuzz $(SECONDS)

install: all ## install under PREFIX (/usr/local)
	@cmake --install build --prefix $(PREFIX)

clean: ## remove all builds
	@rm -rf build build-debug build-asan build-tsan build-fuzz build-clang build-arm build-coverage build.log

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20
