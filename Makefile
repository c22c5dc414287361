# `make ci` runs what CI runs. `make help` lists the rest.
SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT  ?= $(shell git rev-parse --short HEAD 2>/dev/null || echo unknown)
LDFLAGS := -X main.version=$(VERSION) -X main.commit=$(COMMIT)
BIN     := $(CURDIR)/bin
SEEDS   ?= 200
# The scenarios that make test runs: push, or all.
SCENARIOS ?= push
FUZZTIME ?= 10m

# All targets compile with the flags of the image (tools/image/release.go), so that what one has compiled is there for the others. Debug
# information takes a fifth of the compiler's time, and no stack trace needs it. For a debugger: go build ./cmd/dovetail. Without the tag
# the binary is larger by a third. Inlining in the clients of AWS takes half of their compiler's time, a seventh of all, and they wait for
# the network.
FLAGS := -trimpath -tags=grpcnotrace -gcflags=all=-dwarf=false '-gcflags=github.com/aws/aws-sdk-go-v2/service/...=-dwarf=false -l'
export GOFLAGS := $(strip $(shell go env GOFLAGS) $(FLAGS))
export CGO_ENABLED := 0

# The Kubernetes components are most of a first build: -v feeds the progress line.
define build
	@go build -v -ldflags '$(LDFLAGS)' -o $(BIN)/$(notdir $(1)) $(1) 2>&1 | awk -v what=bin/$(notdir $(1)) -f hack/progress.awk
endef

