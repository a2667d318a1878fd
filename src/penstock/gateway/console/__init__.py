"""The console: pages for people, in front of the same HTTP API as everybody's.

==============  =================================================================
``serving``     routes that give out the files below ``static/``
``static/``     the console itself: HTML, CSS and JavaScript modules, no build step
==============  =================================================================

How the files hang together:

==================  =============================================================
``main.js``         who looks, which page
``core/``           the API, events, addresses, loading, formats; knows no page
``parts/``          what pages are made of: tables, charts, dialogs
``pages/``          one file a page; pages never import one another
``style/``          colours and measures first, then frame, parts, pages
``vendor/``         scripts of others, with licences and versions
==================  =============================================================

Rules: nothing is loaded from another host. What a page shows or does, the HTTP API shows and does; there is
no other door, so permissions are asked there alone.
"""
