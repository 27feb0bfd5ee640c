"""Tables: columns, texts of cells, the width of a terminal, CSV, and the live screen."""
