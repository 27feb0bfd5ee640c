"""Apply recorded events to the state. Replay runs this code and nothing else."""
