"""Values under KMS: their envelopes, and the plugins that unwrap their data keys."""
