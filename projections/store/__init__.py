"""The SQLite store of the projection: schema, writer, readers and digest."""
