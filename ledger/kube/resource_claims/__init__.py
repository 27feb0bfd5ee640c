"""Resource claims: what Dynamic Resource Allocation asks for and gives, as amounts. Pure."""
