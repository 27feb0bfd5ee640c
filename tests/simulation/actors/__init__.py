"""Actors: users, controllers, schedulers and kubelets that act on the simulated API server."""
