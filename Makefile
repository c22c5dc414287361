# `make test` runs what CI runs. `make help` lists the rest.
SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT  ?= $(shell git rev-parse --short HEAD 2>/dev/null || echo unknown)
LDFLAGS := -X main.version=$(VERSION) -X main.commit=$(COMMIT)
BIN     := $(CURDIR)/bin
SEEDS   ?= 200
FUZZTIME ?= 10m

# The Kubernetes components are most of a first build: -v feeds the progress line.
define build
	@go build -v -ldflags '$(LDFLAGS)' -o $(BIN)/$(notdir $(1)) $(1) 2>&1 | awk -v what=bin/$(notdir $(1)) -f hack/progress.awk
endef

.PHONY: help
help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  \033[1m%-12s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/dovetail and bin/dovetail-lab (the first time takes some minutes)
	$(call build,./cmd/dovetail)
	$(call build,./lab/cmd/dovetail-lab)

.PHONY: lab
lab: build ## Boot a cluster and an AWS simulator on this machine, and watch Dovetail launch nodes for pods
	@$(BIN)/dovetail-lab up

.PHONY: test
test: build lint catalog-check chart-check monitoring-check ## Everything CI runs: build, lint, unit tests, scenarios on a real control plane
	@# The scenarios wait more than they compute: they start first, four at a time, and the other packages run beside them, one after another.
	DOVETAIL_LAB=$(BIN)/dovetail-lab DOVETAIL=$(BIN)/dovetail go test -vet=off -p 2 -timeout 40m -parallel 3 ./lab/scenario ./lab/awstest ./lab/docstest ./lab/... ./...

.PHONY: scenarios
scenarios: build ## Run every lab scenario and print its steps
	$(BIN)/dovetail-lab run --all

.PHONY: chaos
chaos: build ## Run the scenario chaos over SEEDS seeds (default 200; five worlds at a time, about half an hour)
	$(BIN)/dovetail-lab run chaos --seeds $(SEEDS) --worlds 5

.PHONY: lint
lint: ## Run gofumpt, vet and staticcheck
	@out=$$(go tool gofumpt -l $$(git ls-files '*.go' | grep -v zz_generated)); \
	if [ -n "$$out" ]; then echo "not formatted (run: make fmt):"; echo "$$out"; exit 1; fi
	go vet ./... ./lab/...
	go tool staticcheck ./... ./lab/...

.PHONY: fmt
fmt: ## Format all Go code
	go tool gofumpt -w $$(git ls-files '*.go' | grep -v zz_generated)

.PHONY: generate
generate: ## Regenerate deepcopy functions and CRDs
	go generate ./api/...

.PHONY: catalog
catalog: ## Regenerate the offline catalog of EC2 types and prices
	cd tools/ec2catalog && GOWORK=off go run .

.PHONY: catalog-check
catalog-check: ## Test the generator, and that the committed catalog is its output
	cd tools/ec2catalog && GOWORK=off go vet . && GOWORK=off go test .

.PHONY: chart-check
chart-check: ## Test the Helm charts with Helm's own engine against the settings and the RBAC
	cd tools/chart && GOWORK=off go vet . && GOWORK=off go test .

.PHONY: dashboards
dashboards: ## Regenerate the Grafana dashboards of the chart
	cd tools/monitoring && GOWORK=off go run .

.PHONY: monitoring-check
monitoring-check: ## Test dashboards and alert rules with Prometheus' own parser and engine
	cd tools/monitoring && GOWORK=off go vet ./... && GOWORK=off go test ./...

.PHONY: bench
bench: ## Measure dovetail plan with the workloads of docs/performance.md (some minutes), and print the table of that page
	$(call build,./cmd/dovetail)
	@go run ./cmd/dovetail-bench -binary $(BIN)/dovetail -commit $(COMMIT) $(BENCHFLAGS)

.PHONY: bench-page
bench-page: override BENCHFLAGS += -page docs/performance.md
bench-page: bench ## The same, and write the table into docs/performance.md

.PHONY: microbench
microbench: ## Run the Go benchmarks (a quarter of an hour) and print medians of 5; bin/bench.txt has every run, for benchstat
	@mkdir -p $(BIN)
	@go test -run '^$$' -bench . -benchmem -benchtime 1x -count 5 -timeout 2h ./internal/... ./lab/awstest > $(BIN)/bench.txt || { cat $(BIN)/bench.txt; exit 1; }
	@awk -f hack/median.awk $(BIN)/bench.txt

.PHONY: fuzz
fuzz: ## Search for clusters with a wrong plan: 20,000 random ones, then FUZZTIME (10m) each for these and for pods that block others
	DOVETAIL_WORLDS=0,20000 go test -run 'TestWorlds|TestWideWorlds' ./internal/engine/propertytest
	go test -run '^$$' -fuzz FuzzWorlds -fuzztime $(FUZZTIME) -parallel 2 ./internal/engine/propertytest
	go test -run '^$$' -fuzz FuzzHostilePods -fuzztime $(FUZZTIME) -parallel 2 ./internal/engine/propertytest

.PHONY: clean
clean: ## Remove build output
	rm -rf $(BIN)
