# Programs and libraries that look symbols up, for test_dlsym.py.
DLSYM := $(BUILD)/dlsym
DLSYM_MADE := $(addprefix $(DLSYM)/,probe probe-2.2.5 probe-2.34 probe-static libother.so libalike.so \
	libinterposer.so)

$(DLSYM)/probe-static: DLSYM_FLAGS = -static
$(DLSYM)/probe-2.2.5: DLSYM_FLAGS = '-DDLSYM="GLIBC_2.2.5"'
$(DLSYM)/probe-2.34: DLSYM_FLAGS = '-DDLSYM="GLIBC_2.34"'

$(filter $(DLSYM)/probe%,$(DLSYM_MADE)): tests/dlsym/probe.c
	mkdir -p $(DLSYM)
	$(CC) -D_GNU_SOURCE -O1 -fno-optimize-sibling-calls -g -w $(DLSYM_FLAGS) $< -o $@ -ldl

$(DLSYM)/lib%.so: tests/dlsym/%.c
	mkdir -p $(DLSYM)
	$(CC) -D_GNU_SOURCE -O1 -fno-optimize-sibling-calls -g -w -fPIC -shared -Wl,-soname,$(notdir $@) $< -o $@ -ldl

dlsym: $(DLSYM_MADE)
.PHONY: dlsym
