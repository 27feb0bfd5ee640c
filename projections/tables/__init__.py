"""The tables: each takes in changes and writes its rows, several records in one transaction."""
