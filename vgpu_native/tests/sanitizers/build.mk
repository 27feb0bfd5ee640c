# The whole library with a sanitizer, below the test programs as they are:
#
#   make asan ubsan tsan    build/sanitizers/KIND/plain/libvgpu.so, and a run of all programs on the stub
#
# build/sanitizers/KIND/MUTANT/libvgpu.so has a defect that the sanitizer must report. Look-ups by dlsym begin
# before a sanitizer is ready, so the files of that part are not instrumented.
SANITIZERS := $(BUILD)/sanitizers
SANITIZE_asan := -fsanitize=address -fno-omit-frame-pointer
SANITIZE_ubsan := -fsanitize=undefined -fno-sanitize-recover=all
SANITIZE_tsan := -fsanitize=thread -Wno-tsan
EARLY := $(filter src/intercept/real_dlsym.c src/intercept/dlsym/%,$(SOURCES))

.SECONDEXPANSION:
$(SANITIZERS)/%/libvgpu.so: $(BUILD)/libvgpu.so $(STUB) tests/sanitizers/build.mk $$(call ready_of,$$(notdir $$*))
	mkdir -p $(@D)
	$(CC) -iquote $(call sources_of,$(notdir $*)) $(CPPFLAGS) $(CFLAGS) -O1 $(LDFLAGS) $(SANITIZE_$(firstword $(subst /, ,$*))) \
		-include include/glibc.h -shared $(LINK) $(patsubst src/%,$(call sources_of,$(notdir $*))/%,$(filter-out $(EARLY),$(SOURCES))) \
		$(patsubst src/%,$(BUILD)/objects/%.o,$(EARLY)) -o $@ $(OLD_GLIBC)

asan ubsan tsan: %: $(SANITIZERS)/%/plain/libvgpu.so $(TESTS)
	$(PYTHON) tests/sanitizers/run.py $@ $< $(BUILD)

.PHONY: asan ubsan tsan
