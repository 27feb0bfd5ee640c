# A driver that only records its arguments, a program that calls all its functions, and a library that
# hooks all of them. See tests/abi.
ABI := $(BUILD)/abi
ABI_FLAGS := -I $(ABI) -Wno-uninitialized
ABI_OBJECTS := $(filter $(addprefix $(BUILD)/objects/intercept/,driver_functions.c.o get_proc_address.c.o \
	nested_calls.c.o loader/% unknown_functions.c.o dlsym/%) \
	$(BUILD)/objects/util/assert.c.o $(BUILD)/objects/util/log.c.o,$(OBJECTS))

$(ABI)/calls.inc: tests/abi/make.py tools/driver_api.py $(MADE)/functions.inc
	CC="$(CC)" $(PYTHON) tests/abi/make.py $(HEADERS)/nvidia/cu13/include $(ABI)

# -Bsymbolic: preloaded functions must not enter the driver's table.
$(ABI)/libcuda.so.1: tests/abi/driver.c tests/abi/echo.h $(ABI)/calls.inc
	$(CC) $(ABI_FLAGS) $(CPPFLAGS) $(CFLAGS) -fvisibility=default -shared -Wl,-Bsymbolic \
		-Wl,-soname,libcuda.so.1 $< -o $@

$(ABI)/calls: tests/abi/calls.c tests/abi/echo.h $(ABI)/calls.inc $(ABI)/libcuda.so.1
	$(CC) $(ABI_FLAGS) $(CPPFLAGS) $(CFLAGS) -O1 $< -o $@ -L$(ABI) -Wl,-rpath,'$$ORIGIN' -l:libcuda.so.1 -ldl

$(ABI)/forwards.o: tests/abi/forwards.c $(ABI)/calls.inc $(INCLUDES)
	$(CC) $(ABI_FLAGS) $(CPPFLAGS) $(CFLAGS) -c $< -o $@

$(ABI)/hooks.inc: $(ABI)/forwards.o $(ABI_OBJECTS) tools/generate_hooks.py
	$(PYTHON) tools/generate_hooks.py --hooks $(ABI) $(filter %.o,$^)

$(ABI)/libvgpu.so: src/intercept/hook_table.c $(ABI)/hooks.inc $(ABI)/forwards.o $(ABI_OBJECTS) $(VERSIONS)
	$(CC) $(ABI_FLAGS) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -shared -Wl,-soname,libvgpu.so $(SYMBOLIC) \
		-Wl,--version-script=$(VERSIONS) $(filter-out %.inc %.map,$^) -o $@ -ldl

abi: $(ABI)/calls $(ABI)/libvgpu.so

.PHONY: abi
