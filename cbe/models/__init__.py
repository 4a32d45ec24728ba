"""Trained models that leave the store: exported as plain files, and used on images."""
