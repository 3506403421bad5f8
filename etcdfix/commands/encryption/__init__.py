"""What the encryption keys of a cluster are needed for, without a command line: nothing here writes to etcd.

A question that makes no sense raises ConfigurationError; where nothing could be read, SourceError.
"""
