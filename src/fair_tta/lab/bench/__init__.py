"""The paper's tables and statements, beside ours: grids, figures, files, and the demo."""
