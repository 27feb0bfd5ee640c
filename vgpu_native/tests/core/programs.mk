# Programs that test the ledger by itself, without a driver: tests/core/NAME.c becomes
# build/core/KIND/NAME. The broken kinds are negative controls: tests must fail with them.
LEDGER := $(wildcard src/core/*.c src/core/*/*.c src/util/*.c)
KIND_plain :=
KIND_check_then_add := -DBREAK_CHECK_THEN_ADD
KIND_dead_count := -DBREAK_LIVENESS
KIND_stores_in_any_order := -DBREAK_ORDER_OF_STORES
KIND_ungated := -DBREAK_GATE
KIND_unannounced := -DBREAK_ANNOUNCEMENT
KIND_address := -fsanitize=address,undefined -fno-sanitize-recover=all
KIND_thread := -fsanitize=thread -Wno-tsan

.SECONDEXPANSION:
$(BUILD)/core/%: tests/core/$$(notdir $$*).c tests/core/common.h $(LEDGER) $(wildcard src/core/*.h src/core/*/*.h src/util/*.h) \
		include/vgpu.h $(MADE)/layout.h
	mkdir -p $(dir $@)
	$(CC) -D_GNU_SOURCE -I include -iquote src -I $(MADE) $(CFLAGS) $(KIND_$(notdir $(@D))) \
		$(filter %.c,$^) -o $@
