# goshmem: everything a developer needs is a target here. `make help` lists them.
GO       ?= go
BUILD    := build
TOOLS    := $(BUILD)/tools
STATICCHECK_VERSION := v0.8.2
NPES     ?= 4
FUZZTIME ?= 20s
STRESS   ?= 10
STRESS_TIME     ?= 5m
STRESS_MATRICES ?= 10000
SEED     ?= 0

export CGO_ENABLED ?= 0

.PHONY: $(shell grep -oE '^[a-z-]+:' $(firstword $(MAKEFILE_LIST)) | tr -d :)

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

build: ## the tool and the examples, into build/
	@mkdir -p $(BUILD)
	$(GO) build -o $(BUILD)/ ./cmd/goshmem ./examples/...

run: build ## the main job: MoE dispatch and combine between 4 processes, verified
	$(BUILD)/goshmem run -n $(NPES) $(BUILD)/moe
	GOSHMEM_PATH=proxy $(BUILD)/goshmem run -n $(NPES) $(BUILD)/moe

test: test-unit test-debug test-race cross ## every suite that needs only Go (and gcc for -race)

test-unit: ## unit, property, multi-process, oversubscription and fault tests
	$(GO) test ./...

test-debug: ## the suites of the operations with the runtime's own checks switched on
	$(GO) test -tags goshmem_debug ./rma ./amo ./coll/...

# The race detector needs cgo's linker. Left out: programs (bench), kernels and
# simulations that have no concurrency of their own.
RACE_OUT := /bench$$|/coll/internal/reduce$$|/coll/relaysim$$|/moe/(bf16|oracle|routing)|/examples/
test-race: ## the race detector over everything short enough
	@if command -v $${CC:-gcc} >/dev/null; then CGO_ENABLED=1 $(GO) test -race -short $$($(GO) list ./... | grep -vE '$(RACE_OUT)'); \
	else echo "SKIP test-race: no C compiler (the race detector needs one)"; fi

# Several hosts on this one: network namespaces. What they hold dies with the test.
test-netns: ## hosts as network namespaces: rendezvous, launchers, losses, suites between them (needs root)
	@if [ "$$(id -u)" != 0 ]; then echo "SKIP test-netns: network namespaces need root"; \
	else $(GO) test -count=1 -timeout 5m -tags netns -run 'Netns|TestLab' ./cmd/goshmem ./internal/netlab; fi
