"""Images in, views of them, and their features; no methods."""
