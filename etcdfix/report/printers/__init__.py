"""Single objects made visible: masked, put into a document, written as YAML or JSON.

``objects`` makes a document from an examination, ``masking`` decides what of a Secret it may hold, ``text``
makes the YAML and JSON that a terminal can be given, ``writers`` put one or many documents on a stream.
"""
