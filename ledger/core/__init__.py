"""The pure core: what may be asked, what happened, and the only two functions that know rules.

`decisions.decide` turns a command into events or a denial; `evolution.evolve` applies an event.
Nothing in this package reads a clock, does I/O or draws a random number.
"""
