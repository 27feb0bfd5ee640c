# The whole library with a sanitizer, below the test programs as they are:
#
#   make asan ubsan tsan    build/sanitizers/KIND/plain/libvgpu.so, and a run of all programs on the stub
#
# build/sanitizers/KIND/MUTANT/libvgpu.so has a defect in device_lookup.c that the sanitizer must report.
# Look-ups by dlsym begin before a sanitizer is ready, so the files of that part are not instrumented.
SANITIZERS := $(BUILD)/sanitizers
SANITIZE_asan := -fsanitize=address -fno-omit-frame-pointer
SANITIZE_ubsan := -fsanitize=undefined -fno-sanitize-recover=all
SANITIZE_tsan := -fsanitize=thread -Wno-tsan
EARLY := $(filter src/intercept/loader/% src/intercept/dlsym/%,$(SOURCES))
PLANTED := intercept/device_lookup.c
sanitize_of = $(SANITIZE_$(firstword $(subst /, ,$(patsubst $(SANITIZERS)/%,%,$@))))
COMPILE_SANITIZED = $(CC) $(CPPFLAGS) $(CFLAGS) -O1 $(sanitize_of) -include include/glibc.h

# Objects of one kind, without that of the planted defects, and the early ones as they ship.
define SANITIZER
$(1)_OBJECTS := $(patsubst src/%,$(SANITIZERS)/$(1)/objects/%.o,$(filter-out $(EARLY) src/$(PLANTED),$(SOURCES)))
$(1)_EARLY := $(patsubst src/%,$(BUILD)/objects/%.o,$(EARLY))

$(SANITIZERS)/$(1)/objects/%.o: src/% $(INCLUDES) $(MADE)/hooks.inc tests/sanitizers/build.mk
	mkdir -p $$(@D)
	$$(COMPILE_SANITIZED) -c $$< -o $$@

.SECONDEXPANSION:
$(SANITIZERS)/$(1)/%/libvgpu.so: $$($(1)_OBJECTS) $$($(1)_EARLY) $(VERSIONS) src/$(PLANTED) $$$$(call ready_of,$$$$*)
	mkdir -p $$(@D)
	$$(COMPILE_SANITIZED) -c $$(call sources_of,$$*)/$(PLANTED) -o $$(@D)/planted.o
	$$(CC) $$(CFLAGS) $$(sanitize_of) $$(LDFLAGS) -shared $$(LINK) $$($(1)_OBJECTS) $$($(1)_EARLY) $$(@D)/planted.o -o $$@ $$(OLD_GLIBC)

$(1): $(SANITIZERS)/$(1)/plain/libvgpu.so $(STUB) $(TESTS)
	$(PYTHON) tests/sanitizers/run.py $$@ $$< $(BUILD)

.PHONY: $(1)
endef
$(foreach kind,asan ubsan tsan,$(eval $(call SANITIZER,$(kind))))
