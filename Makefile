# einnet: `make` builds build/einnet; `make help` lists the rest. Nothing is written outside build/,
# out/, einnet.h and .venv/, but by `make install`, and for the Debian packages that `make setup`
# names before it installs.

ifeq ($(origin CC),default)
CC := gcc
endif
OPT ?= -O2
PREFIX ?= /usr/local
WARN := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wstrict-prototypes \
        -Wmissing-prototypes -Wswitch-enum -Wdouble-promotion -Wundef
INCLUDE := -Igen -Ibuild -isystem build/onnx

PROGRAM := $(patsubst gen/%.c,build/%.o,gen/einnet.c $(wildcard gen/cli/*.c gen/import/*.c))
TEMPLATES := $(sort $(wildcard templates/*.cu))

.PHONY: all install header golden test test-long demo setup format lint clean help gpu-kit
.DELETE_ON_ERROR:

all: build/einnet

help:
	@echo 'make          build/einnet'
	@echo 'make install  einnet and einnet.h to $$(DESTDIR)$(PREFIX)'
	@echo 'make demo     two models to CUDA, run on the GPU or, without one, on the CPU'
	@echo 'make test     each form once; the last line is "N passed, N failed"'
	@echo 'make test-long  more of the same, and faults that the tests must notice: twice the time'
	@echo 'make header   einnet.h from gen/ and templates/'
	@echo 'make golden   out/ and the expected texts of the tests, from models/'
	@echo 'make format   clang-format over all C, C++ and CUDA sources'
	@echo 'make lint     what test checks about the sources alone'
	@echo 'make setup    install what is missing (Debian packages, Python packages in .venv)'
	@echo 'make gpu-kit  build/gpu/: what bench/gpu.sh needs on a machine that cannot build einnet'
	@echo 'make clean    remove build/'

# ---- the program ----

build/einnet: $(PROGRAM) build/onnx/onnx.pb-c.o
	$(CC) $(OPT) $(LDFLAGS) -o $@ $^ -lprotobuf-c -lm

install: build/einnet
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/include
	install -m 755 build/einnet $(DESTDIR)$(PREFIX)/bin
	install -m 644 einnet.h $(DESTDIR)$(PREFIX)/include

build/einnet.o: build/templates.inc

build/%.o: gen/%.c build/onnx/onnx.pb-c.h
	@mkdir -p $(@D)
	$(CC) -std=c11 $(OPT) $(WARN) $(CFLAGS) $(INCLUDE) -MMD -MP -c -o $@ $<

build/onnx/onnx.pb-c.o: build/onnx/onnx.pb-c.c
	$(CC) -std=c11 $(OPT) $(CFLAGS) -c -o $@ $<

build/onnx/onnx.pb-c.c build/onnx/onnx.pb-c.h &: | build/onnx
	protoc-c --c_out=build/onnx -I/usr/include/onnx onnx.proto

build/amalgamate: gen/amalgamate.c | build/onnx
	$(CC) -std=c11 $(OPT) $(WARN) $(CFLAGS) -o $@ $<

# The folder itself is newer when a template is gone.
build/templates.inc: build/amalgamate $(TEMPLATES) templates
	build/amalgamate embed $(TEMPLATES) > $@

build/onnx:
	mkdir -p $@

-include $(wildcard build/*.d build/*/*.d)

# A program without shared libraries, and the test programs that it emits.
gpu-kit: build/einnet
	mkdir -p build/gpu
	$(CC) $(OPT) $(LDFLAGS) -static -s -o build/gpu/einnet $(PROGRAM) build/onnx/onnx.pb-c.o \
	    -lprotobuf-c -lm
	bash bench/gpu.sh --phase emit

# ---- what is generated and checked in ----

header: build/amalgamate build/templates.inc
	build/amalgamate flatten -Ibuild gen/all.h > build/einnet.h
	cmp -s build/einnet.h einnet.h || cp build/einnet.h einnet.h

golden: header build/einnet
	sh tests/frame/golden.sh out
	sh tests/frame/readme.sh > build/README.md
	cmp -s build/README.md README.md || cp build/README.md README.md
	sh tests/lang/run.sh update

# ---- checks ----

setup:
	@sh tests/setup.sh

test:
	@sh tests/setup.sh --quiet
	@bash tests/run_all.sh

test-long:
	@sh tests/setup.sh --quiet
	@bash tests/run_all.sh --long

lint:
	@bash tests/run_all.sh lint

demo:
	@sh tests/setup.sh --quiet
	@sh tests/demo/demo.sh

# Twice: what the first pass breaks, the second may align.
format:
	@sh tests/frame/sources.sh formatted | xargs clang-format -i
	@sh tests/frame/sources.sh formatted | xargs clang-format -i

clean:
	rm -rf build
