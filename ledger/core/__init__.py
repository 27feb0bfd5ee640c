"""The pure core: commands, events, state, and the two functions that hold all rules.

`decide.decider` turns a command into events or a denial; `evolve.evolver` applies an event.
Nothing in this package reads a clock, does I/O or draws a random number.
"""