.PHONY: help
help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  \033[1m%-19s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/dovetail and bin/dovetail-lab (the first time takes some minutes)
	$(call build,./cmd/dovetail)
	$(call build,./lab/cmd/dovetail-lab)

.PHONY: cli
cli: ## Build bin/dovetail alone: plan, explain, assess and all other commands (the first time takes two minutes)
	$(call build,./cmd/dovetail)

.PHONY: lab
lab: build ## Boot a cluster and an AWS simulator on this machine, and watch Dovetail launch nodes for pods
	@$(BIN)/dovetail-lab up

# Tests are linked without symbols, which is a third faster; stack traces stay. Go takes a result from its cache unless the code or a file
# of the module that the test reads has changed. What a test reads besides is named here as its inputs, and linked in as a hash.
# `make nightly` takes nothing from the cache. Of the root module, api/crds runs a generator over the types in api.
link   = -ldflags='-s -w -X dovetail.inputs=$(or $(shell hack/inputs $(1)),$(error hack/inputs $(1) failed: is this a clone with git?))'
COUNT ?=
LAB   := DOVETAIL_LAB=$(BIN)/dovetail-lab DOVETAIL=$(BIN)/dovetail

# The scenarios and the commands of the documentation wait more than they compute. Everything else fills that time, and gives way to the
# scenarios, which take longest. So these three begin at once.
CHECKS := test-others
.PHONY: test
test: ## Build, lint, unit tests, scenarios on a real control plane: everything that needs Go and make alone
	@rm -f $(BIN)/parts.txt $(BIN)/done.*
	@hack/part build $(MAKE) --no-print-directory fmt-check build
	@code=0; $(MAKE) --no-print-directory -j 4 test-scenarios $(CHECKS) || code=$$?; \
		if [[ -f $(BIN)/parts.txt ]]; then echo "Parts:"; awk -f hack/parts.awk $(BIN)/parts.txt; fi; exit $$code

.PHONY: ci
ci: override CHECKS := test-others test-console
ci: test ## What CI runs: make test, and make console-check with it (needs npm and chromium, too)

# A browser that waits for a processor looks like a page that hangs. So the page has its tests once no more is compiled and the commands of
# the documentation are done, or the scenarios have finished, whichever comes first, and gives way to nothing. What is left then waits more
# than it computes.
.PHONY: test-console
test-console:
	@hack/first $(BIN)/done.scenarios $(BIN)/done.lab && hack/first $(BIN)/done.scenarios $(BIN)/done.docs && \
		hack/part console-check $(MAKE) --no-print-directory console-check

# Results of programs that run are never taken from the cache.
.PHONY: test-scenarios
test-scenarios:
	@code=0; hack/part scenarios env $(LAB) DOVETAIL_SCENARIOS=$(SCENARIOS) \
		go test -vet=off -count=1 -timeout 75m -parallel 5 ./lab/scenario || code=$$?; touch $(BIN)/done.scenarios; exit $$code

.PHONY: test-others test-unit test-lab test-docs
test-others: test-lab test-docs

# A quarter of the time of these would be garbage collection. They do not start the programs, which have their own settings for it.
test-unit: export GOGC ?= 400
test-unit:
	@nice -n 5 hack/part lint $(MAKE) --no-print-directory lint
	@nice -n 5 hack/part unit go test -vet=off $(COUNT) $(call link,api go.mod) -p 2 -timeout 75m ./...

test-lab: test-unit
	@nice -n 5 hack/part lab env $(LAB) go test -vet=off $(COUNT) $(call link,lab internal api cmd deploy examples tools/chart/testdata README.md docs go.mod) \
		-p 2 -timeout 75m -parallel 3 $$(go list ./lab/... | grep -v -e /lab/scenario$$ -e /lab/docstest$$)
	@for check in catalog chart monitoring docs image; do \
		nice -n 5 hack/part $$check-check $(MAKE) --no-print-directory $$check-check || exit 1; done
	@touch $(BIN)/done.lab

test-docs:
	@nice -n 5 hack/part docs env $(LAB) go test -vet=off -count=1 -timeout 75m -parallel 3 ./lab/docstest
	@touch $(BIN)/done.docs

.PHONY: quick
quick: ## Vet and test the Go packages with changes that are not committed (seconds, for the loop from an edit to its answer)
	@hack/quick

.PHONY: nightly
nightly: ## Everything: all scenarios, chaos over SEEDS seeds, fuzzing, each test anew, with the race detector and in random order (needs gcc)
	@$(MAKE) --no-print-directory test COUNT=-count=1 SCENARIOS=all
	DOVETAIL_LARGE_PLANS=1 go test -vet=off -count=1 -run Decisions ./internal/engine/propertytest
	CGO_ENABLED=1 go test -vet=off -race -shuffle=on -count=1 -p 1 -timeout 3h ./...
	@$(MAKE) --no-print-directory scheduler-agrees chaos fuzz image-verify

.PHONY: scenarios
scenarios: build ## Run every lab scenario and print its steps
	$(BIN)/dovetail-lab run --all

.PHONY: chaos
chaos: build ## Run the scenario chaos over SEEDS seeds (default 200; five worlds at a time, about half an hour)
	$(BIN)/dovetail-lab run chaos --seeds $(SEEDS) --worlds 5

.PHONY: scheduler-agrees
scheduler-agrees: build ## Have kube-scheduler bind the pods of 50 plans for generated clusters (a minute)
	$(BIN)/dovetail-lab run scheduler-agrees --seeds 50

.PHONY: fmt-check
fmt-check:
	@out=$$(go tool gofumpt -l $$(git ls-files '*.go' | grep -v zz_generated)); \
	if [ -n "$$out" ]; then echo "not formatted (run: make fmt):"; echo "$$out"; exit 1; fi

.PHONY: lint
lint: fmt-check ## Run gofumpt, vet, staticcheck and actionlint
	go vet ./... ./lab/...
	go tool staticcheck ./... ./lab/...
	cd tools/ci && GOWORK=off go tool actionlint -shellcheck= -pyflakes= ../../.github/workflows/*.yml

.PHONY: fmt
fmt: ## Format all Go code
	go tool gofumpt -w $$(git ls-files '*.go' | grep -v zz_generated)

.PHONY: hooks
hooks: ## Have git check the format, the rules of archtest and the words of pages before each commit
	git config core.hooksPath hack/hooks

.PHONY: generate
generate: ## Regenerate deepcopy functions, CRDs, the schema and README of the charts, the schemas of output, and the reference pages
	go generate ./api/...
	cd tools/chart && GOWORK=off go generate .
	cd tools/docs && GOWORK=off go generate .
	UPDATE=1 go test ./cmd/dovetail -run 'TestMetricsPage|TestSchemasAreFresh'

.PHONY: catalog
catalog: ## Regenerate the offline catalog of EC2 types and prices
	cd tools/ec2catalog && GOWORK=off go run .

.PHONY: catalog-check
catalog-check: ## Test the generator, and that the committed catalog is its output
	cd tools/ec2catalog && GOWORK=off go vet . && GOWORK=off go test $(COUNT) $(call link,.) .

.PHONY: chart-check
chart-check: ## Test the Helm charts with Helm's own engine against the settings and the RBAC
	cd tools/chart && GOWORK=off go vet ./... && GOWORK=off go test $(COUNT) $(call link,.) ./...

.PHONY: docs-check
docs-check: ## Test the links of the documentation, the examples for EKS, and that reference pages are fresh
	cd tools/docs && GOWORK=off go vet ./... && GOWORK=off go test $(COUNT) $(call link,.) ./...

.PHONY: docs
docs: ## Build the documentation as a static site with search and a demo of the console, in docs/site/dist (needs npm)
	$(call build,./cmd/dovetail)
	@rm -rf docs/site/demo && go run ./cmd/dovetail-demo $(BIN)/day.rec && $(BIN)/dovetail console --recording $(BIN)/day.rec --export docs/site/demo
	cd docs/site && npm ci --no-audit --no-fund && npm run build

# Another toolchain compiles and compresses differently. Go downloads the pinned one if it is not this host's.
IMAGE_TOOL = cd tools/image && GOWORK=off GOTOOLCHAIN=$$(awk '$$1 == "toolchain" {print $$2}' go.mod) go run .

# Scripts of packages do not run: none of these packages needs any.
CONSOLE_NPM = cd console && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error

.PHONY: console
console: ## Build the page of dovetail console into internal/console/assets (needs npm)
	$(CONSOLE_NPM) && npm run --silent build

.PHONY: console-bench
console-bench: ## Measure the page of dovetail console over 5,000 nodes and 100,000 pods (BENCHFLAGS="--nodes 300 --pods 5000"; needs npm and chromium)
	$(call build,./cmd/dovetail)
	$(CONSOLE_NPM) && DOVETAIL=$(BIN)/dovetail CHROMIUM=$${CHROMIUM:-$$(command -v chromium)} node test/bench.mjs $(BENCHFLAGS)

.PHONY: console-pictures
console-pictures: cli ## Take the pictures of the console in docs/images (needs npm and chromium)
	$(CONSOLE_NPM) && DOVETAIL=$(BIN)/dovetail CHROMIUM=$${CHROMIUM:-$$(command -v chromium)} node --test --test-concurrency=1 test/docpictures.mjs

.PHONY: console-check
console-check: build ## Test the page of dovetail console: its types, its bundle, and in Chromium against the lab (needs npm and chromium)
	$(CONSOLE_NPM) && npm run --silent check && \
		DOVETAIL_LAB=$(BIN)/dovetail-lab DOVETAIL=$(BIN)/dovetail CHROMIUM=$${CHROMIUM:-$$(command -v chromium)} npm run --silent browser

.PHONY: image
image: ## Build the container image for amd64 and arm64 into bin/image, and print its digest
	@$(IMAGE_TOOL) build -out $(BIN)/image

.PHONY: image-verify
image-verify: ## Build the image again from a copy of the sources, with an empty build cache, and compare digests (some minutes)
	@$(IMAGE_TOOL) verify -out $(BIN)/image

.PHONY: image-push
image-push: ## Push the image and its SBOMs to REF, such as REF=registry.example.com/dovetail:0.1.0, with the login of docker
	@$(IMAGE_TOOL) push -out $(BIN)/image $(REF)

# What decides how the image is built, what is in it, and how the program starts in it. Other code runs in it as it does in scenarios: the
# image is tested with it every night.
IMAGE_INPUTS = tools/image Makefile go.mod go.sum go.work go.work.sum LICENSE cmd/dovetail internal/operator internal/settings deploy \
	':!*_test.go'

.PHONY: image-check
image-check: build ## Build the image for this host twice, inspect it, push it to a registry in memory, and run it in the lab
	cd tools/image && GOWORK=off go vet . && \
		DOVETAIL_LAB=$(BIN)/dovetail-lab GOWORK=off go test $(COUNT) $(call link,$(IMAGE_INPUTS)) -timeout 40m .
	cd tools/ci && GOWORK=off go vet . && GOWORK=off go test -count=1 .

.PHONY: charts
charts: ## Pack the Helm charts with the version of the release, into bin/charts
	@$(IMAGE_TOOL) charts -out $(BIN)/charts

.PHONY: release
release: ## Build all files of a release into bin/release: programs, image, charts, SBOMs, installers, checksums (the first time half an hour)
	@$(IMAGE_TOOL) release -out $(BIN)/release

.PHONY: dashboards
dashboards: ## Regenerate the Grafana dashboards of the chart
	cd tools/monitoring && GOWORK=off go run .

.PHONY: dashboards-pictures
dashboards-pictures: ## Draw the dashboards for docs with the metrics in the file CAPTURE, from dovetail-lab run --metrics-out
	cd tools/monitoring && GOWORK=off go run . -draw $(abspath $(CAPTURE))

.PHONY: monitoring-check
monitoring-check: ## Test dashboards and alert rules with Prometheus' own parser and engine
	cd tools/monitoring && GOWORK=off go vet ./... && GOWORK=off go test $(COUNT) $(call link,.) ./...

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

.PHONY: scale
scale: build ## Measure the controller with 5,000 nodes and 100,000 pods in the lab (SCALEFLAGS; 15 minutes, 16 GiB)
	@$(BIN)/dovetail-lab scale $(SCALEFLAGS)

# Another controller's binary is the reader's: this repository has none.
.PHONY: compare
compare: ## Measure Dovetail and the controller KARPENTER=path/to/controller with six workloads in the lab (COMPAREFLAGS; 20 minutes)
	@[[ -n "$(KARPENTER)" && -f "$(KARPENTER)" && -x "$(KARPENTER)" ]] || { \
		echo 'make compare: KARPENTER="$(KARPENTER)" is no executable file: give the path of the other controller, as in' \
			'`make compare KARPENTER=/tmp/karpenter/controller`' >&2; exit 2; }
	@$(MAKE) --no-print-directory build >&2
	@$(BIN)/dovetail-lab compare --other "$(KARPENTER)" $(COMPAREFLAGS)

.PHONY: fuzz
fuzz: ## Search for clusters with a wrong plan: 140,000 random ones, planted faults, and FUZZTIME (10m) each for two fuzz tests
	DOVETAIL_WORLDS=0,20000 go test -run 'TestWorlds|TestWideWorlds' ./internal/engine/propertytest
	DOVETAIL_WORLDS=0,10000 go test -timeout 3h ./lab/schedulertest
	go run ./hack/plantfaults
	go test -run '^$$' -fuzz FuzzWorlds -fuzztime $(FUZZTIME) -parallel 2 ./internal/engine/propertytest
	go test -run '^$$' -fuzz FuzzHostilePods -fuzztime $(FUZZTIME) -parallel 2 ./internal/engine/propertytest

.PHONY: clean
clean: ## Remove build output
	rm -rf $(BIN)
