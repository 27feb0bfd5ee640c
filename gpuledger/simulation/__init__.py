"""The simulated world: real writers, webhooks and settlement among seeded misfortune."""
