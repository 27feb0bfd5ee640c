"""The import of nodes and pods that HAMi placed, and HAMi's own counts for comparison."""
