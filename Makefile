# `make` builds a relocatable prefix in build/; `make run` and `make test` also do all set-up.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := all
MAKEFLAGS += --no-print-directory

PREFIX ?= /usr/local
CARGO ?= cargo
TARGET := $(abspath $(or $(CARGO_TARGET_DIR),target))
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
# Copies only what changed, so that programs built against the prefix are not rebuilt for nothing.
COPY := install -C

.PHONY: all
all: setup-build
	$(CARGO) build --release --package whimbrel-abi --package whimbrel-cli --package whimbrel-vipl \
		--package whimbrel-heap
	$(MAKE) prefix DIR=build

# Lays the prefix out in DIR from what cargo has built.
.PHONY: prefix
prefix:
	@mkdir -p '$(DIR)'/bin '$(DIR)'/lib/pkgconfig '$(DIR)'/include '$(DIR)'/share/whimbrel
	@$(COPY) -m 755 '$(TARGET)/release/libabi.so' '$(DIR)/lib/libmpi_abi.so.1'
	@ln -sf libmpi_abi.so.1 '$(DIR)/lib/libmpi_abi.so'
	@ln -sf libmpi_abi.so.1 '$(DIR)/lib/libmpi_abi.so.0'
	@$(COPY) -m 644 include/mpi.h include/mpi_fint.h '$(DIR)/include/'
	@$(COPY) -m 755 '$(TARGET)/release/libheap.so' '$(DIR)/lib/libwhimbrel-heap.so'
	@$(COPY) -m 755 '$(TARGET)/release/libvipl.so' '$(DIR)/lib/libvipl.so.1'
	@ln -sf libvipl.so.1 '$(DIR)/lib/libvipl.so'
	@$(COPY) -m 644 include/vipl.h '$(DIR)/include/vipl.h'
	@$(COPY) -m 644 packaging/valgrind.supp '$(DIR)/share/whimbrel/valgrind.supp'
	@scratch=$$(mktemp -d); trap 'rm -rf "$$scratch"' EXIT; \
	for file in mpicc whimbrel.pc; do sed 's/@VERSION@/$(VERSION)/' packaging/$$file > "$$scratch/$$file"; done; \
	$(COPY) -m 755 "$$scratch/mpicc" '$(DIR)/bin/mpicc'; \
	$(COPY) -m 755 "$$scratch/mpicc" '$(DIR)/bin/mpicxx'; \
	$(COPY) -m 644 "$$scratch/whimbrel.pc" '$(DIR)/lib/pkgconfig/whimbrel.pc'
	@ln -sf mpicc '$(DIR)/bin/mpicc_abi'
	@ln -sf mpicxx '$(DIR)/bin/mpicxx_abi'
	@ln -sf mpicxx '$(DIR)/bin/mpic++'
	@for name in mpi mpi-c mpi-cxx mpi_abi ompi-c ompi-cxx; do ln -sf whimbrel.pc "$(DIR)/lib/pkgconfig/$$name.pc"; done
	@$(COPY) -m 755 '$(TARGET)/release/mpiexec' '$(TARGET)/release/whimbrel' '$(DIR)/bin/'
	@ln -sf mpiexec '$(DIR)/bin/mpirun'

.PHONY: install
install: all
	$(MAKE) prefix DIR='$(DESTDIR)$(PREFIX)'

# ---- set-up: names what is missing, installs it, and says nothing when all is there

.PHONY: setup-build setup-run setup-test setup-bench setup-programs setup-launch setup-netns setup-rdma
setup-build:
	@packaging/setup cargo cc
setup-run: setup-build
	@packaging/setup libpng
setup-test: setup-build
	@packaging/setup c++ cmake meson pkg-config valgrind python3-venv python3-dev libpng libpmix iproute2 ethtool ps xz bzip2 perl blas allocators
setup-bench: setup-build
	@packaging/setup python3-venv
