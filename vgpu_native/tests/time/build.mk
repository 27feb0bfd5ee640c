# build/time/KIND/libvgpu.so: the library as it is, and broken kinds of it that tests must catch;
# build/time/KIND/budget, build/time/KIND/kernel_costs: the budget of time, and the table of costs, by themselves.
TIME := $(BUILD)/time
TIME_KIND_uncharged_queue := -DBREAK_QUEUE
TIME_KIND_lost_charges := -DBREAK_BUDGET
TIME_KIND_two_begin := -DBREAK_TAKING
TIME_KIND_lost_launches := -DBREAK_SPENDING

$(TIME)/%/libvgpu.so: $(BUILD)/libvgpu.so
	mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) $(TIME_KIND_$*) -include include/glibc.h -shared $(LINK) \
		$(SOURCES) -o $@ $(OLD_GLIBC)

$(TIME)/%/budget $(TIME)/%/kernel_costs: $(wildcard tests/time/*.c) $(INCLUDES)
	mkdir -p $(@D)
	$(CC) -D_GNU_SOURCE -I include -iquote src -I $(MADE) $(CFLAGS) $(TIME_KIND_$*) \
		tests/time/$(@F).c src/time/$(@F).c -o $@
