# build/mutants/NAME/src: the sources with the one defect that NAME.patch, here or in a folder here,
# describes. A test must fail with each. Rules that build a kind take `plain` or a mutant as the kind.
PATCHES := $(wildcard tests/mutants/*.patch tests/mutants/*/*.patch)
MUTANTS := $(patsubst %.patch,%,$(notdir $(PATCHES)))
ALL_SOURCES := $(wildcard src/*/*.[chS] src/*/*/*.[chS])
patch_of = $(filter %/$(1).patch,$(PATCHES))

.SECONDEXPANSION:
$(BUILD)/mutants/%/.ready: $$(call patch_of,$$*) tests/mutants/apply.py $(ALL_SOURCES)
	mkdir -p $(@D)
	$(PYTHON) tests/mutants/apply.py $(filter %.patch,$^) src $(@D)/src
	touch $@

# The sources of a kind, and the files that must be built before them.
sources_of = $(if $(filter $(1),$(MUTANTS)),$(BUILD)/mutants/$(1)/src,src)
ready_of = $(if $(filter $(1),$(MUTANTS)),$(BUILD)/mutants/$(1)/.ready)
