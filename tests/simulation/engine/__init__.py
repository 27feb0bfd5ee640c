"""The ground of the simulation: virtual time, processes that can be killed, and a faulty network.

Nothing here knows webhooks or clusters. One seed decides everything: which callback runs next, what
the network does to a call, how long anything takes. So a run can be repeated by its number.
"""
