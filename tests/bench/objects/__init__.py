"""Objects, reviews, commands and logs that benchmarks use, in any number."""
