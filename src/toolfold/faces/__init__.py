"""Faces: thin translations of the gateway. They import it and never a stage."""
