# build/time/KIND/libvgpu.so: the library, plain or a mutant; build/time/KIND/budget and
# build/time/KIND/kernel_costs: programs that test the budget of time and the table of costs.
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
		$(call sources_of,$*)/time/kernel_costs.c $(call sources_of,$*)/util/assert.c -o $@
