# The bundle for a machine with a GPU: programs, library, stub and the script that runs them.
#
#   make gpu-bundle    build/gpu-bundle/, to be copied as it is; then gpu-bundle/run

BUNDLE := $(BUILD)/gpu-bundle
GPU_PROGRAMS := $(addprefix $(BUNDLE)/bin/,calls limits busy recovery)

# Linked against the stub, but without a path to it: at run time the machine's own driver is found.
$(BUNDLE)/bin/%: tests/gpu/%.c $(wildcard tests/gpu/*.h) tests/gpu/allocators.c $(STUB)
	mkdir -p $(dir $@)
	$(CC) $(CPPFLAGS) $(CFLAGS) $(filter tests/gpu/$*.c,$^) $(GPU_MORE) -o $@ -L$(BUILD)/stub \
		-l:libcuda.so.1

$(BUNDLE)/bin/limits: GPU_MORE := tests/gpu/allocators.c

$(BUNDLE)/bin/view: tests/gpu/view.c $(HEADERS)/.ready
	mkdir -p $(dir $@)
	$(CC) $(CPPFLAGS) $(CFLAGS) $< -o $@ -ldl

gpu-bundle: all $(GPU_PROGRAMS) $(BUNDLE)/bin/view
	mkdir -p $(BUNDLE)/stub
	cp $(STUB) $(BUNDLE)/stub/
	cp $(BUILD)/libvgpu.so tests/gpu/run tests/gpu/table.py tests/gpu/with_torch.py $(BUNDLE)/

.PHONY: gpu-bundle
