"""The DSPS API: its paths, statuses, codes and bodies, so that its clients work unchanged.

==============  =======================================================
``answers``     how this API words what it says
``polling``     messages and subscriptions of channels
``operating``   probes, revocation, log levels
==============  =======================================================
"""
