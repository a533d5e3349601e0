"""A federation on a network: a project to start from, certificates and keys, processes on loopback.

What runs on the network is Flower's; here is what one needs around it.
"""
