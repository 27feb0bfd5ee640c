"""Binary formats that the agent shares with libvgpu.so, and atomic files."""
