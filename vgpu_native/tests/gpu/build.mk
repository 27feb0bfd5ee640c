# The bundle for a machine with a GPU: programs, library, stub, sources, and the script that runs them.
#
#   make gpu-bundle    build/gpu-bundle/, to be copied as it is; then gpu-bundle/run

BUNDLE := $(BUILD)/gpu-bundle
GPU := tests/gpu
GPU_PROGRAMS := $(addprefix $(BUNDLE)/bin/,calls ends fresh handles limits probe recovery runtime share steps)

# Linked against the stub, but without a path to it: at run time the machine's own driver is found.
$(BUNDLE)/bin/%: $(GPU)/programs/%.c $(wildcard $(GPU)/programs/*.h) $(GPU)/programs/allocators.c $(STUB)
	mkdir -p $(dir $@)
	$(CC) $(CPPFLAGS) $(CFLAGS) -include include/glibc.h $(filter $(GPU)/programs/$*.c,$^) $(GPU_MORE) -o $@ \
		-L$(BUILD)/stub -l:libcuda.so.1 $(OLD_GLIBC)

$(BUNDLE)/bin/limits: GPU_MORE := $(GPU)/programs/allocators.c

$(BUNDLE)/bin/view: $(GPU)/programs/view.c $(HEADERS)/.ready
	mkdir -p $(dir $@)
	$(CC) $(CPPFLAGS) $(CFLAGS) -include include/glibc.h $< -o $@ -ldl

# The functions in the table of the library, and those that it hooks, for the check of the driver's names.
$(BUNDLE)/functions.json: $(MADE)/functions.inc $(MADE)/hooks.inc $(GPU)/write_functions.py tools/check_function_classes.py
	mkdir -p $(dir $@)
	$(PYTHON) $(GPU)/write_functions.py $(MADE) $@

# The sources, generated files and headers, so that gcc alone rebuilds the programs and the library elsewhere.
BUNDLE_HEADERS := cuda.h cudaTypedefs.h cudaEGL.h cudaGL.h cudaVDPAU.h nvml.h
$(BUNDLE)/source/.ready: $(SOURCES) $(INCLUDES) $(MADE)/hooks.inc $(wildcard $(GPU)/programs/*) $(HEADERS)/.ready
	rm -rf $(dir $@) && mkdir -p $(dir $@)/cuda $(dir $@)/made
	cp -r src include $(dir $@)
	cp -r $(GPU)/programs $(dir $@)/programs
	cp $(MADE)/*.h $(MADE)/functions.inc $(MADE)/hooks.inc $(dir $@)/made/
	for name in $(BUNDLE_HEADERS); do cp $(HEADERS)/nvidia/cu13/include/$$name $(dir $@)/cuda/ 2>/dev/null; done; true
	touch $@

gpu-bundle: all $(GPU_PROGRAMS) $(BUNDLE)/bin/view $(BUNDLE)/functions.json $(BUNDLE)/source/.ready
	rm -rf $(BUNDLE)/gpu_check
	mkdir -p $(BUNDLE)/stub $(BUNDLE)/lib
	cp $(STUB) $(BUNDLE)/stub/
	cp -r $(GPU)/gpu_check $(BUNDLE)/
	rm -rf $(BUNDLE)/gpu_check/__pycache__ $(BUNDLE)/gpu_check/*/__pycache__
	cp $(BUILD)/libvgpu.so $(GPU)/run $(BUNDLE)/
	cp $(HEADERS)/nvidia/cu13/lib/libcudart.so.* $(BUNDLE)/lib/ 2>/dev/null || true
	git describe --always --dirty --abbrev=12 >$(BUNDLE)/commit 2>/dev/null || echo unknown >$(BUNDLE)/commit

.PHONY: gpu-bundle