setup-programs: setup-build
	@packaging/setup c++ python3-venv blas autotools
setup-launch: setup-test
	@packaging/setup slurm
setup-netns: setup-launch
setup-rdma: setup-test
	@packaging/setup rdma kernel-tools

# ---- jobs

.PHONY: run
run: all setup-run
	examples/heat/run.sh

# Everything that CI runs, within 45 minutes on two cores from nothing: docs/testing.md lists it. The last line counts what passed,
# failed and was skipped; tests/skips lists the skips that are allowed.
.PHONY: test
test: setup-test
	@# The last step of a release build keeps one core busy for minutes: the models are built and played beside it.
	$(MAKE) test-loom & loom=$$!; trap 'kill $$loom 2> /dev/null || :' EXIT; \
	$(MAKE) all; $(CARGO) test --workspace --no-run; wait $$loom
	tests/run

# Every interleaving of the lock-free structures that loom reaches; WHIMBREL_TEST_SCALE=2 for more of them.
.PHONY: test-loom
test-loom: setup-build
	RUSTFLAGS='--cfg loom' CARGO_TARGET_DIR='$(TARGET)/loom' $(CARGO) test --profile models --package whimbrel-fabric --lib loom
	RUSTFLAGS='--cfg loom' CARGO_TARGET_DIR='$(TARGET)/loom' $(CARGO) test --profile models --package whimbrel-engine --test loom_models
	RUSTFLAGS='--cfg loom' CARGO_TARGET_DIR='$(TARGET)/loom' $(CARGO) test --profile models --package whimbrel-memory --test loom_models

# Lines, functions of more than 80 lines and unsafe blocks of each crate; `python3 tests/harness/house.py --list` says where these are.
.PHONY: house
house:
	python3 tests/harness/house.py

# Worlds of engines in random order, packets of a hostile peer, networks that lose, double, reorder and damage, the protocols' own
# tests; SEEDS=N for more worlds of engines, WHIMBREL_TEST_SCALE=100 for ten million messages over networks.
# `make test` plays a thousand worlds of these. Checked arithmetic, and a folder of its own for it.
SIM := CARGO_TARGET_DIR='$(TARGET)/sim' CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
	CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS=true
.PHONY: test-sim
test-sim: setup-build
	SEEDS='$(or $(SEEDS),10000)' WHIMBREL_TEST_SCALE='$(or $(WHIMBREL_TEST_SCALE),4)' $(SIM) $(CARGO) test --release \
		--package whimbrel-engine --package whimbrel-proto --package whimbrel-fabric --package whimbrel-sim

# Every interleaving of the speculative rendezvous in small worlds, random runs of large ones: prints states, results and seeds.
# WHIMBREL_TEST_SCALE=16 for the largest world, SEED=n to play one random run again.
.PHONY: test-model
test-model: setup-build
	WHIMBREL_TEST_SCALE='$(or $(WHIMBREL_TEST_SCALE),4)' CARGO_TARGET_DIR='$(TARGET)/model' $(CARGO) test --profile models \
		--package whimbrel-proto --test rendezvous -- --nocapture --test-threads 2

# Everything too long for CI, part by part, whatever fails; PARTS="mpi4py hosts" for some (docs/testing.md lists them). Parts that want a
# nightly toolchain are skipped where there is none.
.PHONY: test-nightly
test-nightly: all setup-launch setup-programs
	tests/nightly $(PARTS)

# The ring and what VIPL reads and writes by address under Miri, and hostile peers under the address sanitizer. Both want a nightly
# toolchain: rustup toolchain install nightly --component miri --component rust-src.
.PHONY: test-miri test-asan
test-miri: setup-build
	CARGO_TARGET_DIR='$(TARGET)/miri' $(CARGO) +nightly miri test --package whimbrel-fabric --lib ring::
	CARGO_TARGET_DIR='$(TARGET)/miri' MIRIFLAGS=-Zmiri-permissive-provenance $(CARGO) +nightly miri test --package whimbrel-vipl --lib \
		-- descriptor:: handed:: sys:: send:: blocks:: connect::wire:: handles::
