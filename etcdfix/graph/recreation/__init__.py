"""Who makes an object again once it is gone."""
