# build/time/KIND/libvgpu.so: the library, plain or a mutant; build/time/KIND/budget and
# build/time/KIND/kernel_costs: programs that test the budget of time and the table of costs. `make shares` prints the
# shares of a device's time that programs use under limits; SHARES names some rows of the table.
TIME := $(BUILD)/time

.SECONDEXPANSION:
$(TIME)/%/libvgpu.so: $(BUILD)/libvgpu.so $$(call ready_of,$$*)
	mkdir -p $(@D)
	$(CC) -iquote $(call sources_of,$*) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -include include/glibc.h -shared \
		$(LINK) $(patsubst src/%,$(call sources_of,$*)/%,$(SOURCES)) -o $@ $(OLD_GLIBC)

TIME_NEEDS := $(wildcard tests/time/*.c src/time/*.c) $(INCLUDES)

$(TIME)/%/budget: $(TIME_NEEDS) $$(call ready_of,$$*)
	mkdir -p $(@D)
	$(CC) -iquote $(call sources_of,$*) $(CPPFLAGS) $(CFLAGS) tests/time/budget.c \
		$(call sources_of,$*)/time/time_budget.c $(call sources_of,$*)/util/assert.c -o $@

$(TIME)/%/kernel_costs: $(TIME_NEEDS) $$(call ready_of,$$*)
	mkdir -p $(@D)
	$(CC) -iquote $(call sources_of,$*) $(CPPFLAGS) $(CFLAGS) tests/time/kernel_costs.c \
		$(patsubst %,$(call sources_of,$*)/%.c,time/kernel_costs util/assert time/random) -o $@

shares: $(BUILD)/libvgpu.so $(BUILD)/tests/time/patterns
	@$(PYTHON) tests/time/shares.py $(BUILD) $(SHARES)

.PHONY: shares
