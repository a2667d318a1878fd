"""HTTP as the gateway sees it: requests, answers, routes. Plain ASGI underneath, no framework.

==============  =================================================================
``requests``    one request: path values, query, headers, a bounded body
``responses``   answers, at once or as a stream, and refusals
``routing``     a table of routes, found by segments of the path
==============  =================================================================

Nothing here knows channels, streams or who may do what.
"""
