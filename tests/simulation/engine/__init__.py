"""Engine of the simulation: virtual time, processes that can be killed, and a faulty network.

Nothing here depends on webhooks or clusters. One seed decides everything: the next callback,
the network's faults, the duration of each call. So a run can be repeated by its number.
"""
