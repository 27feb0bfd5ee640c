# The stub driver and the stub NVML: every function of the headers is exported, see tools/generate_stub.py.
# -Bsymbolic: preloaded functions must not replace the stub's own functions, nor enter its tables.

STUB_FLAGS := -I $(MADE) -shared -Wl,-Bsymbolic -Wl,-z,defs
STUB_HEADERS := $(wildcard tests/stub/*.h tests/stub/*/*.h)
STUB_INCLUDE := $(HEADERS)/nvidia/cu13/include

$(MADE)/stub_cuda.inc: $(HEADERS)/.ready tools/generate_stub.py
	mkdir -p $(MADE)
	$(CC) -E -P -D__CUDA_API_VERSION_INTERNAL -x c $(STUB_INCLUDE)/cuda.h >$@.i
	$(PYTHON) tools/generate_stub.py cuda $(STUB_INCLUDE)/cudaTypedefs.h <$@.i >$@

$(MADE)/stub_nvml.inc: $(HEADERS)/.ready tools/generate_stub.py
	mkdir -p $(MADE)
	$(CC) -E -P -DNVML_NO_UNVERSIONED_FUNC_DEFS -x c $(STUB_INCLUDE)/nvml.h >$@.i
	$(PYTHON) tools/generate_stub.py nvml <$@.i >$@

$(BUILD)/stub/objects/cuda_driver/cuda_functions.o: $(MADE)/stub_cuda.inc
$(BUILD)/stub/objects/nvml/nvml_functions.o: $(MADE)/stub_nvml.inc
$(BUILD)/stub/objects/%.o: tests/stub/%.c $(STUB_HEADERS) | $(HEADERS)/.ready
	mkdir -p $(dir $@)
	$(CC) $(CPPFLAGS) -iquote tests/stub $(CFLAGS) -c $< -o $@

STUB_OBJECTS = $(patsubst tests/stub/%.c,$(BUILD)/stub/objects/%.o,$(wildcard tests/stub/$(1)*/*.c tests/stub/state*.c))

$(BUILD)/stub/libcuda.so.1: $(call STUB_OBJECTS,cuda)
	$(CC) $(CFLAGS) $(STUB_FLAGS) -Wl,-soname,libcuda.so.1 $^ -o $@ -lrt
	ln -sf libcuda.so.1 $(dir $@)libcuda.so

$(BUILD)/stub/libnvidia-ml.so.1: $(call STUB_OBJECTS,nvml)
	$(CC) $(CFLAGS) $(STUB_FLAGS) -Wl,-soname,libnvidia-ml.so.1 $^ -o $@ -lrt
	ln -sf libnvidia-ml.so.1 $(dir $@)libnvidia-ml.so
