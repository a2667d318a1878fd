"""The DATP API, for its clients: start a transaction, ask how it is. Aliases of ``/v1/transactions``.

================  =====================================================
``answers``       how this API words replies and refusals
``converting``    the hook by which an application words replies itself
``transactions``  the routes
``documents``     what documentation says of them
================  =====================================================
"""
