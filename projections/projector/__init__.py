"""The projector: fold records into tables, one transaction for each batch."""
