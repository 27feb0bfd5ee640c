# build/time/KIND/libvgpu.so: the library as it is, and broken kinds of it that tests must catch;
# build/time/KIND/budget: the budget of time by itself.
TIME := $(BUILD)/time
TIME_KIND_uncharged_queue := -DBREAK_QUEUE
TIME_KIND_lost_charges := -DBREAK_BUDGET

$(TIME)/%/libvgpu.so: $(BUILD)/libvgpu.so
	mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) $(TIME_KIND_$*) -include include/glibc.h -shared $(LINK) \
		$(SOURCES) -o $@ $(OLD_GLIBC)

$(TIME)/%/budget: tests/time/budget.c src/budget.c $(INCLUDES)
	mkdir -p $(@D)
	$(CC) -D_GNU_SOURCE -I include -iquote src -I $(MADE) $(CFLAGS) $(TIME_KIND_$*) \
		tests/time/budget.c src/budget.c -o $@
