# build/mutants/NAME/src: the sources with the one defect that tests/mutants/NAME.patch describes. A
# test must fail with each. Rules that build a kind of something take `plain` or a mutant as kind.
MUTANTS := $(patsubst tests/mutants/%.patch,%,$(wildcard tests/mutants/*.patch))
ALL_SOURCES := $(wildcard src/*/*.[chS] src/*/*/*.[chS])

$(BUILD)/mutants/%/.ready: tests/mutants/%.patch tests/mutants/apply.py $(ALL_SOURCES)
	mkdir -p $(@D)
	$(PYTHON) tests/mutants/apply.py $< src $(@D)/src
	touch $@

# Where the sources of a kind are, and what has to be made before them.
sources_of = $(if $(filter $(1),$(MUTANTS)),$(BUILD)/mutants/$(1)/src,src)
ready_of = $(if $(filter $(1),$(MUTANTS)),$(BUILD)/mutants/$(1)/.ready)
