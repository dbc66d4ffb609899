# The usual ways in; CMakeLists.txt and CMakePresets.json do the work. `make help` lists them.

MODEL ?=
SECONDS ?= 600
PREFIX ?= /usr/local
OPTIONS ?=
BENCH_DIR ?= build/bench-models
BENCH_MODEL ?= $(BENCH_DIR)/tinyllama-1.1b-Q8_0.gguf

.PHONY: all setup test test-arm demo quality bench bench-peers fuzz check install clean help
.DEFAULT_GOAL := all

all: setup ## build the program (build/reprise), the library, tests and tools
	@cmake --preset release -G Ninja >build.log 2>&1 || { cat build.log; exit 1; }
	@cmake --build --preset release

setup:
	@tools/setup

test: all ## build and run every test
	@ctest --preset release

test-arm: ## build the kernels for AArch64 and test them under qemu (about five minutes)
	@tools/test_arm

check: ## what CI runs
	@.ci/run

demo: all ## two prompts over one schema, with and without reuse (MODEL=file.gguf: another model than the bundled one)
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

fuzz: setup ## run every fuzzer: make fuzz SECONDS=600
	@tools/fuzz $(SECONDS)

install: all ## install under PREFIX (/usr/local)
	@cmake --install build --prefix $(PREFIX)

clean: ## remove all builds
	@rm -rf build build-debug build-asan build-tsan build-fuzz build-clang build-arm build.log

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20
