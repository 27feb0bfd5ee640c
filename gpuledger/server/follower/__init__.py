"""The follower: a process beside the service that keeps projection and snapshots up to date."""
