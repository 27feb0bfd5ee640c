"""Generated from `vgpu_native/plugin/protos`: run `make protos`, and change nothing here."""
