"""Clusters as files: checked, priced, brought up and down."""
