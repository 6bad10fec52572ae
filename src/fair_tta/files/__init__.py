"""How files are written: whole or not at all; nothing of what is in them."""
