# Programs and libraries that look symbols up, for test_dlsym.py.
DLSYM := $(BUILD)/dlsym
DLSYM_MADE := $(addprefix $(DLSYM)/,probe probe-2.2.5 probe-2.34 probe-static libother.so libalike.so \
	libinterposer.so libinterposer-moved.so libinterposer-handle.so libinterposer-versioned.so \
	libinterposer-jumps.so 	libauditor.so versioned/libcuda.so.1 newer/libcuda.so.1)

$(DLSYM)/probe-static: DLSYM_FLAGS = -static
$(DLSYM)/probe-2.2.5: DLSYM_FLAGS = '-DDLSYM="GLIBC_2.2.5"'
$(DLSYM)/probe-2.34: DLSYM_FLAGS = '-DDLSYM="GLIBC_2.34"'

$(filter $(DLSYM)/probe%,$(DLSYM_MADE)): tests/dlsym/probe.c
	mkdir -p $(DLSYM)
	$(CC) -D_GNU_SOURCE -O1 -fno-optimize-sibling-calls -g -w $(DLSYM_FLAGS) $< -o $@ -ldl

$(DLSYM)/libinterposer-moved.so: DLSYM_FLAGS = '-DNEXT_VERSION="GLIBC_2.34"'
$(DLSYM)/libinterposer-handle.so: DLSYM_FLAGS = -DBY_HANDLE
$(DLSYM)/libinterposer-jumps.so: DLSYM_FLAGS = -O2 -foptimize-sibling-calls
$(DLSYM)/libinterposer-versioned.so: DLSYM_FLAGS = -Wl,--version-script=$(DLSYM)/first.map
$(DLSYM)/libinterposer-versioned.so: $(DLSYM)/first.map

$(DLSYM)/first.map:
	mkdir -p $(@D)
	echo 'GLIBC_$(if $(filter x86_64,$(ARCH)),2.2.5,2.17) { dlsym; };' >$@

$(DLSYM)/libinterposer%.so: tests/dlsym/interposer.c
	mkdir -p $(DLSYM)
	$(CC) -D_GNU_SOURCE -O1 -fno-optimize-sibling-calls -g -w -fPIC -shared $(DLSYM_FLAGS) $< -o $@ -ldl

$(DLSYM)/versioned/libcuda.so.1: tests/dlsym/versioned.c
	mkdir -p $(@D)
	echo 'CUDA_1 { *; };' >$@.map
	$(CC) -w -fPIC -shared -Wl,-soname,libcuda.so.1 -Wl,--version-script=$@.map $< -o $@

$(DLSYM)/newer/libcuda.so.1: tests/dlsym/newer.c
	mkdir -p $(@D)
	$(CC) -w -fPIC -shared -Wl,-Bsymbolic -Wl,-soname,libcuda.so.1 $< -o $@

$(DLSYM)/lib%.so: tests/dlsym/%.c
	mkdir -p $(DLSYM)
	$(CC) -D_GNU_SOURCE -O1 -fno-optimize-sibling-calls -g -w -fPIC -shared -Wl,-soname,$(notdir $@) $< -o $@ -ldl

dlsym: $(DLSYM_MADE)
.PHONY: dlsym
