"""What has to hold before a copy is put back: a check is one small function, and each way has its list of them."""
