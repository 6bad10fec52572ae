"""Names, templates, prompts, the shared context and the features of prompts; no images."""