test-asan: setup-build
	RUSTFLAGS=-Zsanitizer=address CARGO_TARGET_DIR='$(TARGET)/asan' $(CARGO) +nightly test --target "$$(rustc -vV | sed -n 's/host: //p')" \
		--package whimbrel-engine --package whimbrel-fabric --test hostile --test corpora --lib

# mpi4py's own tests at several numbers of ranks; MODULES="p2p_buf request" for some of them.
.PHONY: test-mpi4py
test-mpi4py: all setup-test
	tests/abi/mpi4py.sh $(or $(MODULES),all)

# The VI Provider Library: its rules, faults, namespaces and examples; WHIMBREL_TEST_SCALE=10 for a thousand faults.
.PHONY: test-vipl
test-vipl: setup-build
	$(CARGO) build --release --package whimbrel-vipl
	$(CARGO) test --package whimbrel-vipl
	RUSTFLAGS='--cfg loom' CARGO_TARGET_DIR='$(TARGET)/loom' $(CARGO) test --profile models --package whimbrel-vipl --test loom_models
	WHIMBREL_TEST_SCALE='$(or $(WHIMBREL_TEST_SCALE),10)' tests/run vipl/

# Programs under the launchers of clusters: Hydra, PRRTE, and Slurm, which runs on this machine alone for that; as root.
.PHONY: test-launch
test-launch: all setup-launch
	WHIMBREL_TEST_SCALE=2 tests/run launch/

# Programs on several hosts, which are network namespaces: under each launcher, through loss, damage, cut links and forgeries.
# WHIMBREL_TEST_SCALE=4 for all programs; says `skipped` where namespaces cannot be made.
.PHONY: test-netns
test-netns: all setup-netns
	WHIMBREL_TEST_SCALE='$(or $(WHIMBREL_TEST_SCALE),2)' tests/run netns/

# Programs over soft RDMA devices in a guest, User-Mode Linux, whose kernel is built and kept at the first time (10 minutes), or is the one that
# WHIMBREL_UML_KERNEL names; says `skipped` where there is none.
.PHONY: test-rdma
test-rdma: all setup-rdma
	tests/rdma/kernel --build || [ $$? = 77 ]
	WHIMBREL_TEST_SCALE=2 tests/run rdma/

# Messages from and to memory that changes under its addresses: a million operations through shared memory, fewer over UDP, with memory that processes map
# of each other, and with other allocators; VARIANTS="udp heap" for some of them. MPICC and MPIEXEC name another library's.
.PHONY: test-registration
test-registration: all setup-test
	PATH='$(CURDIR)/build/bin':$$PATH WHIMBREL_TEST_SCALE=2 tests/registration-torture/run.sh $(or $(VARIANTS),memory udp heap jemalloc mimalloc)

# MPI programs over one link between two hosts, beside the peers over TCP; ROUNDS=N.
.PHONY: bench-net
bench-net: all setup-netns setup-bench
	tests/abi/mpich && tests/launch/openmpi
	bench/net/compare --limits --rounds $(or $(ROUNDS),5)

# Other people's programs, built with mpicc and judged by their own numbers; PROGRAMS="hypre fftw" for some of them.
.PHONY: test-programs
test-programs: all setup-programs
	tests/programs/run.sh $(PROGRAMS)

.PHONY: bench
bench: all setup-bench
	bench/run $(BENCH)
	$(if $(BENCH),,build/bin/whimbrel bench all --quick --plots bench/results --json bench/results/overlap.json)

# ---- generated files

.PHONY: generate
generate:
	$(CARGO) run --quiet --package whimbrel-abigen -- header
	$(CARGO) run --quiet --package whimbrel-abigen -- status

.PHONY: clean
clean:
	rm -rf build .cache
	$(CARGO) clean
