# Fuzzers of tenant input, with sanitizers. `make fuzz SECONDS=600` in the root runs them.
#
#   make fuzzers    build/fuzz/environment, build/fuzz/region

FUZZ := $(BUILD)/fuzz
FUZZ_PLAIN := -std=gnu11 -D_GNU_SOURCE -O2 -g -pthread -Wall -Wextra -Werror -Wno-unused-parameter \
	-I include -iquote src -I $(MADE) -isystem $(HEADERS)/nvidia/cu13/include
FUZZ_FLAGS := $(FUZZ_PLAIN) -O1 -fsanitize=address,undefined -fno-sanitize-recover=all \
	-fno-omit-frame-pointer
FUZZ_LOOP := $(FUZZ)/loop.o $(FUZZ)/mutate.o
FUZZ_INCLUDES := $(wildcard include/*.h src/core/*.h src/core/*/*.h src/util/*.h tests/fuzz/*.h) $(MADE)/layout.h

# The part of the library that the targets link, which does not use CUDA.
FUZZ_CORE := $(patsubst src/%.c,$(FUZZ)/of/%.o,$(wildcard src/core/*.c src/core/*/*.c src/util/*.c))
$(FUZZ)/environment: $(FUZZ)/of/core/limits/environment.o
$(FUZZ)/region: $(FUZZ_CORE)

fuzzers: $(FUZZ)/environment $(FUZZ)/region

# The loop has no coverage, because it would reach new code for ever, and no sanitizers, for speed.
$(FUZZ)/%.o: tests/fuzz/%.c $(FUZZ_INCLUDES)
	mkdir -p $(dir $@)
	$(CC) $(FUZZ_PLAIN) -c $< -o $@

$(FUZZ)/of/%.o: src/%.c $(FUZZ_INCLUDES)
	mkdir -p $(dir $@)
	$(CC) $(FUZZ_FLAGS) -fsanitize-coverage=trace-pc -c $< -o $@

$(FUZZ)/%: tests/fuzz/%.c $(FUZZ_LOOP)
	$(CC) $(FUZZ_FLAGS) $(filter %.c %.o,$^) -o $@

.PHONY: fuzzers
.SECONDARY: $(FUZZ_LOOP)
