"""What every configuration file of Penstock is read with, whoever it configures.

==============  =======================================================================
``sources``     a file or standard input to plain values
``yamltext``    YAML 1.2, there and back; the only module that sees PyYAML
``variables``   ``${NAME}`` inside texts
``durations``   ``1h30m`` and numbers of seconds
``problems``    sentences about what is wrong, with paths, all of them at once
==============  =======================================================================

Rules: no key of any file in here. Must not know who reads one.
"""
