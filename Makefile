# What the README names. Every target says what it does while it takes long.
CARGO ?= cargo
BERTH := target/debug/berth

.PHONY: demo demo-cluster test lint bench quality replay e2e page image

## demo: the seed stories, offline: no cluster needed.
demo:
	@echo "Building berth (some minutes on a fresh machine, a second afterwards) ..." >&2
	@$(CARGO) build --locked --bin berth
	@for story in examples/*/; do \
		echo; echo "=== $$story"; sed -n 's/^# //p' "$$story/README.md" | head -1; echo; \
		$(BERTH) simulate "$$story" || exit 1; \
	done

## demo-cluster: the seed story on a real API server: KUBECONFIG's after asking, else a control plane of its own.
demo-cluster:
	@echo "Building berth and the demo ..." >&2
	@$(CARGO) build --locked -p berth -p berth-demo --bins
	@$(CARGO) run --locked --quiet -p berth-demo

## test: formatting, lints and every test.
test: lint
	@echo "Testing the engine (properties and oracles) ..." >&2
	$(CARGO) test --locked -p berth-engine
	@echo "Testing the API types ..." >&2
	$(CARGO) test --locked -p berth-api
	@echo "Testing the readers of fabrics ..." >&2
	$(CARGO) test --locked -p berth-discovery
	@echo "Testing grouping, conversion, simulate, scenarios and the command line ..." >&2
	$(CARGO) test --locked -p berth
	@$(MAKE) --no-print-directory e2e

## lint: warnings are errors.
lint:
	@echo "Checking (the first build compiles all dependencies, some minutes) ..." >&2
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

## e2e: the scheduler on a real control plane, built from source the first time.
e2e:
	@echo "Running on a real control plane (the first time its programs are built: some twenty minutes on two cores) ..." >&2
	$(CARGO) test --locked -p berth --test e2e -- --test-threads=1

## bench: decisions per second and memory, printed.
bench:
	@echo "Building the benches (optimised) ..." >&2
	$(CARGO) bench --locked -p berth-engine --bench decisions
	$(CARGO) bench --locked -p berth-discovery --bench dumps

## quality: placements against optima, bounds and simple ways; writes docs/quality.md and its plots.
quality:
	@echo "Building the board (optimised), then some 4 000 gangs, half a minute ..." >&2
	$(CARGO) bench --locked -p berth-engine --bench quality

## replay: kai against compact on a public trace, TRACE=<folder with nodes.csv and pods-default.csv>.
replay:
	@test -n "$(TRACE)" || { echo "Say where the trace is: make replay TRACE=<folder with nodes.csv and pods-default.csv>" >&2; exit 2; }
	@echo "Building the replay (optimised) ..." >&2
	$(CARGO) bench --locked -p berth-engine --bench quality -- replay=$(abspath $(TRACE))

## page: the page in a headless browser (node and chromium), small and with 5 000 nodes; pictures in target/page.
page:
	$(CARGO) build --locked --bin berth
	@mkdir -p target/page
	@node tests/page/cluster.mjs > target/page/large.json
	target/debug/berth tree examples/pytorch-segments -o html > target/page/small.html
	target/debug/berth tree target/page/large.json -o html > target/page/large.html
	node tests/page/check.mjs target/page/small.html target/page/small
	node tests/page/check.mjs target/page/large.html target/page/large
	target/debug/berth topology discover --from ibnetdiscover=tests/data/fabric/ibnetdiscover-8-racks.txt --from links=tests/data/fabric/links.txt --to html > target/page/fabric.html
	node tests/page/check.mjs target/page/fabric.html target/page/fabric
	node tests/page/live.mjs target/page/large.html target/page/live

## image: an OCI image with one static binary, without a container engine; in target/image.
image:
	@image/build.sh
