"""Every layout of a model on equal machines, ruled out or priced, and the best of them."""