# The lane fails, and never skips, where it cannot start.
RXE := $(BUILD)/rxe
# Put-signals whose payloads are all checked. The guests are emulated where nested
# virtualisation does not boot them: 1000000 take too long for every run there, and
# are run by hand (docs/perf/verbs.md), as GOSHMEM_TEST_ADDS=1000000 of amo.test is.
RDMA_STRESS ?= 100000
test-rdma: ## suites over RDMA: soft-RoCE in one and in two virtual machines
	@mkdir -p $(RXE)
	@set -e; for p in internal/verbs ibrc/rdma amo coll moe; do \
		CGO_ENABLED=0 $(GO) test -tags rdma -ldflags '-s -w' -c -o $(RXE)/$$(basename $$p).test ./$$p; \
	done
	CGO_ENABLED=0 $(GO) build -ldflags '-s -w' -o $(RXE)/ ./cmd/goshmem ./examples/moe
	lanes/rxe/run.sh -t 450 -m 1024 $(RXE)/*.test $(RXE)/goshmem $(RXE)/moe lanes/rxe/*.sh -- sh one.sh $(RDMA_STRESS)
	lanes/rxe/run.sh -n 2 $(RXE)/rdma.test $(RXE)/moe lanes/rxe/*.sh -- sh two.sh 10000

cross: ## builds that must work elsewhere: no cgo, arm64, without purego
	CGO_ENABLED=0 $(GO) build ./...
	CGO_ENABLED=0 GOOS=linux GOARCH=arm64 $(GO) vet ./...
	CGO_ENABLED=0 $(GO) build -tags nopurego ./...

$(TOOLS)/staticcheck-$(STATICCHECK_VERSION):
	@mkdir -p $(TOOLS)
	GOBIN=$(abspath $(TOOLS)) $(GO) install honnef.co/go/tools/cmd/staticcheck@$(STATICCHECK_VERSION)
	mv $(TOOLS)/staticcheck $@

lint: $(TOOLS)/staticcheck-$(STATICCHECK_VERSION) ## gofmt, vet, staticcheck
	@out=$$(gofmt -l .); if [ -n "$$out" ]; then echo "not formatted:"; echo "$$out"; exit 1; fi
	$(GO) vet ./...
	$(GO) vet -tags goshmem_debug,netns,rdma ./...
	$< ./...

bench: build ## the figures of docs/perf, on this machine
	$(BUILD)/goshmem bench all

perf: build ## the report of this machine into docs/perf; on a quiet one, half an hour (PERF_STEPS="all scale peers repeat report")
	bench/perf.sh $(PERF_STEPS)

bench-repeat: build ## every program three times: how far medians lie from each other (BENCH_FLAGS)
	$(BUILD)/goshmem bench all -repeat 3 -time 150ms $(BENCH_FLAGS)

bench-scale: build ## cost as the work grows: 1 to 64 goroutines, 1 to 16 processes (BENCH_FLAGS)
	$(BUILD)/goshmem bench scale $(BENCH_FLAGS)

bench-peers: build ## goshmem beside Open MPI, its OSHMEM, MPICH, UCX and plain C; installs them (Debian, root), says what is missing
	bench/peers/install.sh
	$(GO) run ./bench/peers -goshmem $(BUILD)/goshmem $(PEERS_FLAGS)

GPU_TESTS := internal/cuda nvlink/device/cudadev nvlink rma pe moe
test-gpu-build: ## test binaries for a machine with GPUs, compressed (40 MB), into build/gpu/
	@mkdir -p $(BUILD)/gpu
	@set -e; for p in $(GPU_TESTS); do \
		CGO_ENABLED=0 $(GO) test -c -ldflags='-s -w' -o $(BUILD)/gpu/$$(basename $$p).test ./$$p; \
	done
	CGO_ENABLED=0 $(GO) build -ldflags='-s -w' -o $(BUILD)/gpu/ ./cmd/goshmem ./examples/gpuring
	@cd $(BUILD)/gpu && gzip -f goshmem gpuring *.test

test-gpu: ## the tests on a GPU: what is in build/gpu, built first where Go is
	@if command -v $(GO) >/dev/null; then $(MAKE) test-gpu-build; else echo "no Go here: running what is in $(BUILD)/gpu"; fi
	nvlink/device/test-gpu.sh

NVCC ?= nvcc
PTX_DIRS := nvlink/device/cudadev nvlink/device/devicetest examples/gpuring
ptx: ## compile the CUDA kernels to PTX (needs nvcc, 11.8 or later; commit what changes)
	@set -e; for d in $(PTX_DIRS); do \
		$(NVCC) -std=c++17 -ptx -arch=compute_75 -o $$d/kernels.ptx $$d/kernels.cu; \
		cat $$d/kernels.cu nvlink/device/goshmem.cuh | sha256sum | cut -d' ' -f1 >$$d/kernels.sha256; \
	done
	@$(MAKE) ptx-exchange
# Any nvcc from 11.8 on does.
ptx-exchange:
	cd nvlink/device/cudadev && $(NVCC) -std=c++17 -ptx -arch=compute_75 -o exchange.ptx exchange.cu && \
		$(NVCC) -std=c++17 -ptx -arch=compute_90 -DGOSHMEM_EARLY -o exchange90.ptx exchange.cu && \
		cat exchange.cu ../goshmem.cuh | sha256sum | cut -d' ' -f1 >exchange.sha256

fuzz: ## every fuzz target for FUZZTIME
	@set -e; for pkg in $$($(GO) list ./...); do \
		for f in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
			echo "$$pkg $$f"; $(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) $$pkg; \
		done; \
	done

stress: stress-coll ## the suites STRESS times, with 1, 2 and 8 processors, with and without -race; after stress-coll
	@set -e; for p in 1 2 8; do \
		echo "GOMAXPROCS=$$p"; GOMAXPROCS=$$p $(GO) test -count=$(STRESS) ./heap ./channel ./rma ./amo ./coll ./counters ./moe/...; \
		GOMAXPROCS=$$p CGO_ENABLED=1 $(GO) test -race -short -count=$(STRESS) ./channel ./rma ./amo ./coll; \
	done

stress-coll: ## STRESS_MATRICES random alltoallvs; random logs of collectives for STRESS_TIME, from SEED on (0: by the clock; a failure tells its own)
	GOSHMEM_STRESS_MATRICES=$(STRESS_MATRICES) $(GO) test -tags goshmem_debug -timeout 2h -run TestAllToAllVFabric ./coll
	$(GO) test -tags goshmem_debug -timeout 0 -run TestRandomLog -v ./coll -duration $(STRESS_TIME) -seed $(SEED)

generate: ## refresh generated pages and golden files
	$(GO) test ./internal/options -update

clean: ## remove what was built
	rm -rf $(BUILD)

# The MoE kernels as PTX, with the hash of their source in front. Needs nvcc of
# CUDA 12 or later; NVCC says which. An earlier one states a version of PTX that
# lacks bulk copies, which is put right.
ptx-moe:
	$(NVCC) -arch=sm_90 -std=c++17 -ptx moe/internal/kernels/kernels.cu -o moe/internal/kernels/kernels.ptx.new
	{ echo "// source sha256:$$(sha256sum < moe/internal/kernels/kernels.cu | cut -d' ' -f1)"; \
	  sed 's/^\.version 7\.[0-9]$$/.version 8.0/' moe/internal/kernels/kernels.ptx.new; } > moe/internal/kernels/kernels.ptx
	rm moe/internal/kernels/kernels.ptx.new
