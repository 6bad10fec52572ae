"""A hosted Space: `fair-tta app` for visitors, with tighter limits than at home."""

import os

from fair_tta.lab import serve

serve(
    os.environ.get("FAIR_TTA_MODEL", "miniature"),  # or the hub id of a CLIP model
    host="0.0.0.0",  # a Space is reached through its proxy
    views=32,
    limits={"file_bytes": 5 * 2**20, "files": 200, "total_bytes": 2**29},
)
