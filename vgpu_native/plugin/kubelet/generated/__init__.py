"""Generated from `vgpu_native/plugin/kubelet/protos`: run `make protos`, and change nothing
here."""
