# Programs that test core without a driver: tests/core/NAME.c becomes build/core/KIND/NAME.
CORE := $(wildcard src/core/*.c src/core/*/*.c src/util/*.c)
CORE_HEADERS := $(wildcard src/core/*.h src/core/*/*.h src/util/*.h) include/vgpu.h
KIND_address := -fsanitize=address,undefined -fno-sanitize-recover=all
KIND_thread := -fsanitize=thread -Wno-tsan

.SECONDEXPANSION:
$(BUILD)/core/%: tests/core/$$(notdir $$*).c tests/core/ask.c tests/core/common.h $(CORE) $(CORE_HEADERS) $(MADE)/layout.h \
		$$(call ready_of,$$(notdir $$(@D)))
	mkdir -p $(dir $@)
	$(CC) -D_GNU_SOURCE -DVGPU_CHECKS=$(CHECKS) -I include -iquote $(call sources_of,$(notdir $(@D))) -I $(MADE) $(CFLAGS) \
		$(KIND_$(notdir $(@D))) $< -ldl $(patsubst src/%,$(call sources_of,$(notdir $(@D)))/%,$(CORE)) -o $@
