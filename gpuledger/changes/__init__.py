"""What the changing commands do: quotas, resizes, settlement and the take-over of HAMi."""
