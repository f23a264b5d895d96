# goshmem: everything a developer needs is a target here. `make help` lists them.
GO       ?= go
BUILD    := build
TOOLS    := $(BUILD)/tools
STATICCHECK_VERSION := v0.8.2
NPES     ?= 4
FUZZTIME ?= 20s
STRESS   ?= 10

export CGO_ENABLED ?= 0

.PHONY: help build run test test-unit test-race test-procs test-rdma cross lint bench bench-peers fuzz stress generate clean

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

# The lane fails, and never skips, where it cannot start.
RXE := $(BUILD)/rxe
test-rdma: ## suites over RDMA: soft-RoCE in one and in two virtual machines
	@mkdir -p $(RXE)
	CGO_ENABLED=0 $(GO) test -tags rdma -ldflags '-s -w' -c -o $(RXE)/verbs.test ./internal/verbs
	CGO_ENABLED=0 $(GO) test -tags rdma -ldflags '-s -w' -c -o $(RXE)/rdma.test ./ibrc/rdma
	CGO_ENABLED=0 $(GO) build -ldflags '-s -w' -o $(RXE)/ ./cmd/goshmem ./examples/moe
	lanes/rxe/run.sh -t 400 $(RXE)/verbs.test $(RXE)/rdma.test $(RXE)/goshmem $(RXE)/moe lanes/rxe/*.sh -- sh one.sh 1000000
	lanes/rxe/run.sh -n 2 $(RXE)/rdma.test lanes/rxe/*.sh -- sh two.sh 10000

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
	$(GO) vet -tags goshmem_debug ./...
	$< ./...

bench: build ## the figures of docs/perf, on this machine
	$(BUILD)/goshmem bench all

bench-peers: build ## collectives beside Open MPI's and OSHMEM's (MPICC, OSHCC, MPIRUN, OSHRUN); says what is missing
	$(GO) run ./bench/peers -goshmem $(BUILD)/goshmem $(PEERS_FLAGS)

fuzz: ## every fuzz target for FUZZTIME
	@set -e; for pkg in $$($(GO) list ./...); do \
		for f in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
			echo "$$pkg $$f"; $(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) $$pkg; \
		done; \
	done

stress: ## the suites STRESS times, with 1, 2 and 8 processors, with and without -race
	@set -e; for p in 1 2 8; do \
		echo "GOMAXPROCS=$$p"; GOMAXPROCS=$$p $(GO) test -count=$(STRESS) ./heap ./channel ./rma ./amo ./coll ./counters ./moe/...; \
		GOMAXPROCS=$$p CGO_ENABLED=1 $(GO) test -race -short -count=$(STRESS) ./channel ./rma ./amo ./coll; \
	done

generate: ## refresh generated pages and golden files
	$(GO) test ./internal/options -update

clean: ## remove what was built
	rm -rf $(BUILD)
