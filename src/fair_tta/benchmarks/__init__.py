"""The paper's datasets and tables, to be run on local copies. Nothing is ever downloaded."""
