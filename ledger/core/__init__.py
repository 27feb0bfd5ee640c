"""The pure core: what may be asked, what happened, and the only two functions that know rules.

`decide.decider` turns a command into events or a denial; `evolve.evolver` applies an event.
Nothing in this package reads a clock, does I/O or draws a random number.
"""
