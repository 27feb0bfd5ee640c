"""Trips: how many files one request leads through, and how often it moves between them."""

from tests.bench.trips.trip_report import run

__all__ = ["run"]
