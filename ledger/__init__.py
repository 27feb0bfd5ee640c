"""The ground floor: a pure core, the log it is recorded in, and the ports to the outside."""
