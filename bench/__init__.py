"""Benchmarks: the peer and us in one run, ratios printed, machine and versions stated.

``python -m bench`` runs everything; ``python -m bench --help`` lists the choices. No
figure is kept in the code; tests never assert on time.
"""
