"""A federation on a network: questions and answers as messages of Flower (flwr)."""
